"""A deployment behind a Gateway serves when the Gateway's controller has said so: apply waits, status shows it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import engines
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, Running, apply, apply_words, hold_token, mmdeploy, render, succeeded

GATEWAY = "llm-d-inference-gateway"
SILENT = f"no controller of gateway class istio has reported on Gateway {GATEWAY}"


@pytest.fixture
def bundle(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, custom_resources: None, pod_network: None
) -> Iterator[Path]:
    hold_token(admin, namespace)
    made = render(
        plane, tmp_path / "bundle", namespace, "--mode", "gateway", "--gateway-class", "istio", namePrefix="mm"
    )
    with engines.serving("Qwen/Qwen3-VL-32B-Instruct"):
        yield made


def status(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(mmdeploy(plane, "status", "-n", namespace, "-o", "json").out)
    return found


def test_a_gateway_that_no_controller_reports_on_is_not_ready(
    plane: ControlPlane, namespace: str, bundle: Path
) -> None:
    with plane.gateways.away():
        ran = apply(plane, bundle, "--skip", "preflight", "--timeout", "40s")
        assert ran.code == 124
        # Everything else was ready: this is what the time ran out for, and it names the class.
        assert SILENT in " ".join(ran.err.split())
        assert {event["role"] for event in ran.of("ready")} == {"decode", "router", "pool", "model"}
        found = status(plane, namespace)
        assert (found["ready"], found["gateway"]["ready"]) == (False, False)
        assert [part["phase"] for part in found["gateway"]["parts"]] == ["unseen", "unseen"]
        text = mmdeploy(plane, "status", bundle).out
        assert text.splitlines()[0].endswith("not ready")
        assert SILENT in " ".join(text.split())
    ran = succeeded(apply(plane, bundle, "--skip", "preflight"))
    assert [event["detail"] for event in ran.of("ready") if event["role"] == "gateway"] == [
        f"Gateway {GATEWAY} is ready; HTTPRoute {NAME} is ready"
    ]
    found = status(plane, namespace)
    assert (found["ready"], found["gateway"]["ready"]) == (True, True)


def test_a_route_that_is_refused_for_good_ends_the_wait(plane: ControlPlane, namespace: str, bundle: Path) -> None:
    with plane.gateways.refusing(NAME, "ResolvedRefs", "InvalidKind", "kind InferencePool is not supported"):
        ran = apply(plane, bundle, "--skip", "preflight", "--timeout", "2m")
    assert ran.code == 1
    said = " ".join(ran.err.split())
    assert f"gateway: HTTPRoute {NAME}: ResolvedRefs is False: InvalidKind: kind InferencePool is not supported" in said


def test_a_report_of_an_older_generation_does_not_count(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--skip", "preflight"))
    where = f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/gateways/{GATEWAY}"
    with plane.gateways.away():
        listener = {"name": "more", "port": 8080, "protocol": "HTTP"}
        admin.merge(where, {"spec": {"listeners": [listener]}})
        found = status(plane, namespace)
        assert [part["phase"] for part in found["gateway"]["parts"]] == ["unseen", "ready"]


def test_nobody_waits_for_a_gateway_whose_stage_is_skipped(plane: ControlPlane, bundle: Path) -> None:
    with plane.gateways.away():
        ran = succeeded(apply(plane, bundle, "--skip", "preflight", "--skip", "gateway", "--timeout", "60s"))
    assert "gateway" not in {event["role"] for event in ran.of("ready")}


def test_an_interrupt_says_that_the_gateway_still_starts(plane: ControlPlane, bundle: Path) -> None:
    with plane.gateways.away(), Running(plane, *apply_words(bundle, "--skip", "preflight")) as running:
        running.until("ready")
        while not any(event["event"] == "ready" and event["role"] == "model" for event in running.events):
            running.until("ready")
        running.process.send_signal(signal.SIGINT)
        code, _ = running.end()
    assert code == 130
    assert any(f"Gateway/{GATEWAY}: unseen" in line for line in running.events[-1]["starting"])
