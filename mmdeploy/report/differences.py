"""What apply would change, for people: the document of ``mmdeploy diff -o json`` as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmdeploy.report.findings import clean
from mmdeploy.report.terminal import style, width

Data = Mapping[str, Any]
_SIGNS: Final = {"create": "+", "update": "~", "unchanged": "=", "recreate": "!", "adopt": "!", "conflict": "!",
                 "remove": "-"}  # fmt: skip
_COLOURS: Final = {"+": "green", "~": "yellow", "!": "red", "-": "red", "=": "dim"}
_WORDS: Final = {"create": "to create", "update": "to update", "unchanged": "unchanged", "recreate": "to recreate",
                 "adopt": "to take over", "conflict": "in conflict", "remove": "to remove"}  # fmt: skip
_CAUSES: Final = frozenset({"drift", "both"})
_LEGEND: Final = "drift: somebody changed the live object; apply would put back what was rendered"
_RECREATED: Final = "it is deleted and made anew, and its pods stop before new ones start"
_WHY: Final = {
    "--adopt": "mmdeploy did not make it",
    "--recreate": _RECREATED,
    "--force-conflicts": "takes the fields over",
    "--hf-token-from": "the model servers read their token from it",
}


def text(document: Data, *, verbose: bool = False) -> str:
    """Stage by stage, object by object, one line a change; then a summary. ``verbose`` also lists what is the same."""
    blocks = []
    release = document["release"]
    stages = list(dict.fromkeys(step["stage"] for step in document["objects"]))
    before = [stage for stage in stages if stage in ("namespace", "secret")]
    for stage in [*before, "router", *(stage for stage in stages if stage not in before)]:
        steps = [step for step in document["objects"] if step["stage"] == stage]
        lines = [line for step in steps if verbose or _shown(step) for line in _step(step, verbose)]
        if stage == "router" and release and (verbose or release["verb"] != "unchanged" or release["needs"]):
            lines = [*_release(release, verbose), *lines]
        if lines:
            blocks.append("\n".join([style(stage, "bold"), *lines]))
    return "\n\n".join([*blocks, "\n".join(_summary(document))]) + "\n"


def _shown(step: Data) -> bool:
    return bool(step["verb"] != "unchanged" or step["foreign"])


def _head(verb: str, title: str, more: str = "", indent: str = "  ") -> str:
    sign = _SIGNS[verb]
    said = f"{indent}{style(sign, _COLOURS[sign])} {clean(title)}  {style(verb, _COLOURS[sign])}"
    return f"{said}{f'  {more}' if more else ''}"


def _step(step: Data, verbose: bool, indent: str = "  ") -> Iterator[str]:
    yield _head(step["verb"], f"{step['kind']}/{step['name']}", indent=indent)
    inner = indent + "    "
    if step["immutable"]:
        yield folded(f"{step['immutable']}: {_RECREATED}", inner)
    for change in step["changes"]:
        yield from _change(change, inner, verbose)
    silent = [name for name in step["managers"] if name not in {change["manager"] for change in step["changes"]}]
    if silent and step["changes"]:
        yield folded(f"set by {', '.join(silent)}", inner)
    if step["needs"]:
        why = "" if step["immutable"] and step["needs"] == "--recreate" else f": {_WHY[step['needs']]}"
        yield folded(style(f"needs {step['needs']}", "red") + why, inner)
    for change in step["foreign"]:
        said = f"{_value(change['after'])} (by {change['manager']})"
        yield folded(f": {clean(said)}", inner + style("left alone: ", "dim"), inner + "  ", clean(change["path"]))


def _release(release: Data, verbose: bool) -> Iterator[str]:
    yield _head(release["verb"], f"Helm release {release['name']}")
    inner = "      "
    if release["deployed"]:
        yield folded(f"{release['deployed']} is {release['status']}; apply installs {release['chart']}", inner)
    else:
        yield folded(f"chart {release['chart']}", inner)
    if verbose or not release["objects"]:
        for change in release["values"]:
            yield from _change({**change, "path": f"values: {change['path']}"}, inner, verbose)
    for step in release["objects"]:
        yield from _step(step, verbose, "      ")
    for name in release["restart"]:
        yield folded(f"Deployment/{name} reads this only when it starts: apply starts its pods anew", inner)
    if release["needs"]:
        yield folded(style(f"needs {release['needs']}", "red") + ": mmdeploy did not install it", inner)
    for note in release["notes"]:
        yield folded(f"note: {note}", inner)


def _change(change: Data, indent: str, verbose: bool) -> Iterator[str]:
    path, lines = clean(change["path"]), change["lines"]
    told = style(f"  ({_cause(change)})", "cyan") if change["cause"] in _CAUSES else ""
    before, after = change["before"], change["after"]
    if before is None or after is None:
        word, value = ("added", after) if before is None else ("removed", before)
        said = f"{word}, {value}" if lines else word if value is True else f"{word} {_value(value)}"
    elif lines:
        said = ""
    else:
        said = f"{_value(before)} → {_value(after)}" if before != after else f"{_value(after)}, changed"
    yield folded(f": {clean(said)}{told}" if said else f":{told}", indent, path=path)
    if lines and (verbose or not said):
        for line in lines:
            colour = {"+": "green", "-": "red"}.get(line[:1], "dim")
            yield f"{indent}  {style(clean(line), colour)}"


def _cause(change: Data) -> str:
    by = f" by {change['manager']}" if change["manager"] else ""
    return f"drift{by}{', and a new render' if change['cause'] == 'both' else ''}"


def _value(value: Any) -> str:
    if isinstance(value, str) and value and value.isprintable() and value == value.strip():
        return value
    return json.dumps(value, ensure_ascii=False)


def _summary(document: Data) -> Iterator[str]:
    for note in document["notes"]:
        yield folded(f"note: {note}", "", "      ")
    changes = [change for step in _all_steps(document) for change in step["changes"]]
    if any(change["cause"] in _CAUSES for change in changes):
        clashes = any(step["needs"] == "--force-conflicts" for step in _all_steps(document))
        yield folded(f"{_LEGEND}{', with --force-conflicts' if clashes else ''}", "")
    counts = [f"{count} {_WORDS[verb]}" for verb, count in document["counts"].items()]
    release = document["release"]
    if release:
        counts.append(f"router {_WORDS[release['verb']]}")
    if document["different"]:
        yield style(folded(", ".join(counts), ""), "yellow")
    else:
        yield style("nothing differs", "green") + f" ({', '.join(counts)})"


def _all_steps(document: Data) -> Sequence[Data]:
    release = document["release"]
    return [*document["objects"], *(release["objects"] if release else ())]


_JOINTS: Final = re.compile(r"(?=\.[A-Za-z])|(?=\[)")
"""Where a path may be broken."""


def folded(said: str, indent: str, hanging: str | None = None, path: str = "") -> str:
    """A path and what is said of it on one line, or on several where the terminal is narrower."""
    rest = indent + "  " if hanging is None else hanging
    room = max(40, width())
    lines, line = [], indent
    for piece in [*(_JOINTS.split(path) if path else ()), *re.split(r"(?<= )", said)]:
        if len(_bare(line)) + len(_bare(piece).rstrip()) > room and _bare(line).strip():
            lines.append(line.rstrip())
            line = rest
        line += piece
    return "\n".join([*lines, line.rstrip()])


def _bare(value: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", value)
