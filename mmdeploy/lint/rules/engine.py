"""3xx: flags that the engine does not have, and values that it does not take."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from mmdeploy.lint.commands import Flag, NotJsonError, parse_json
from mmdeploy.lint.engines import EngineFacts, facts_of, whole_number
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import subject
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.tables import Row

_TITLES = {"vllm": "vLLM", "sglang": "SGLang"}
_TRUTH = ("true", "false", "0", "1", "yes", "no", "on", "off")


def _own(flag: Flag) -> str:
    """The flag's own name, without the key of a dotted one."""
    return flag.name.partition(".")[0]


def _title(engine: Engine) -> str:
    return f"{_TITLES[engine.kind]} {engine.version}" if engine.version else _TITLES[engine.kind]


def _known(engine: Engine, deployment: Deployment) -> Iterator[tuple[Flag, Row, EngineFacts]]:
    """Flags of an engine that its release has, with their rows."""
    facts = facts_of(deployment.tables, engine)
    for flag in engine.command.flags:
        knowledge = facts.flag(_own(flag), engine.version)
        if knowledge.state == "known" and knowledge.row is not None:
            yield flag, knowledge.row, facts


@rule("MMD301", Level.info, "vllm-flags.csv, sglang-flags.csv")
def unknown_flag(deployment: Deployment) -> Iterator[Found]:
    """A flag that no release read has; told once, however many pods carry it."""
    told = set()
    for engine in deployment.engines:
        facts = facts_of(deployment.tables, engine)
        for flag in engine.command.flags:
            name = _own(flag)
            known = facts.flag(name, engine.version).state != "unknown"
            if flag.name == "-m" or (engine.kind, name) in told or known:
                continue
            told.add((engine.kind, name))
            other = EngineFacts(deployment.tables, "sglang" if engine.kind == "vllm" else "vllm")
            foreign = name.startswith("--") and other.flag(name, None).state == "known"
            near = difflib.get_close_matches(name, facts.flag_names(), n=1, cutoff=0.9)
            message = f"{name} is in no release of {_TITLES[engine.kind]} that the catalog knows"
            fix = "an engine stops on a flag that it does not have: remove it, or ignore this for a build that has it"
            if foreign:
                message = f"{name} is a flag of {_TITLES[other.kind]}, not of {_TITLES[engine.kind]}"
            elif near:
                message, fix = f"{message}; is {near[0]} meant?", f"write {near[0]}"
            # A flag that is one slip away from a real one is no flag of somebody's own build.
            level = Level.warning if foreign else Level.error if near and engine.version is not None else None
            yield Found(engine.pod.document, flag.path, subject(engine), message, fix, level)


@rule("MMD302", Level.error, "vllm-flags.csv, sglang-flags.csv; model-servers.md §1.5")
def flag_of_another_release(deployment: Deployment) -> Iterator[Found]:
    """A flag that the pinned release does not have any more, or not yet."""
    for engine in deployment.engines:
        if engine.version is None:
            continue
        facts = facts_of(deployment.tables, engine)
        for flag in engine.command.flags:
            knowledge = facts.flag(_own(flag), engine.version)
            if knowledge.state not in ("removed", "later"):
                continue
            removed = knowledge.state == "removed"
            when = f"was removed after {knowledge.last}" if removed else f"came with {knowledge.first}"
            instead = facts.notes["flags"]["instead"].get(_own(flag))
            yield Found(
                engine.pod.document, flag.path, subject(engine),
                f"{_own(flag)} {when}; {_title(engine)} stops on an unrecognised argument",
                f"write {instead}" if instead else "remove it, or pin a release that has it",
            )  # fmt: skip


@rule("MMD303", Level.error, "vllm-flags.csv, sglang-flags.csv; engine-tables.md, How to read values")
def wrong_value(deployment: Deployment) -> Iterator[Found]:
    """A value that the flag's parser refuses: not a number, not one of its choices, or any value of a switch."""
    for engine in deployment.engines:
        for flag, row, facts in _known(engine, deployment):
            if "." in flag.name or "$" in "".join(flag.values):
                continue
            problem = _value_problem(flag, row, facts, engine.version)
            if problem is not None:
                message, fix = problem
                level = Level.warning if row["type"] == "bool" and engine.kind == "sglang" else None
                yield Found(engine.pod.document, flag.value_path or flag.path, subject(engine), message, fix, level)


