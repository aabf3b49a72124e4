"""The status on one screen, from its document."""

from __future__ import annotations

import pytest

from mmdeploy.report import status

STARTING = {"kind": "Pod", "phase": "loading", "detail": "weights 45%", "since": None, "fails": False, "hint": "",
            "log": []}  # fmt: skip
ROLE = {"kind": "Deployment", "old": 0, "note": "", "done": False}
DOCUMENT = {
    "name": "multimodal-serving",
    "namespace": "serving",
    "context": "production",
    "ready": False,
    "release": {"name": "v0.9", "by": "the endpoint picker's image ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0"},
    "lastApply": {"at": "2026-01-01T00:00:00Z", "by": "ada@laptop", "version": "1.0", "stages": []},
    "roles": [
        {**ROLE, "role": "decode", "workload": "engine", "desired": 8, "ready": 5,
         "images": ["docker.io/vllm/vllm-openai:v0.30.0"],
         "starting": [{**STARTING, "name": f"engine-{n}", "seconds": 60 + n} for n in range(2)] + [
             {**STARTING, "name": "engine-2", "phase": "restarting", "seconds": 5, "fails": True,
              "detail": "the engine does not know --foo", "hint": "mmdeploy lint says which releases have it",
              "log": ["usage", "error: unrecognized arguments: --foo"]}]},
    ],
    "router": {**ROLE, "role": "router", "workload": "mm-epp", "desired": 1, "ready": 1, "done": True,
               "images": [], "starting": []},
    "gateway": None,
    "pool": {"detail": "selects 5 ready pods: 5 decode"},
    "model": {"name": "a/b", "served": True, "detail": "listed by service mm-epp"},
    "drift": [{"kind": "Deployment", "name": "engine", "gone": False,
               "changes": [{"path": "spec.replicas", "applied": 8, "live": 7, "manager": "kubectl"}]}],
    "notes": ["events cannot be read"],
}  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
def test_it_keeps_within_the_terminal(columns: int) -> None:
    assert max(map(len, status.text(DOCUMENT, columns).splitlines())) <= columns


def test_it_says_everything_once() -> None:
    text = status.text(DOCUMENT, 200)
    assert text.splitlines()[0] == "multimodal-serving  not ready"
    for said in (
        "  namespace   serving (context production)",
        "  last apply  2026-01-01T00:00:00Z by ada@laptop with mmdeploy 1.0",
        "  decode  5/8    docker.io/vllm/vllm-openai:v0.30.0",
        "  router  1/1    -",
        "  drift       Deployment/engine: spec.replicas is 7, applied 8 (by kubectl)",
        "  decode      2 pods loading for 1m01s: weights 45%",
        "  decode      pod engine-2 restarting for 5s: the engine does not know --foo",
        "              | error: unrecognized arguments: --foo",
        "              next: mmdeploy lint says which releases have it",
        "  note        events cannot be read",
    ):
        assert text.count(f"{said}\n") == 1, said


def test_a_line_for_a_log() -> None:
    assert status.line(DOCUMENT) == (
        "multimodal-serving: not ready; decode 5/8, router 1/1; 2 pods loading for 1m01s: weights 45%; "
        "pod engine-2 restarting for 5s: the engine does not know --foo"
    )


def test_what_nobody_knows_is_said_so() -> None:
    text = status.text({**DOCUMENT, "lastApply": None, "drift": None, "release": {"name": None, "by": "odd"}}, 200)
    assert "  last apply  not by mmdeploy" in text
    assert "  drift       not known: mmdeploy has not applied it" in text
    assert "  release     unknown: odd" in text


def test_a_gateway_that_no_controller_reports_on() -> None:
    said = "no controller of gateway class istio has reported on Gateway front for 30 s: is it running?"
    document = {**DOCUMENT, "gateway": {"ready": False, "parts": [], "detail": said}}
    assert f"  gateway     {said}\n" in status.text(document, 200)
    assert status.line(document).endswith(said)


def test_an_apply_that_was_stopped_is_not_one_that_never_was() -> None:
    text = status.text({**DOCUMENT, "drift": None}, 200)
    assert "  drift       not known: the last apply did not finish" in text
    assert "not applied" not in text
