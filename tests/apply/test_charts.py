"""What somebody names with --router-chart is a chart, or is refused before anything is done."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from mmdeploy.apply import charts
from mmdeploy.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "tests" / "rig" / "chart"
FETCH = "helm pull oci://example.com/chart --version v1"


def packed(path: Path, name: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(name)
        archive.addfile(entry, io.BytesIO())
    return path


def refused(said: str | Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        charts.local(str(said), "--router-chart", FETCH)
    assert caught.value.origin == f"--router-chart {said}"
    assert caught.value.next_step == FETCH
    return caught.value


def test_a_directory_and_an_archive(tmp_path: Path) -> None:
    assert charts.local(str(CHART), "--router-chart", FETCH) == CHART
    # helm package puts everything into one directory of the chart's name.
    made = packed(tmp_path / "router-v1.tgz", "router/Chart.yaml")
    assert charts.local(str(made), "--router-chart", FETCH) == made


def test_a_directory_that_is_none_names_those_inside(tmp_path: Path) -> None:
    assert "has no Chart.yaml" in refused(tmp_path).found
    (tmp_path / "router").mkdir()
    (tmp_path / "router" / "Chart.yaml").touch()
    assert refused(tmp_path).nearest == (str(tmp_path / "router"),)


def test_archives_that_are_none(tmp_path: Path) -> None:
    plain = tmp_path / "router.tgz"
    plain.write_text("<html>404</html>", encoding="utf-8")
    assert refused(plain).found == "is no chart: neither a directory nor a gzipped archive"
    assert refused(packed(tmp_path / "source.tgz", "repo/charts/router/Chart.yaml")).found.endswith("no Chart.yaml")
    half = packed(tmp_path / "half.tgz", "router/Chart.yaml")
    half.write_bytes(half.read_bytes()[:40])
    assert "gzipped" in refused(half).found


def test_the_file_inside_a_chart_names_the_chart() -> None:
    assert refused(CHART / "Chart.yaml").nearest == (str(CHART),)


def test_a_reference_without_its_scheme_is_no_path() -> None:
    assert refused("ghcr.io/llm-d/charts/router").nearest == ("oci://ghcr.io/llm-d/charts/router",)
    assert refused("oci:/ghcr.io/llm-d/charts/router").nearest == ("oci://ghcr.io/llm-d/charts/router",)
    assert refused("./charts/router").nearest == ()


@pytest.mark.parametrize("command", ["apply", "diff", "check"])
def test_the_commands_refuse_it_without_a_cluster(tmp_path: Path, command: str) -> None:
    bundle = ROOT / "overlays" / "main" / "aggregation" / "gpu" / "vllm" / "base"
    words = [command, str(bundle), "--router-chart", str(tmp_path), *(["-y"] if command == "apply" else [])]
    missing = {"KUBECONFIG": str(tmp_path / "none"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "mmdeploy", *words], capture_output=True, text=True, env=missing, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "has no Chart.yaml" in done.stderr
