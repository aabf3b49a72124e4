"""Whether a child is made from what its set says: Go programs that pass an object on spell it in their own way."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.apply.readiness.objects_seen import covers

CONTAINER = {"name": "modelserver", "image": "engine:1", "resources": {"limits": {"cpu": 8, "memory": "1024Mi"}}}


@pytest.mark.parametrize(
    ("whole", "same"),
    [
        ({**CONTAINER, "env": [{"name": "LWS_GROUP_SIZE", "value": "1"}]}, True),  # what a manager injects
        ({**CONTAINER, "resources": {"limits": {"cpu": "8", "memory": "1Gi"}}}, True),  # quantities, normalised
        ({**CONTAINER, "resources": {"limits": {"cpu": "8", "memory": "2Gi"}}}, False),
        ({**CONTAINER, "image": "engine:2"}, False),
        ({"name": "modelserver"}, False),
    ],
)
def test_a_container_that_a_controller_passed_on(whole: dict[str, Any], same: bool) -> None:
    assert covers(CONTAINER, whole) is same


def test_what_is_empty_may_be_missing() -> None:
    assert covers({"emptyDir": {}, "hostNetwork": False, "args": []}, {"name": "added"})


def test_lists_of_named_things_are_compared_by_name_and_others_in_order() -> None:
    named = [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    assert covers(named, [{"name": "c"}, *reversed(named)])
    assert not covers(["--a", "--b"], ["--b", "--a"])
    assert not covers(["--a"], ["--a", "--b"])
