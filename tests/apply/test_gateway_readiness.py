"""A gateway in front is ready when its controller says so of the newest generation, and never before.

Conditions and their defaults are those of the Gateway API's own definitions (../shared/crds/gateways.yaml): a Gateway
is created with Accepted and Programmed Unknown, "Waiting for controller"; a route's status lists one report a parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mmdeploy.apply.events import Event, Failed, Ready, Waiting
from mmdeploy.apply.readiness import gateway, waiting
from mmdeploy.apply.readiness.gateway import Wanted
from mmdeploy.apply.readiness.objects_seen import Seen
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.cli import blueprints
from mmdeploy.errors import TimedOutError
from mmdeploy.intended import Intended
from tests.apply.cluster import Cluster, Object, at

CATALOG = blueprints.load()
STARTUP = Startup(CATALOG)
WANTED = Wanted("mm", ("front",), route=True)


def conditions(generation: int | None = 1, **states: str) -> list[Object]:
    """``Accepted="True"``, or ``Accepted="False: Reason: message"``."""
    found = []
    for kind, said in states.items():
        status, _, rest = said.partition(": ")
        reason, _, message = rest.partition(": ")
        each = {"type": kind, "status": status, "reason": reason or kind, "message": message}
        found.append({**each, "lastTransitionTime": at(0)}
                     | ({} if generation is None else {"observedGeneration": generation}))  # fmt: skip
    return found


def front(generation: int = 1, *reported: Object) -> Object:
    metadata = {"name": "front", "namespace": "serving", "uid": "g", "generation": generation}
    waits = conditions(None, Accepted="Unknown: Pending", Programmed="Unknown: Pending")
    return {"kind": "Gateway", "metadata": {**metadata, "creationTimestamp": at(0)},
            "spec": {"gatewayClassName": "istio"}, "status": {"conditions": list(reported) or waits}}  # fmt: skip


def route(*parents: Object, refs: list[Object] | None = None) -> Object:
    metadata = {
        "name": "mm", "namespace": "serving", "uid": "r", "generation": 1, "creationTimestamp": at(0),
        "annotations": {"meta.helm.sh/release-name": "mm"},
    }  # fmt: skip
    return {"kind": "HTTPRoute", "metadata": metadata, "spec": {"parentRefs": refs or [{"name": "front"}]},
            "status": {"parents": list(parents)}}  # fmt: skip


def parent(*reported: Object, name: str = "front") -> Object:
    ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}
    return {"parentRef": ref, "controllerName": "example.com/controller", "conditions": list(reported)}


GOOD = front(1, *conditions(Accepted="True", Programmed="True"))
GOOD_ROUTE = route(parent(*conditions(Accepted="True", ResolvedRefs="True")))


def judged(gateways: list[Object], routes: list[Object], quiet: float = 0, wanted: Wanted = WANTED) -> Any:
    seen = Seen({"Gateway": gateways, "HTTPRoute": routes})
    return gateway.judge(seen, wanted, STARTUP, lambda _: quiet)


CASES: Mapping[str, tuple[list[Object], list[Object], list[str]]] = {
    "both reported": ([GOOD], [GOOD_ROUTE], ["ready", "ready"]),
    "nobody has reported": ([front()], [route()], ["unseen", "unseen"]),
    "of an older generation": (
        [front(2, *conditions(1, Accepted="True", Programmed="True"))], [GOOD_ROUTE], ["unseen", "ready"],
    ),
    "a controller that names no generation": (
        [front(2, *conditions(None, Accepted="True", Programmed="True"))], [GOOD_ROUTE], ["ready", "ready"],
    ),
    "accepted and not programmed": (
        [front(1, *conditions(Accepted="True", Programmed="False: AddressNotAssigned: no address"))], [GOOD_ROUTE],
        ["pending", "ready"],
    ),
    "accepted alone": ([front(1, *conditions(Accepted="True"))], [GOOD_ROUTE], ["unseen", "ready"]),
    "a route without its pool": (
        [GOOD], [route(parent(*conditions(Accepted="True", ResolvedRefs="False: BackendNotFound")))],
        ["ready", "pending"],
    ),
    "a controller that knows no pools": (
        [GOOD], [route(parent(*conditions(Accepted="True", ResolvedRefs="False: InvalidKind")))], ["ready", "refused"],
    ),
    "reported for another Gateway": (
        [GOOD], [route(parent(*conditions(Accepted="True", ResolvedRefs="True"), name="other"))], ["ready", "unseen"],
    ),
    "two controllers, of which one is content": (
        [GOOD],
        [route(parent(*conditions(Accepted="False: Pending")),
               parent(*conditions(Accepted="True", ResolvedRefs="True")))],
        ["ready", "ready"],
    ),
    "the route is missing": ([GOOD], [], ["ready", "absent"]),
    "the Gateway is missing": ([], [GOOD_ROUTE], ["absent", "ready"]),
}  # fmt: skip


@pytest.mark.parametrize(("gateways", "routes", "phases"), CASES.values(), ids=CASES)
def test_phases(gateways: list[Object], routes: list[Object], phases: list[str]) -> None:
    assert [part.phase for part in judged(gateways, routes)] == phases


def test_a_silent_controller_is_named_by_its_class() -> None:
    first, second = judged([front()], [route()], quiet=31)
    assert first.detail == "no controller of gateway class istio has reported on Gateway front for 30 s: is it running?"
    assert second.detail == (
        "no controller of gateway class istio for Gateway front has reported on HTTPRoute mm for 30 s: is it running?"
    )


def test_somebody_else_s_gateway_is_looked_at_where_the_route_is_for_it() -> None:
    elsewhere = route(refs=[{"name": "front", "namespace": "infra"}])
    assert [(part.kind, part.phase) for part in judged([front()], [route()], wanted=Wanted("mm"))] == [
        ("Gateway", "unseen"), ("HTTPRoute", "unseen"),
    ]  # fmt: skip
    assert [part.kind for part in judged([], [elsewhere], wanted=Wanted("mm"))] == ["HTTPRoute"]


# --------------------------------------------------------------------------------------------------------- in a wait


def wait(show: Any, **options: Any) -> list[Event]:
    spec = {"name": "mm", "namespace": "serving", "model": "a/b", "mode": "gateway"}
    wanted = Intended("bundle", spec, {"httpRoute": {"create": True}}, {"gateway": [front()]})
    found = Cluster(show)
    return list(
        waiting.wait(
            found, wanted, CATALOG, parts=("gateway",), clock=found.clock, sleep=found.sleep, **options  # type: ignore[arg-type]
        )
    )  # fmt: skip


def test_it_is_waited_for() -> None:
    def show(seconds: float) -> dict[str, list[Object]]:
        return {"Gateway": [GOOD if seconds > 60 else front()], "HTTPRoute": [GOOD_ROUTE if seconds > 90 else route()]}

    events = wait(show)
    assert events[-1] == Ready("gateway", "front", "Gateway front is ready; HTTPRoute mm is ready")
    assert [event.phase for event in events if isinstance(event, Waiting) and event.kind == "Gateway"][-1] == "ready"


def test_a_controller_that_never_reports_is_what_the_time_ran_out_for() -> None:
    with pytest.raises(TimedOutError, match="no controller of gateway class istio has reported on Gateway front"):
        wait(lambda _: {"Gateway": [front()], "HTTPRoute": [GOOD_ROUTE]}, deadline=120.0)


@pytest.mark.parametrize(("lasts", "fails"), [(5, False), (1000, True)])
def test_what_it_refuses_for_good_ends_the_wait_unless_it_was_for_a_moment(lasts: float, fails: bool) -> None:
    bad = route(parent(*conditions(Accepted="True", ResolvedRefs="False: InvalidKind: InferencePool is unknown")))

    def show(seconds: float) -> dict[str, list[Object]]:
        return {"Gateway": [GOOD], "HTTPRoute": [bad if seconds < lasts else GOOD_ROUTE]}

    last = wait(show)[-1]
    assert isinstance(last, Failed) is fails
    if isinstance(last, Failed):
        assert last.name == "gateway: HTTPRoute mm"
        assert last.reason == "ResolvedRefs is False: InvalidKind: InferencePool is unknown"
        assert "does not know InferencePools" in last.hint
