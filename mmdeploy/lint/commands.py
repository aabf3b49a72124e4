"""Command lines of containers, in every spelling that engines, sidecar and endpoint picker accept.

``--flag=value`` and ``--flag value``, underscores for dashes, dotted JSON keys, ``vllm serve`` and ``python -m …``,
shell strings, ``$(VAR)`` as Kubernetes expands it and ``$VAR`` as a shell does.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.source import InText, dig

_FLAG = re.compile(r"^--?[A-Za-z]")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_REDIRECTION = re.compile(r"^(?:\||&|\d*>.*|<.*)$")
"""Where a command ends for a shell: a pipe, the background, a redirection."""
_COMMANDS = re.compile(r"(?P<command>.*?)(?:\n|;|&&|\|\||\Z)", re.DOTALL)
_PROGRAMS = re.compile(r"vllm|sglang|pd-sidecar|epp")
_SUFFIXED = re.compile(r"(?<=[:\s\[,])(\d+(?:\.\d+)?)([kKmMgGtT])(?=\s*[,}\]])")
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Flag:
    """One flag as it was given. ``path`` leads to the argument in the document; ``inside`` is set for shell strings."""

    name: str
    """With dashes, without a negation's ``no-``… as written otherwise: ``--mm-encoder-only``."""
    value: str | None
    path: KeyPath
    spelling: str
    values: tuple[str, ...] = ()
    """Every value, for flags that take several."""
    value_path: KeyPath = ()
    """Leads to the first value: the argument after the flag, or the flag's own."""
    joined: bool = False
    """Whether the value stands behind an equals sign."""


class NotJsonError(Exception):
    """A JSON flag's value does not parse; ``str`` says why."""


@dataclass
class Command:
    """A parsed command line."""

    words: list[tuple[str, KeyPath]]
    """Words before the first flag: programs, subcommands and positionals."""
    flags: list[Flag]
    shell: bool
    """Whether a shell splits the words."""
    unknown: list[str] = field(default_factory=list)
    """Variables that stand in the command and that nothing defines."""
    _objects: dict[str, dict[str, Any] | NotJsonError | None] = field(default_factory=dict, repr=False)

    @cached_property
    def by_name(self) -> dict[str, list[Flag]]:
        """Flags by name, in order."""
        found: dict[str, list[Flag]] = {}
        for flag in self.flags:
            found.setdefault(flag.name, []).append(flag)
        return found

    def last(self, *names: str) -> Flag | None:
        """The flag that wins among several spellings of one."""
        found = [flag for name in names for flag in self.by_name.get(name, ())]
        return max(found, key=self.flags.index) if found else None

    def value(self, *names: str) -> str | None:
        """The value of `last`."""
        flag = self.last(*names)
        return flag.value if flag else None

    def on(self, name: str, default: bool = False) -> bool:
        """Whether a two-way flag is on: ``--name`` or ``--no-name``, the last one wins."""
        flag = self.last(name, "--no-" + name.removeprefix("--"), "--disable-" + name.removeprefix("--enable-"))
        return default if flag is None else flag.name == name

    def integer(self, *names: str) -> int | None:
        """The value of `last` as a whole number, where it is one."""
        value = self.value(*names)
        return int(value) if value is not None and re.fullmatch(r"\d+", value) else None

    def json(self, name: str) -> dict[str, Any] | None:
        """A JSON flag's object, its dotted keys (``--name.key value``) merged in; None where the flag is not there.

        The object is read once and shared: do not change it. Raises `NotJsonError` for a value that is no JSON object.
        """
        if name not in self._objects:
            try:
                self._objects[name] = self._object(name)
            except NotJsonError as problem:
                self._objects[name] = problem
        found = self._objects[name]
        if isinstance(found, NotJsonError):
            raise found
        return found

    def _object(self, name: str) -> dict[str, Any] | None:
        whole = self.last(name)
        result: dict[str, Any] = {}
        if whole is not None:
            result.update(parse_json(whole.value or ""))
        dotted = [flag for flag in self.flags if flag.name.startswith(name + ".")]
        for flag in dotted:
            keys = flag.name[len(name) + 1 :].replace("-", "_").split(".")
            _set(result, keys, _scalar(flag.value))
        return result if whole is not None or dotted else None

    def path_of(self, name: str) -> KeyPath:
        """Where a flag (or a dotted key of it) stands; the whole command where it does not."""
        flag = self.last(name) or next((flag for flag in self.flags if flag.name.startswith(name + ".")), None)
        return flag.path if flag else (self.words[0][1][:-1] if self.words else ())


