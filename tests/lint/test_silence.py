"""A correct deployment is no finding: every shipped bundle, every option of render, either half alone, and the same
deployments as other people spell them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.lint import index, reading, run
from mmdeploy.lint.findings import Finding
from mmdeploy.lint.judgement import errors_of_bundle
from mmdeploy.render.bundle import contents
from tests.fidelity.renders import CATALOG, OPTIONED, OVERLAYS, SHIPPED, Case
from tests.lint.harness import RESPELLINGS
from tests.lint.respelled import SPELLINGS, Files

EXPLAINED: Mapping[str, Mapping[str, str]] = {
    # name of an option of tests/fidelity/renders.py → code → why it is right that something is found
    **dict.fromkeys(
        ("encoder-data-parallel", "everything"),
        {"MMD320": "an info: Gemma 4 cannot split media items over ranks, which render warns of too"},
    ),
}

TWO_RELEASES = [case for case in SHIPPED if case.said["release"] in ("main", "v0.9")]


def ids(case: Case) -> str:
    return case.id


def judged(read: reading.Read) -> list[Finding]:
    deployment = index.index(CATALOG, read)
    return run.run(deployment, run.select([], []), strict=True).findings


def files_of(case: Case) -> dict[str, str]:
    return {path: text for path, text in case.bundle.files.items() if path.endswith(".yaml")}


def silent(findings: Iterable[Finding], option: str = "") -> None:
    expected = EXPLAINED.get(option, {})
    wrong = [item for item in findings if item.code not in expected]
    assert not wrong, "\n" + "\n".join(
        f"{item.code} {item.level.name} {item.position} {item.subject}: {item.message}\n    {item.line.strip()}"
        for item in wrong
    )


def option_of(case: Case) -> str:
    return case.id.rpartition("+")[2] if "+" in case.id else ""


@pytest.mark.parametrize("case", SHIPPED, ids=ids)
def test_overlays_on_disk(case: Case) -> None:
    silent(judged(reading.read([str(OVERLAYS / case.id)])))


@pytest.mark.parametrize("case", OPTIONED, ids=ids)
def test_every_option(case: Case) -> None:
    silent(judged(reading.read_files(files_of(case))), option_of(case))


@pytest.mark.parametrize("case", SHIPPED + OPTIONED, ids=ids)
def test_either_half_alone(case: Case) -> None:
    files = files_of(case)
    halves: list[Files] = [
        {path: text for path, text in files.items() if path.startswith("router/")},
        {path: text for path, text in files.items() if path.startswith("modelserver/")},
        {path: text for path, text in files.items() if not path.startswith("modelserver/")},
    ]
    for half in halves:
        silent(judged(reading.read_files(half)), option_of(case))


@pytest.mark.parametrize("case", [case for case in SHIPPED + OPTIONED if case.said["release"] == "main"], ids=ids)
def test_the_spelling_of_router_0_10(case: Case) -> None:
    files = files_of(case)
    for old, new in RESPELLINGS["v0.10.0"]:
        files = {path: text.replace(old, new) for path, text in files.items()}
    silent(judged(reading.read_files(files)), option_of(case))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("case", TWO_RELEASES, ids=ids)
def test_other_words(case: Case, spelling: str) -> None:
    if spelling == "stateful" and any("DisaggregatedSet" in text for text in files_of(case).values()):
        pytest.skip("has no Deployment")
    silent(judged(reading.read_files(SPELLINGS[spelling](files_of(case)))))


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.parametrize("case", SHIPPED, ids=ids)
def test_what_kubectl_builds(case: Case, tmp_path: Path) -> None:
    overlay = OVERLAYS / case.id
    done = subprocess.run(
        ["kubectl", "kustomize", str(overlay / "modelserver")], capture_output=True, text=True, check=True
    )
    (tmp_path / "built.yaml").write_text(done.stdout)
    silent(judged(reading.read([str(tmp_path / "built.yaml"), str(overlay / "router" / "values.yaml")])))


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
def test_a_prefix_and_labels_on_top(tmp_path: Path) -> None:
    overlay = next(case for case in SHIPPED if case.said["topology"] == "e-pd" and case.said["release"] == "v0.9")
    shutil.copytree(OVERLAYS / overlay.id, tmp_path / "base")
    (tmp_path / "mine").mkdir()
    top: dict[str, Any] = {"namePrefix": "my-", "namespace": "mine", "resources": ["../base/modelserver"]}
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(top))
    found = judged(reading.read([str(tmp_path / "mine"), str(tmp_path / "base" / "router" / "values.yaml")]))
    silent(found)


@pytest.mark.parametrize("case", SHIPPED, ids=ids)
def test_what_render_asks_itself(case: Case) -> None:
    bundle = case.bundle
    parsed = {path: yaml.safe_load(bundle.files[path]) for path in contents(bundle)}
    namespace = bundle.deployment.spec["namespace"]
    for path, value in contents(bundle).items():
        if "kind" in value:
            value["metadata"].pop("namespace")
            parsed[path]["metadata"].pop("namespace", None)
        assert value == parsed[path], path
    assert namespace
    assert errors_of_bundle(CATALOG, bundle.files, contents(bundle)) == []
