"""What tests of `mmdeploy check` share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.check.checking import Checker, token
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane


@pytest.fixture
def checker(
    plane: ControlPlane, admin: Api, namespace: str, custom_resources: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Checker:  # fmt: skip
    """Checks of the test's namespace, in which the token's Secret is there: what a test does not break is well."""
    for name, value in plane.environment().items():
        monkeypatch.setenv(name, value)  # helm and kubectl are the rig's
    token(admin, namespace)
    return Checker(plane, namespace, tmp_path)
