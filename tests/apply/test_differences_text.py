"""What a person reads: one line a change, folded to the terminal, coloured only where it shows."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest

from mmdeploy.report.differences import text

LONG = (
    "spec.roles[encode].spec.leaderWorkerTemplate.workerTemplate.spec.containers[modelserver]"
    ".args[--ec-transfer-config].ec_connector_extra_config.ec_cpu_bytes"
)


def change(path: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    return {"path": path, "before": before, "after": after, "cause": "render", "lines": [], "manager": ""} | more


def step(verb: str, *changes: dict[str, Any], name: str = "decode", **more: Any) -> dict[str, Any]:
    plain = {"stage": "model-servers", "kind": "Deployment", "name": name, "verb": verb, "changes": list(changes)}
    return plain | {"foreign": [], "managers": [], "immutable": "", "needs": ""} | more


def document(*steps: dict[str, Any], release: dict[str, Any] | None = None) -> dict[str, Any]:
    counts = {verb: sum(item["verb"] == verb for item in steps) for verb in {item["verb"]: 0 for item in steps}}
    different = any(item["verb"] != "unchanged" for item in steps)
    return {"different": different, "counts": counts, "release": release, "objects": list(steps), "notes": []}


class Terminal(io.StringIO):
    """Something that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return monkeypatch


def test_a_change_is_one_line_where_nothing_is_narrow() -> None:
    lines = text(document(step("update", change(LONG, 1, 42949672960)))).splitlines()
    assert f"      {LONG}: 1 → 42949672960" in lines


def test_nothing_is_wider_than_the_terminal(terminal: pytest.MonkeyPatch) -> None:
    drift = change(LONG, 1, 42949672960, cause="drift", manager="kubectl-edit")
    shown = seen(document(step("conflict", drift, needs="--force-conflicts", managers=["kubectl-edit"])))
    plain = re.sub(r"\x1b\[\d+m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert LONG in plain.replace("\n", "").replace(" ", "")


def test_colour_is_whole_and_only_for_terminals(terminal: pytest.MonkeyPatch) -> None:
    drift = document(step("update", change(LONG, 1, 2, cause="drift", manager="kubectl-edit")))
    shown = seen(drift)
    assert shown.count("\x1b[") % 2 == 0
    assert re.search(r"\x1b\[36m  \(drift by\s+kubectl-edit\)\x1b\[0m", shown)
    terminal.setenv("NO_COLOR", "1")
    assert "\x1b" not in seen(drift)


def seen(document: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(Terminal()):
        return text(document)


WORDS = {
    "a new value": (change("a", 1, 2), "a: 1 → 2"),
    "something new": (change("a", None, "x"), "a: added x"),
    "something gone": (change("a", {"b": 1}, None), 'a: removed {"b": 1}'),
    "a bare flag": (change("args[--x]", None, True), "args[--x]: added"),
    "a secret": (change("env[T]", "<masked>", "<masked>"), "env[T]: <masked>, changed"),
    "an empty text": (change("a", "", "b"), 'a: "" → b'),
    "an edit": (change("a", 1, 2, cause="drift", manager="m"), "a: 1 → 2  (drift by m)"),
    "both": (change("a", 1, 2, cause="both", manager="m"), "a: 1 → 2  (drift by m, and a new render)"),
    "a file more": (change("data.f", None, "3 lines", lines=["+a", "+b", "+c"]), "data.f: added, 3 lines"),
    "what may write on the terminal": (change("a", "x", "\x1b[2Jy"), "a: x → "),
}


@pytest.mark.parametrize(("item", "line"), WORDS.values(), ids=WORDS)
def test_words_of_a_change(item: dict[str, Any], line: str) -> None:
    shown = text(document(step("update", item))).splitlines()[2]
    assert shown.startswith(f"      {line}")
    assert "\x1b" not in shown


def test_lines_of_a_text_are_shown_below() -> None:
    item = change("data.notes", "3 lines", "3 lines", lines=[" a", "-b", "+c"])
    assert text(document(step("update", item))).splitlines()[2:6] == [
        "      data.notes:", "         a", "        -b", "        +c",
    ]  # fmt: skip


def test_what_is_the_same_is_only_counted_unless_asked() -> None:
    same = document(step("unchanged"))
    assert text(same) == "nothing differs (1 unchanged)\n"
    assert "= Deployment/decode  unchanged" in text(same, verbose=True)


def test_why_it_is_made_anew_and_what_that_needs() -> None:
    item = step("recreate", immutable="spec.selector cannot be changed once the object is there", needs="--recreate")
    shown = " ".join(text(document(item)).split())
    assert "spec.selector cannot be changed once the object is there: it is deleted and made anew" in shown
    assert "needs --recreate 1 to recreate" in shown


def test_drift_that_stops_an_apply_names_the_option() -> None:
    drift = change("spec.replicas", 3, 1, cause="drift", manager="kubectl")
    assert "put back what was rendered, with --force-conflicts\n" in text(
        document(step("conflict", drift, needs="--force-conflicts"))
    )
    assert "put back what was rendered\n" in text(document(step("update", drift)))