def _value_problem(flag: Flag, row: Row, facts: EngineFacts, at: str | None) -> tuple[str, str] | None:
    kind = facts.type_at(row, at)
    if kind == "bool":
        return _switch_problem(flag)
    if kind not in ("int", "float", "choice"):
        return None
    if flag.value is None:
        return f"{flag.name} has no value", f"give {flag.name} its value"
    if kind == "int":
        return _number_problem(flag, facts)
    if kind == "float":
        return _float_problem(flag)
    choices = facts.choices_at(row, at)
    if not choices or flag.value in choices or flag.value in ("", row["default"]):
        return None
    near = difflib.get_close_matches(flag.value, choices, n=1, cutoff=0.5)
    listed = ", ".join(sorted(choices)) if len(choices) <= 12 else f"{len(choices)} others"
    return f"{flag.name} does not take {flag.value!r}, but {listed}", f"write {near[0] if near else 'one of those'}"


def _switch_problem(flag: Flag) -> tuple[str, str] | None:
    if flag.value is None or (not flag.joined and flag.value.lower() not in _TRUTH):
        return None  # no value, or the positional argument after it
    negative = flag.value.lower() in ("false", "0", "no", "off")
    name = flag.name.removeprefix("--")
    instead = f"--no-{name}" if negative and not name.startswith("no-") else flag.name
    return f"{flag.name} is a switch and takes no value, but is given {flag.value!r}", f"write {instead} alone"


def _number_problem(flag: Flag, facts: EngineFacts) -> tuple[str, str] | None:
    text, flags = flag.value or "", facts.notes["flags"]
    if re.fullmatch(r"[+-]?\d+", text) or text in flags["words"].get(_own(flag), ()):
        return None
    if _own(flag) in flags["suffixed"] and whole_number(text) is not None:
        return None
    return f"{flag.name} takes a whole number, not {text!r}", _plain_number(text)


def _float_problem(flag: Flag) -> tuple[str, str] | None:
    text = flag.value or ""
    try:
        float(text)
    except ValueError:
        return f"{flag.name} takes a plain number, not {text!r}", _plain_number(text)
    return None


def _plain_number(text: str) -> str:
    match = re.match(r"[+-]?\d+(?:\.\d+)?", text)
    return f"write the number without a unit, such as {match[0]}" if match else "write a number"


@rule("MMD304", Level.error, "model-servers.md §1.1, §1.4")
def not_json(deployment: Deployment) -> Iterator[Found]:
    """A JSON flag whose value is not JSON by the time the engine sees it."""
    for engine in deployment.engines:
        for flag, row, facts in _known(engine, deployment):
            if facts.type_at(row, engine.version) != "json" or "." in flag.name:
                continue
            problem = _json_problem(engine, flag, row["flag"] in facts.notes["flags"]["jsonOrText"])
            if problem is not None:
                message, fix = problem
                yield Found(engine.pod.document, flag.value_path or flag.path, subject(engine), message, fix)


def _json_problem(engine: Engine, flag: Flag, or_text: bool) -> tuple[str, str] | None:
    text = (flag.value or "").strip()
    if not text:
        return f"{flag.name} has no value", f"give {flag.name} a JSON object"
    if or_text and not text.startswith(("{", "'", '"')):
        return None
    try:
        json.loads(text)
        return None
    except ValueError:
        pass
    try:
        parse_json(text)
        return None
    except NotJsonError as problem:
        if "$" in text and not text.startswith("'"):
            return None  # what a variable brings cannot be read here
        shown = text if len(text) <= 60 else text[:57] + "..."
        return _json_cause(engine, flag, shown, str(problem).partition(" of ")[0])


