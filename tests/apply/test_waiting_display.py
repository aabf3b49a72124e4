"""What a person sees of a wait: a table within the terminal's width, or a line for each thing that matters."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mmdeploy.report import progress
from mmdeploy.report.board import Board
from mmdeploy.report.waits import WaitLines

QUESTION = "no controller has acted on DisaggregatedSet engine for 30 s: is LeaderWorkerSet running with " \
    "enableDisaggregatedSet?"  # fmt: skip


def waits(kind: str, name: str, phase: str, detail: str = "", since: float = 0, role: str = "decode") -> dict[str, Any]:
    return {"event": "waiting", "role": role, "kind": kind, "name": name, "phase": phase, "detail": detail,
            "since": since}  # fmt: skip


EVENTS = [
    waits("DisaggregatedSet", "engine", "unseen", QUESTION, 31, "encode"),
    waits("Role", "engine", "unseen", "0 of 2 ready", role="encode"),
    waits("Pod", "engine-0", "loading", "weights 45%", 70),
    waits("Pod", "engine-1", "loading", "weights 45%", 62),
    waits("Pod", "engine-2", "unschedulable", "of 15 nodes 14 without enough free nvidia.com/gpu, 1 tainted", 100),
    waits("Role", "engine", "unschedulable", "0 of 3 ready, 2 loading, 1 unschedulable"),
]


def board(events: list[dict[str, Any]]) -> Board:
    found = Board()
    for event in events:
        found.take(event, 1000.0)
    return found


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_no_row_is_wider_than_the_terminal(columns: int) -> None:
    rows = board(EVENTS).rows(columns, 1005.0)
    assert max(len(text) for _, text in rows) <= columns


def test_pods_that_do_the_same_are_one_row_and_time_goes_on() -> None:
    rows = [text for _, text in board(EVENTS).rows(120, 1005.0)]
    assert "  2 pods   loading        1m15s  weights 45%" in rows
    assert "  1 pod    unschedulable  1m45s  of 15 nodes 14 without enough free nvidia.com/gpu, 1 tainted" in rows


def test_a_reason_is_shown_whole_on_a_narrow_terminal() -> None:
    rows = " ".join(text.strip() for _, text in board(EVENTS).rows(80, 1005.0))
    assert QUESTION in rows


def test_no_more_rows_than_the_terminal_has() -> None:
    many = [waits("Pod", f"engine-{number}", "pulling", f"image:{number}") for number in range(50)]
    rows = board(many).rows(80, 1000.0, height=10)
    assert len(rows) == 10
    assert rows[-1][1] == "… 42 more rows"


def test_what_is_ready_leaves_the_table() -> None:
    done = {"event": "ready", "role": "decode", "name": "engine", "detail": "3 of 3"}
    assert [text for _, text in board([*EVENTS, done]).rows(120, 1000.0)][-1] == "decode   3 of 3"


def test_lines_name_one_pod_of_many_and_count_the_others() -> None:
    many = [waits("Pod", f"engine-{number}", "unschedulable", "of 3 nodes 3 tainted") for number in range(8)]
    role = waits("Role", "engine", "unschedulable", "0 of 8 ready, 8 unschedulable", 61)
    lines = WaitLines()
    assert [line for event in [*many, role] for line in lines.of(event)] == [
        "wait          decode      Pod engine-0: unschedulable: of 3 nodes 3 tainted",
        "              decode      0 of 8 ready, 8 unschedulable (for 1m01s)",
    ]


def test_what_a_cluster_says_cannot_move_the_cursor() -> None:
    evil = waits("Pod", "engine-0", "unschedulable", "\x1b[2J\x1b]0;title\x07 gone")
    assert "\x1b" not in "".join(WaitLines().of(evil))
    assert "\x1b" not in "".join(text for _, text in board([evil]).rows(80, 1000.0))


def test_piped_output_has_no_colour_and_other_events_are_told_by_others() -> None:
    stream = io.StringIO()
    with progress.reader(lambda event: [f"other {event['event']}"], stream) as reader:
        for event in [*EVENTS, {"event": "ready", "role": "decode", "name": "engine", "detail": ""}]:
            reader.show(event)
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().splitlines()[-1] == "other ready"
