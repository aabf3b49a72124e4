"""Which stages run, and which limit is reached first."""

from __future__ import annotations

import pytest

from mmdeploy.apply.stages import Deadlines, Selection, duration_of, limits, spelled
from mmdeploy.errors import TimedOutError, UsageError


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_stage_that_does_not_exist_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        Selection.of(["model-server"], [])
    assert caught.value.nearest[0] == "model-servers"
    assert caught.value.origin == "--only"


def test_only_and_skip() -> None:
    chosen = Selection.of(["router", "wait"], ["wait"])
    assert chosen.runs("router")
    assert chosen.why_not("wait") == "--skip wait"
    assert chosen.why_not("secret") == "--only router --only wait"
    assert chosen.words == ["--only", "router", "--only", "wait", "--skip", "wait"]


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2h", 7200)])
def test_durations(text: str, seconds: float) -> None:
    assert duration_of(text, "--timeout") == seconds


@pytest.mark.parametrize("text", ["", "soon", "0s", "-5m", "5 minutes", "1d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        duration_of(text, "--timeout")
    assert caught.value.origin == "--timeout"


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1h30", "1h30m"), ("100ms", "1s"), ("5 minutes", "5m"), ("1d", "24h"), ("1.5h", "1h30m"), ("90sec", "1m30s"),
     ("1h 30m", "1h30m"), ("30m1h", "1h30m"), ("10M", "10m")],
)  # fmt: skip
def test_what_is_spelled_otherwise_is_understood_and_not_guessed_at(text: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        duration_of(text, "--timeout")
    assert caught.value.nearest == (meant,)
    assert caught.value.next_step == "h, m and s, in this order: 90s, 10m, 1h30m"


@pytest.mark.parametrize("text", ["soon", "-5m", "1:30", "5 fortnights", "m"])
def test_what_nobody_can_tell_has_no_nearest(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        duration_of(text, "--timeout")
    assert caught.value.nearest == ()


@pytest.mark.parametrize(
    ("only", "skip", "said"),
    [
        (["router"], ["router"], "no stage is left: --only router, --skip router"),
        (["wait"], [], "no stage is left: --only wait, --no-wait"),
        (["router", "wait"], ["router"], "no stage is left: --only router, --only wait, --skip router, --no-wait"),
    ],
)
def test_nothing_left_to_do_is_wrong_usage(only: list[str], skip: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Selection.of(only, skip, {"wait": "--no-wait"})
    assert caught.value.found == said
    assert Selection.of(only, [], {}).runs(only[0])


def test_limits_of_stages() -> None:
    assert limits(["wait=30m", "router=90s"]) == {"wait": 1800, "router": 90}
    for wrong in ("wait", "weight=3m", "wait=long"):
        with pytest.raises(UsageError):
            limits([wrong])


@pytest.mark.parametrize(("seconds", "text"), [(90, "1m30s"), (3600, "1h"), (5400, "1h30m"), (0.5, "0.5s"), (4, "4s")])
def test_a_limit_is_spelled_as_it_is_written(seconds: float, text: str) -> None:
    assert spelled(seconds) == text


def test_the_message_says_which_limit_was_reached() -> None:
    clock = Clock()
    deadlines = Deadlines(600, {"wait": 60}, clock)
    deadlines.start()
    deadlines.enter("router")
    assert deadlines.next == (1600, "--timeout 10m")
    clock.now += 550
    deadlines.check()
    deadlines.enter("wait")
    assert deadlines.next == (1600, "--timeout 10m")
    assert deadlines.left(300) == 50
    clock.now += 50
    with pytest.raises(TimedOutError) as caught:
        deadlines.check()
    assert caught.value.origin == "--timeout 10m"

    deadlines.start()
    deadlines.enter("wait")
    clock.now += 60
    with pytest.raises(TimedOutError, match="stage wait") as caught:
        deadlines.check()
    assert caught.value.origin == "--stage-timeout wait=1m"


def test_without_limits_time_never_runs_out() -> None:
    deadlines = Deadlines(clock=Clock())
    deadlines.enter("wait")
    deadlines.check()
    assert deadlines.next is None
    assert deadlines.left(300) == 300
