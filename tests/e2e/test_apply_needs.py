"""What a deployment needs beside its objects: the token, the definitions, and time."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from tests.rig import crds
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, Ran, apply, delete, everything, hold_token, render, succeeded

TOKEN = "hf_0123456789secret"
SECRET = "llm-d-hf-token"
ENCODED = base64.b64encode(TOKEN.encode()).decode()


@pytest.fixture
def bundle(plane: ControlPlane, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    return render(plane, tmp_path / "bundle", namespace, namePrefix="mm")


def token(admin: Api, namespace: str) -> str:
    return base64.b64decode(admin.get(f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")["data"]["HF_TOKEN"]).decode()


def says_nothing(ran: Ran) -> None:
    for secret in (TOKEN, ENCODED):
        assert secret not in ran.out + ran.err


# ---------------------------------------------------------------------------------------------------------------- token


@pytest.mark.parametrize("where", ["env", "file"])
def test_the_token_goes_from_where_it_is_to_its_secret_and_nowhere_else(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path, tmp_path: Path, where: str
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    said = "env:MY_TOKEN" if where == "env" else f"file:{file}"
    ran = apply(plane, bundle, "--no-wait", "-v", "--hf-token-from", said, user=deployer, environ={"MY_TOKEN": TOKEN})
    says_nothing(succeeded(ran))
    assert ran.applied[f"Secret/{SECRET}"] == "created"
    assert token(admin, namespace) == TOKEN
    item = admin.get(f"/api/v1/namespaces/{namespace}/configmaps/mmdeploy-{NAME}")
    assert TOKEN not in yaml.safe_dump(item)
    assert ENCODED not in yaml.safe_dump(item)
    succeeded(delete(plane, bundle, user=deployer))
    assert f"Secret/{SECRET}" not in everything(admin, namespace), "it was ours"


def test_a_token_of_somebody_else_is_not_overwritten(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path
) -> None:
    hold_token(admin, namespace)
    words, environ = ("--no-wait", "--hf-token-from", "env:T"), {"T": TOKEN}
    ran = apply(plane, bundle, *words, user=deployer, environ=environ)
    assert ran.code == 5
    assert "--hf-token-from existing" in ran.err
    says_nothing(ran)
    assert token(admin, namespace) == "hf_rig"

    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "existing", user=deployer))
    assert token(admin, namespace) == "hf_rig"
    succeeded(apply(plane, bundle, *words, "--adopt", user=deployer, environ=environ))
    assert token(admin, namespace) == TOKEN
    succeeded(delete(plane, bundle, user=deployer))
    assert f"Secret/{SECRET}" in everything(admin, namespace), "it was never ours"


def test_a_secret_that_another_deployment_uses_stays(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path, tmp_path: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", environ={"T": TOKEN}))
    words = ("--name", "second", "--set", "namePrefix=other")
    second = render(plane, tmp_path / "second", namespace, *words)
    succeeded(apply(plane, second, "--no-wait", "--skip", "preflight", "--skip", "router"))
    ran = succeeded(delete(plane, bundle))
    assert [event["text"] for event in ran.of("warning")] == [f"Secret/{SECRET} is left: second uses it"]
    assert token(admin, namespace) == TOKEN


def test_without_a_token_nothing_is_deployed(plane: ControlPlane, admin: Api, namespace: str, bundle: Path) -> None:
    ran = apply(plane, bundle, "--skip", "preflight", "--no-wait")
    assert ran.code == 5
    assert f"Secret {SECRET} is not there" in ran.err
    assert "--hf-token-from env:HF_TOKEN" in ran.err
    assert "Deployment/mm-decode" not in everything(admin, namespace)


# --------------------------------------------------------------------------------------------------------- definitions


def test_missing_definitions_are_named_and_installed_only_when_asked(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, custom_resources: None
) -> None:
    hold_token(admin, namespace)
    bundle = render(plane, tmp_path / "bundle", namespace, "--monitoring")
    crds.remove(admin, "podmonitors")
    try:
        ran = apply(plane, bundle, "--skip", "preflight", "--no-wait")
        assert ran.code == 5
        assert "the cluster does not serve PodMonitor (monitoring.coreos.com/v1)" in ran.err
        assert "--install-crds" in ran.err
        file = crds.FOLDER / "podmonitors.yaml"
        ran = succeeded(apply(plane, bundle, "--no-wait", "--install-crds", file))
        assert ran.applied["CustomResourceDefinition/podmonitors.monitoring.coreos.com"] == "created"
        ran = succeeded(apply(plane, bundle, "--no-wait", "--install-crds", file))
        assert ran.applied["CustomResourceDefinition/podmonitors.monitoring.coreos.com"] == "unchanged"
        succeeded(delete(plane, bundle))
        assert admin.find("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podmonitors.monitoring.coreos.com")
    finally:
        crds.install(admin, "podmonitors")


# ---------------------------------------------------------------------------------------------------------------- time


@pytest.mark.parametrize("words", [("--timeout", "4s"), ("--stage-timeout", "wait=2s")])
def test_a_limit_that_is_reached_is_named(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path, words: tuple[str, str]
) -> None:
    hold_token(admin, namespace)
    file = bundle / "modelserver" / "decode-deployment.yaml"
    item = yaml.safe_load(file.read_text())
    item["spec"]["template"]["metadata"].setdefault("annotations", {})["rig/ready-after"] = "600s"
    file.write_text(yaml.safe_dump(item))
    ran = apply(plane, bundle, "--skip", "preflight", *words)
    assert ran.code == 124
    assert " ".join(words) in ran.err
    assert ran.events[-1]["event"] == "failed"
