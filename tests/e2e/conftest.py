"""A control plane for the whole run, and a namespace for each test. Only `make e2e` runs what is here."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import crds, netns, users
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.sets import Sets

HERE = Path(__file__).parent
_PLANE = pytest.StashKey[ControlPlane]()
_SIZES = pytest.StashKey[dict[str, int]]()
_number = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the rig; without it nothing here runs."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if "MMDEPLOY_RIG" not in os.environ:
                item.add_marker(pytest.mark.skip(reason="needs a control plane: make e2e"))


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The running control plane, with its fleet of fake nodes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as on Ctrl-C: fixtures are torn down
    with ControlPlane(tmp_path_factory.mktemp("plane")) as running:
        request.config.stash[_PLANE] = running
        yield running


@pytest.fixture(scope="session")
def admin(plane: ControlPlane) -> Api:
    """The API as somebody sees it who may do everything."""
    return plane.api()


@pytest.fixture(scope="session")
def custom_resources(plane: ControlPlane) -> None:
    """The real custom resource definitions are there; a test that needs some asks for this."""
    absent = crds.unavailable()
    if absent:
        pytest.skip(absent)


@pytest.fixture
def sets(plane: ControlPlane, custom_resources: None) -> Sets:
    """The stand-in for the manager of DisaggregatedSets: ``with sets.being("silent"): ...``."""
    return plane.sets


@pytest.fixture
def namespace(admin: Api) -> Iterator[str]:
    """A new namespace in which pods can be made; everything in it goes with it."""
    name = f"test-{next(_number)}"
    where = f"/api/v1/namespaces/{name}"
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait("the namespace has its service account", lambda: admin.find(f"{where}/serviceaccounts/default"))
    yield name
    admin.delete(where)
    # The next test finds the accelerators free. Left alone, the namespace's controller would begin in five seconds;
    # nothing can make pods in a namespace that is ending.
    admin.delete(f"{where}/pods")
    wait("the namespace's pods are gone", lambda: not admin.items(f"{where}/pods"))


@pytest.fixture
def deployer(admin: Api, namespace: str) -> str:
    """Name of a user who may deploy in this test's namespace and nothing else."""
    users.grant(admin, namespace)
    return users.DEPLOYER


@pytest.fixture(scope="session")
def pod_network() -> None:
    """Addresses of pods lead to this process: listen on 0.0.0.0 and ask ``getsockname`` whose turn it is."""
    if not netns.inside():
        pytest.skip(netns.unavailable() or "not inside the rig's network: make e2e")


# ------------------------------------------------------------------------------- what the programs said about a failure


def pytest_runtest_setup(item: pytest.Item) -> None:
    plane = item.config.stash.get(_PLANE, None)
    item.stash[_SIZES] = plane.log_sizes() if plane else {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    report = yield
    plane = item.config.stash.get(_PLANE, None)
    if plane and report.failed:
        said = plane.complaints(item.stash.get(_SIZES, {}))
        report.sections.append(("the control plane meanwhile", said or "nothing"))
    return report
