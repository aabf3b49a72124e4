"""Names as options become parts of addresses: nothing but a name goes on."""

from __future__ import annotations

import pytest

from mmdeploy.cli import naming
from mmdeploy.errors import UsageError
from tests.cli.program import run

COMMANDS = ["status", "delete -y", "lint --live", "verify"]
WRONG = ["../../../version?x=", "kube-system/configmaps/it?", "Bad NS", "a_b", "-a", "a-", "", "a" * 64, "é", "a\nb"]


@pytest.mark.parametrize("said", WRONG)
def test_what_can_be_no_namespace(said: str) -> None:
    """RFC 1123 labels: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/"""
    with pytest.raises(UsageError):
        naming.namespace(said)


@pytest.mark.parametrize("said", [None, "a", "llm-d-multimodal-serving", "a" * 63, "0"])
def test_what_can(said: str | None) -> None:
    assert naming.namespace(said) == said


def test_names_of_deployments_may_have_dots() -> None:
    assert naming.name("serving.v2") == "serving.v2"
    with pytest.raises(UsageError):
        naming.name("../serving")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_looks_before_it_asks_a_cluster(command: str) -> None:
    done = run(*command.split(), "--namespace", "../x", "--kubeconfig", "/absent")
    assert done.status == 2
    assert "can be no name of a namespace" in done.stderr