def parse_json(text: str) -> dict[str, Any]:
    """A JSON object, with vLLM's ``16G`` for numbers allowed. Raises `NotJsonError`."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        widened = _SUFFIXED.sub(lambda match: str(int(float(match[1]) * _SUFFIXES[match[2]])), text)
        try:
            value = json.loads(widened)
        except json.JSONDecodeError:
            raise NotJsonError(f"{problem.msg} at character {problem.pos + 1} of {text!r}") from None
    if not isinstance(value, dict):
        raise NotJsonError(f"{text!r} is not a JSON object")
    return value


def repeated_keys(text: str) -> list[str]:
    """Keys that a mapping in a JSON text has twice: the last one counts. A text that is no JSON has none."""
    found: list[str] = []

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        found.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)
        return dict(pairs)

    with contextlib.suppress(json.JSONDecodeError, RecursionError):
        json.loads(text, object_pairs_hook=read)
        return found
    return []


def _scalar(text: str | None) -> Any:
    if text is None:
        return True
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _set(tree: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    for key in keys[:-1]:
        below = tree.setdefault(key, {})
        tree = below if isinstance(below, dict) else {}
    tree[keys[-1]] = value


def parse(container: Mapping[str, Any], path: KeyPath) -> Command:
    """The command line of a container; ``path`` leads to the container in its document."""
    environment = _environment(container)
    unknown: list[str] = []
    words: list[tuple[str, KeyPath]] = []
    for part in ("command", "args"):
        items = container.get(part)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            words.append((_expand_kubernetes(str(item), environment, unknown), (*path, part, index)))
    script = _script_at(words)
    if script is not None:
        text, at = words[script]
        words = list(_shell_words(text, at, environment, exact=dig(container, at[len(path) :]) == text))
    command = _parse_words(words, shell=script is not None)
    command.unknown = unknown
    return command


def _environment(container: Mapping[str, Any]) -> dict[str, str | None]:
    """Variables by name; None where the value is only known on the cluster."""
    variables: dict[str, str | None] = {}
    items = container.get("env")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("name"), str):
            value = item.get("value")
            variables[item["name"]] = str(value) if value is not None else None if "valueFrom" in item else ""
    return variables


def _expand_kubernetes(text: str, environment: Mapping[str, str | None], unknown: list[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environment:
            unknown.append(name)
        value = environment.get(name)
        return match[0] if value is None else value

    return re.sub(r"(?<!\$)\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", replace, text)


def _script_at(words: Sequence[tuple[str, KeyPath]]) -> int | None:
    """Position of the script in ``[bash, -lc, SCRIPT]``; None without a shell."""
    for index, (word, _) in enumerate(words[:-1]):
        if word.rsplit("/", 1)[-1] in _SHELLS:
            for at in range(index + 1, len(words) - 1):
                option = words[at][0]
                if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option):
                    return at + 1
                if not option.startswith("-"):
                    return None
        if index > 2:
            return None
    return None


def _shell_words(
    script: str, path: KeyPath, environment: Mapping[str, str | None], exact: bool
) -> Iterator[tuple[str, KeyPath]]:
    """Words of the script's command that starts an engine (or of its last command), each with its place in the script.

    ``exact`` says that the script stands in the document letter by letter.
    """
    protected = _protect(script.replace("\\\n", "  "))  # as long as the script, so that places stay
    lines = [found for found in _COMMANDS.finditer(protected) if found["command"].strip()]
    chosen = next((line for line in lines if _PROGRAMS.search(line["command"])), lines[-1] if lines else None)
    if chosen is None:
        return
    for word, at in _split(_unprotect(chosen["command"])):
        if _REDIRECTION.match(word):
            break
        if word == "exec" or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", word):
            continue
        yield _expand_shell(word, environment), (*path[:-1], _place(script, chosen.start() + at, path, exact))


def _place(script: str, at: int, path: KeyPath, exact: bool) -> InText:
    step = path[-1]
    return InText(int(step), script.count("\n", 0, at), at - script.rfind("\n", 0, at) - 1 if exact else 0)


def _split(line: str) -> list[tuple[str, int]]:
    """Words of a command as a shell splits it, and where each begins; between blanks where quotes do not match."""
    text = io.StringIO(line)
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split = True
    words, at = [], 0
    try:
        while (word := lexer.get_token()) is not None:
            words.append((word, at + len(line[at:]) - len(line[at:].lstrip())))
            at = text.tell()
    except ValueError:
        return [(found[0], found.start()) for found in re.finditer(r"\S+", line)]
    return words


def _protect(text: str) -> str:
    """Hide separators that stand inside quotes."""
    return re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", lambda m: m[0].translate(_HIDE), text)


_HIDE = {ord("\n"): "\ue000", ord(";"): "\ue001", ord("&"): "\ue002", ord("|"): "\ue003"}
_SHOW = {ord(hidden): chr(plain) for plain, hidden in _HIDE.items()}


def _unprotect(text: str) -> str:
    return text.translate(_SHOW)


def _expand_shell(word: str, environment: Mapping[str, str | None]) -> str:
    def replace(match: re.Match[str]) -> str:
        value = environment.get(match[1] or match[2])
        return match[0] if value is None else value

    return re.sub(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))", replace, word)


def _parse_words(words: Sequence[tuple[str, KeyPath]], shell: bool) -> Command:
    command = Command([], [], shell)
    index = 0
    while index < len(words):
        word, path = words[index]
        if not _FLAG.match(word) or (word == "-m" and not command.flags):
            command.words.append((word, path))
            index += 1
            continue
        name, equals, value = word.partition("=")
        values = [value] if equals else []
        at = index + 1
        while not equals and at < len(words) and not _FLAG.match(words[at][0]):
            values.append(words[at][0])
            at += 1
        beside = words[index + 1][1] if values and not equals else path
        first = values[0] if values else None
        command.flags.append(Flag(_normal(name), first, path, name, tuple(values), beside, bool(equals)))
        index = at
    return command


def _normal(name: str) -> str:
    """Dashes for underscores in the flag's own name; keys after a dot keep theirs."""
    flag, dot, key = name.partition(".")
    return flag.replace("_", "-") + dot + key
