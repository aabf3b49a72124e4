"""Nothing secret is shown, in whatever form findings are asked for: they end up in logs and on code-scanning pages."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from mmdeploy.lint.secrets import shown
from mmdeploy.secrecy import MASK
from tests.cli.program import run
from tests.lint.harness import base_files

FORMS = ("text", "json", "sarif", "junit", "github", "short")
TOKEN = "hf_" + "a1B2c3D4e5" * 3
PASSWORD = "correct-horse-battery"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An engine with a token in the open (MMD952) and a Secret whose token ends in a line break (MMD952), whose key
    stands twice (MMD902), and whose ignore is of no use (MMD904)."""
    files = base_files({"topology": "aggregation"})
    path = next(name for name, text in files.items() if "secretKeyRef" in text)
    lines = files[path].splitlines()
    at = next(number for number, line in enumerate(lines) if "name: HF_TOKEN" in line)
    indent = " " * (lines[at].index("name:"))
    end = next(number for number in range(at + 1, len(lines)) if lines[number].lstrip().startswith("- "))
    lines[at + 1 : end] = [f"{indent}value: {TOKEN}  # mmdeploy: ignore MMD902 nothing"]
    encoded = base64.b64encode(f"{PASSWORD}\n".encode()).decode()
    secret = (
        "apiVersion: v1\nkind: Secret\nmetadata: {name: other}\n"
        f"data:\n  HF_TOKEN: {encoded}\n  some: {encoded}\n  some: {encoded}\n"
    )
    (tmp_path / "engine.yaml").write_text("\n".join(lines))
    (tmp_path / "secret.yaml").write_text(secret)
    (tmp_path / "broken.yaml").write_text(secret + f"  more: [{encoded}\n")
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_the_report_shows_a_secret(place: Path, form: str) -> None:
    done = run("lint", str(place), "--select", "9", "-o", form)
    assert done.status == 3
    assert {code for code in ("MMD901", "MMD902", "MMD904", "MMD952") if code in done.stdout} == {
        "MMD901", "MMD902", "MMD904", "MMD952",
    }  # fmt: skip
    encoded = base64.b64encode(PASSWORD.encode()).decode()[:20]
    assert not [secret for secret in (TOKEN, PASSWORD, encoded) if secret in done.stdout + done.stderr]


@pytest.mark.parametrize(
    ("line", "value", "path", "expected"),
    [
        (f"        value: {PASSWORD}", {"env": [{"name": "API_KEY", "value": PASSWORD}]}, ("env", 0, "value"),
         f"        value: {MASK}"),
        (f"- {{name: API_KEY, value: '{PASSWORD}'}}", {"env": [{"name": "API_KEY"}]}, ("env", 0),
         f"- {{name: API_KEY, value: {MASK}}}"),
        ("  value: 0.0.0.0", {"env": [{"name": "HOST", "value": "0.0.0.0"}]}, ("env", 0, "value"), "  value: 0.0.0.0"),
        (f"- {PASSWORD}", {"args": ["--api-key", PASSWORD]}, ("args", 1), f"- {MASK}"),
        (f"- --api-key={PASSWORD}", {"args": [f"--api-key={PASSWORD}"]}, ("args", 0), f"- --api-key={MASK}"),
        (f"vllm serve --api-key {PASSWORD} --port 8000", None, (), f"vllm serve --api-key {MASK} --port 8000"),
        (f"export HF_TOKEN={PASSWORD} A=b", None, (), f"export HF_TOKEN={MASK} A=b"),
        ("  x: eHg=", {"kind": "Secret", "data": {"x": "eHg="}}, ("data", "x"), f"  x: {MASK}"),
        ("data: {x: eHg=, y: eXk=}", {"kind": "Secret", "data": {"x": "eHg="}}, ("data", "x"),
         f"data: {{x: {MASK}, y: {MASK}}}"),
        (f"  http_proxy: http://me:{PASSWORD}@proxy:3128", None, (), f"  http_proxy: http://{MASK}@proxy:3128"),
    ],
)  # fmt: skip
def test_a_line_is_shown_without_what_is_secret_in_it(
    line: str, value: object, path: tuple[str | int, ...], expected: str
) -> None:
    assert shown(line, value, path) == expected


@pytest.mark.parametrize(
    "line",
    [
        "- --max-num-batched-tokens=8192", "secretName: llm-d-hf-token", "- name: HF_TOKEN", "  secretKeyRef:",
        "    key: HF_TOKEN", "- type: token-producer", "tokenizer: {enabled: true}", "# the token stands in a Secret",
        "  secret: {secretName: llm-d-hf-token}",
    ],
)  # fmt: skip
def test_what_only_speaks_of_secrets_is_shown(line: str) -> None:
    assert shown(line) == line
