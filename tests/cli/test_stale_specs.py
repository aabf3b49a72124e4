"""A spec that was edited and not rendered: what counts is what the files say, and nobody should find out later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import run

NOWHERE = ("--kubeconfig", "/absent")
SAYS = "mmdeploy.yaml was changed after the other files were rendered"


def render(place: Path) -> Path:
    assert run("render", "-q", "-t", "aggregation", "--set", "decode.replicas=2", "-d", place).status == 0
    return place


@pytest.mark.parametrize("command", ["apply -y", "apply -y --dry-run client", "diff", "check"])
def test_an_edited_spec_is_told(command: str, tmp_path: Path) -> None:
    bundle = render(tmp_path / "bundle")
    words = command.split()
    words = [words[0], str(bundle), *words[1:], *([] if "client" in words else NOWHERE)]
    assert SAYS not in " ".join(run(*words).stderr.split())
    spec = bundle / "mmdeploy.yaml"
    spec.write_text(spec.read_text().replace("replicas: 2", "replicas: 3"))
    done = run(*words)
    assert SAYS in " ".join(done.stderr.split())
    assert f"mmdeploy render -f {spec} -d {bundle}" in " ".join(done.stderr.split())
    assert run("render", "-q", "-f", spec, "-d", bundle).status == 0
    assert SAYS not in " ".join(run(*words).stderr.split())


def test_an_edited_manifest_is_what_somebody_wants(tmp_path: Path) -> None:
    bundle = render(tmp_path / "bundle")
    (manifest,) = bundle.glob("modelserver/*deployment.yaml")
    manifest.write_text(manifest.read_text() + "# mine\n")
    assert SAYS not in run("apply", bundle, "-y", "--dry-run", "client").stderr
