"""What is wrong in a shell script is shown on its own line, where the document keeps the script's lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmdeploy.lint.findings import Finding
from tests.lint.harness import lint

# `--no-such-flag` is on no engine (MMD301); `--gpu-memory-utilisation` is a misspelling.
SCRIPT = """\
set -e
# the engine
exec vllm serve Qwen/Qwen3-VL-32B-Instruct \\
  --port 8000 --no-such-flag=1 \\
  --served-model-name "my model" \\

echo done
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: engine}
spec:
  selector: {matchLabels: {app: engine}}
  template:
    metadata: {labels: {app: engine}}
    spec:
      containers:
      - name: modelserver
        image: docker.io/vllm/vllm-openai:v0.30.0
        command: [bash, -c]
        args:
"""


def found(directory: Path, args: str, ignore: str = "") -> list[Finding]:
    """Findings about the flag that no engine has."""
    (directory / "files").mkdir()
    files = {"engine.yaml": DEPLOYMENT.replace("args:", f"args:{ignore}") + args}
    return [item for item in lint(files, directory / "files") if "--no-such-flag" in item.message]


def block(style: str, indent: int, comment: str = "") -> str:
    lines = [" " * indent + line if line else "" for line in SCRIPT.splitlines()]
    return f"        - {style}{comment}\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("style", ["|", "|-", "|+"])
@pytest.mark.parametrize("indent", [10, 14])
def test_a_literal_block_keeps_its_lines(tmp_path: Path, style: str, indent: int) -> None:
    """Line and column counted by hand: 14 lines above the script, and the flag on its fourth."""
    (finding,) = found(tmp_path, block(style, indent))
    assert (finding.position.line, finding.position.column) == (18, indent + len("  --port 8000 ") + 1)
    assert finding.line.strip() == r"--port 8000 --no-such-flag=1 \ ".strip()


def test_a_variable_in_the_script_moves_no_line(tmp_path: Path) -> None:
    """Kubernetes puts another text in the variable's place: only the line is known then."""
    (finding,) = found(
        tmp_path, block("|", 10).replace("--port 8000", "--port $(PORT)") + "        env: [{name: PORT, value: '8'}]\n"
    )
    assert finding.position.line == 18
    assert finding.line[finding.position.column - 1 :].startswith("--port")


@pytest.mark.parametrize("style", [">", ">-"])
def test_other_texts_are_shown_where_they_begin(tmp_path: Path, style: str) -> None:
    folded = f"        - {style}\n          exec vllm serve some/model\n          --no-such-flag=1\n"
    (finding,) = found(tmp_path, folded)
    assert finding.position.line == 14


def test_a_quoted_script_is_shown_where_it_begins(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, '        - "exec vllm serve some/model \\\n          --no-such-flag=1"\n')
    assert finding.position.line == 14


def test_an_ignore_where_the_script_begins_still_holds(tmp_path: Path) -> None:
    assert found(tmp_path, block("|", 10, "  # mmdeploy: ignore MMD301 a fork has it")) == []