def _json_cause(engine: Engine, flag: Flag, text: str, problem: str) -> tuple[str, str]:
    name = flag.name
    if text[0] in "'\"" and text[1:2] in "{[" and not engine.command.shell:
        return (
            f"{name}: the quotes around {text} are part of the value, because no shell takes them away",
            "remove the inner quotes; the YAML string needs only its own",
        )
    if engine.command.shell and re.match(r"\{\s*[A-Za-z_]\w*\s*:?", text) and '"' not in text:
        return (
            f"{name}: the shell takes the double quotes away and leaves {text}, which is not JSON",
            "put the JSON into single quotes inside the shell string",
        )
    if re.fullmatch(r"\w+=\w+(,\w+=\w+)*", text):
        pairs = [pair.split("=") for pair in text.split(",")]
        written = ",".join(f'"{key}":{value}' if value.isdigit() else f'"{key}":"{value}"' for key, value in pairs)
        return (
            f"{name}: {text} is the old key=value form, which is not JSON any more",
            f"write {name}={{{written}}}",
        )
    if re.match(r"[{\[]\s*'", text):
        return f"{name}: JSON strings stand in double quotes, but {text} has single ones", "use double quotes"
    return f"{name} is not JSON: {problem} in {text}", "correct the JSON"


@rule("MMD305", Level.error, "vllm-config-keys.csv; model-servers.md §1.1, §1.4, §0.9")
def wrong_key(deployment: Deployment) -> Iterator[Found]:
    """A key (or its value) inside a JSON flag that the release refuses."""
    for engine in deployment.engines:
        if engine.kind != "vllm":
            continue
        facts = facts_of(deployment.tables, engine)
        for name in {_own(flag): None for flag in engine.command.flags}:
            row = facts.flag(name, engine.version).row
            if row is None or not any(True for _ in facts.keys(row["flag"])):
                continue
            try:
                value = engine.command.json(name)
            except NotJsonError:
                continue
            for key, item in (value or {}).items():
                found = _key_problem(engine, facts, row["flag"], str(key), item)
                if found is not None:
                    message, fix, level = found
                    path = _value_path(engine, name, str(key))
                    yield Found(engine.pod.document, path, subject(engine), message, fix, level)


def _value_path(engine: Engine, name: str, key: str) -> tuple[str | int, ...]:
    flag = engine.command.last(f"{name}.{key}") or engine.command.last(name)
    return (flag.value_path or flag.path) if flag else engine.command.path_of(name)


def _key_problem(
    engine: Engine, facts: EngineFacts, flag: str, key: str, value: object
) -> tuple[str, str, Level | None] | None:
    rows = list(facts.keys(flag))
    if any(row["key"].startswith(key + ".") for row in rows):
        return None
    knowledge = facts.key(flag, key, engine.version)
    if knowledge.state == "unknown":
        if flag not in facts.notes["flags"]["closed"]:
            return None
        near = difflib.get_close_matches(key, [row["key"] for row in rows], n=1, cutoff=0.6)
        level = None if engine.version else Level.warning
        fix = f"write {near[0]}" if near else "remove it; free-form keys belong into the connector's extra config"
        return f"{flag} has no key {key!r}: the engine refuses it", fix, level
    if knowledge.state in ("removed", "later"):
        when = f"removed after {knowledge.last}" if knowledge.state == "removed" else f"there from {knowledge.first} on"
        return f"{flag}: the key {key} is {when}; {_title(engine)} refuses it", f"remove {key}", None
    if knowledge.row is None or facts.type_at(knowledge.row, engine.version) != "choice" or not isinstance(value, str):
        return None
    choices = facts.choices_at(knowledge.row, engine.version)
    if value in choices or "$" in value or not choices:
        return None
    ever = value in facts.choices_at(knowledge.row, None)
    where = f"{_title(engine)} does not know it" if ever else "no release knows it"
    near = difflib.get_close_matches(value, choices, n=1, cutoff=0.4)
    fix = f"write {near[0]}" if near else f"write one of {', '.join(sorted(choices))}"
    return f"{flag}: {key} is {value!r}, but {where}", fix, None
