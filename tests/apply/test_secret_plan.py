"""What a plan says of the token's Secret: that it is missing or changes, never what is in it."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from mmdeploy.apply.plan.secretplan import secret_steps
from mmdeploy.catalog import Catalog
from mmdeploy.errors import ForbiddenError
from mmdeploy.intended import Intended, read

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "overlays" / "main" / "aggregation" / "gpu" / "vllm" / "base"
OURS = {
    "labels": {"app.kubernetes.io/managed-by": "mmdeploy"},
    "annotations": {"mmdeploy/deployment": "multimodal-serving"},
}


@pytest.fixture(scope="module")
def intended() -> Intended:
    return read(BUNDLE, Catalog(ROOT / "blueprints"))


class Holding:
    """A cluster with one Secret, or none, or one that may not be read."""

    def __init__(self, live: Any) -> None:
        self.live = live

    def find(self, path: str) -> Any:
        if isinstance(self.live, Exception):
            raise self.live
        assert path.endswith("/secrets/llm-d-hf-token"), path
        return self.live


def secret(value: str, **metadata: Any) -> dict[str, Any]:
    data = {"HF_TOKEN": base64.b64encode(value.encode()).decode()}
    return {"metadata": {"uid": "u", **metadata}, "data": data}


CASES = {
    "missing": (None, None, ("create", "--hf-token-from")),
    "missing, and given": (None, "hf_new", ("create", "")),
    "there": (secret("hf_old"), None, None),
    "the key is missing": ({"metadata": {"uid": "u"}, "data": {"OTHER": "eA=="}}, None, ("update", "--hf-token-from")),
    "the same is given": (secret("hf_old", **OURS), "hf_old", ("unchanged", "")),
    "another is given": (secret("hf_old", **OURS), "hf_new", ("update", "")),
    "somebody else's, another is given": (secret("hf_old"), "hf_new", ("adopt", "--adopt")),
}


@pytest.mark.parametrize(("live", "token", "wanted"), CASES.values(), ids=CASES)
def test_what_would_be_done(intended: Intended, live: Any, token: str | None, wanted: tuple[str, str] | None) -> None:
    steps, notes = secret_steps(cast(Any, Holding(live)), intended, token, adopt=False)
    assert [(step.verb, step.needs) for step in steps] == ([wanted] if wanted else [])
    assert notes == []
    told = json.dumps([asdict(step) for step in steps])
    for value in ("hf_old", "hf_new"):
        assert value not in told
        assert base64.b64encode(value.encode()).decode() not in told


def test_without_the_right_it_is_said_to_be_not_checked(intended: Intended) -> None:
    steps, notes = secret_steps(cast(Any, Holding(ForbiddenError("secrets is forbidden"))), intended, None, adopt=False)
    assert steps == []
    assert notes == ["Secret/llm-d-hf-token was not checked: there is no right to read it"]


def test_where_there_is_no_namespace_it_is_not_asked_for(intended: Intended) -> None:
    nobody = cast(Any, Holding(AssertionError("asked")))
    (step,) = secret_steps(nobody, intended, None, adopt=False, namespace_exists=False)[0]
    assert (step.verb, step.needs) == ("create", "--hf-token-from")
