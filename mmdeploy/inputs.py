"""What a person said, from all the places where it can be said.

Precedence: option, then ``MMDEPLOY_*`` variable, then the guide's own variables (with ``--from-env`` only), then the
spec file. Every value keeps the name of the place it came from, for error messages and ``--explain``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmdeploy import documents
from mmdeploy.documents import KeyPath
from mmdeploy.errors import SpecError, UsageError
from mmdeploy.misfits import kind_of
from mmdeploy.spec import (
    FILE_FIELDS,
    ROLES,
    DeploymentSpec,
    fields_of,
    holds_mapping,
    holds_texts,
    in_words,
    takes_text,
    validate,
)
from mmdeploy.words import nearest

PREFIX = "MMDEPLOY_"
NOT_SPEC = frozenset({"MMDEPLOY_BLUEPRINTS", "MMDEPLOY_TARGETS"})
"""Variables with our prefix that are not fields of the spec."""

GUIDE_VARIABLES: Mapping[str, KeyPath] = {
    "TOPOLOGY": ("topology",),
    "ACCELERATOR_TYPE": ("accelerator",),
    "MODEL_SERVER": ("server",),
    "INFRA_PROVIDER": ("provider",),
    "MODEL": ("model",),
    "GUIDE_NAME": ("name",),
    "NAMESPACE": ("namespace",),
    "MONITORING": ("monitoring",),
}
"""The llm-d guide's shell variables and the fields they mean."""


@dataclass
class Inputs:
    """Values by place in the spec, and where each came from."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    """Guide variables that were taken, for the person to see."""
    unknown: list[str] = field(default_factory=list)
    """``MMDEPLOY_*`` variables that name no field."""
    document: documents.Document | None = None

    def put(self, path: KeyPath, value: Any, origin: str) -> None:
        """Set a value; what stood below the path before is gone."""
        if len(path) > 1:
            self.read_nested(str(path[0]))
        tree = self.values
        for step in path[:-1]:
            below = tree.get(str(step))
            tree[str(step)] = below = dict(below) if isinstance(below, Mapping) else {}
            tree = below
        tree[str(path[-1])] = value
        for known in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[known]
        self.origins[path] = origin

    def origin_of(self, path: KeyPath) -> str:
        """Where the value at ``path``, or part of it, came from: an option, a variable, or ``file:line:column``."""
        below = [known for known in self.origins if known[: len(path)] == path]
        if path and below:
            # It lies on top of what a file says around it.
            return self.origins[path if path in below else below[0]]
        steps = path
        while steps:
            if steps in self.origins:
                return self.origins[steps]
            steps = steps[:-1]
        return self.document.origin(path) if self.document else "the spec"

    def read_nested(self, name: str) -> None:
        """Put the content of a file in the place of its name, in a field that may name one."""
        value = self.values.get(name)
        if name in FILE_FIELDS and isinstance(value, str):
            # A path in a spec file starts at that file.
            in_file = (name,) not in self.origins and self.document is not None and self.document.name != "<stdin>"
            base = Path(self.document.name).parent if in_file and self.document else Path()
            content = _nested(name, value, self.origin_of((name,)), base)
            if name == "estimator" and set(content) == {"estimate"}:
                content = content["estimate"]
            self.values = {**self.values, name: content}

    def spec(self) -> DeploymentSpec:
        """The validated spec. Raises `SpecError`."""
        return validate(self.values, self.origin_of)


def collect(
    *,
    file: str | None,
    options: Mapping[str, tuple[KeyPath, Any]],
    settings: Iterable[str],
    environ: Mapping[str, str],
    from_env: bool,
) -> Inputs:
    """Put everything together.

    ``file`` is a path or ``-``; ``options`` maps an option's name to the field it sets and its value (None: not given);
    ``settings`` are ``--set PATH=VALUE``. Raises `SpecError` and `UsageError` with the origin of what is wrong.
    """
    inputs = Inputs()
    if file is not None:
        _read_file(inputs, file)
    if from_env:
        for variable, path in GUIDE_VARIABLES.items():
            if environ.get(variable):
                inputs.put(path, _typed(path, environ[variable], f"${variable}"), f"${variable}")
                inputs.taken.append(f"{variable}={environ[variable]}")
    _read_variables(inputs, environ)
    for option, (path, value) in options.items():
        if value is not None:
            inputs.put(path, value, option)
    for setting in settings:
        _read_setting(inputs, setting)
    for name in FILE_FIELDS:
        inputs.read_nested(name)
    return inputs


def _read_file(inputs: Inputs, file: str) -> None:
    if file == "-":
        document = documents.parse(documents.read_stdin(), "<stdin>")
    else:
        document = documents.read(Path(file))
    if not isinstance(document.value, dict):
        found = "is empty" if document.value is None else "a spec is a mapping of fields"
        raise SpecError(found, origin=f"{document.name}:1:1", next_step="mmdeploy schema lists every field")
    inputs.document = document
    inputs.values = document.value


def variables() -> dict[str, KeyPath]:
    """``MMDEPLOY_*`` variable → the field that it sets."""
    return {
        PREFIX
        + "_".join(
            re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", str(step)).upper() for step in path
        ): path
        for path in fields_of()
    }


def reference(options: Mapping[str, KeyPath]) -> list[dict[str, Any]]:
    """Every field of the spec by section of the file, with the variable and the option that set it as well.

    ``options`` maps an option to its field. The roles have the same fields and share a section.
    """
    variable_of = {path: name for name, path in variables().items()}
    option_of = {path: option for option, path in options.items()}
    sections: dict[str, dict[str, Any]] = {}
    for path, known in fields_of().items():
        top = str(path[0])
        if top in ROLES[1:]:
            continue
        title = "top level" if len(path) == 1 else ", ".join(ROLES) if top == ROLES[0] else top
        name, variable = ".".join(map(str, path)), variable_of[path]
        if top == ROLES[0]:
            name, variable = name.replace(top, "ROLE", 1), variable.replace(top.upper(), "ROLE", 1)
        section = sections.setdefault(title, {"title": title, "means": _meaning(title, top), "rows": []})
        section["rows"].append(
            {
                "field": f"`{name}`",
                "takes": in_words(str(path[-1]), known),
                "variable": f"`{variable}`",
                "option": f"`{option_of[path]}`" if path in option_of else None,
                "means": known.description,
            }
        )
    return list(sections.values())


def _meaning(title: str, top: str) -> str:
    if title == "top level":
        return "The deployment as a whole."
    if top in ROLES:
        return f"One mapping a role: for `ROLE` write {', '.join(f'`{role}`' for role in ROLES)}."
    return str(DeploymentSpec.model_fields[top].description)


def _read_variables(inputs: Inputs, environ: Mapping[str, str]) -> None:
    # An empty variable says nothing, as for the guide's: that is how a shell script takes a setting back.
    said = {n: value for n, value in environ.items() if n.startswith(PREFIX) and n not in NOT_SPEC and value}
    if not said:
        return
    known = variables()
    for name, value in sorted(said.items()):
        if name in known:
            inputs.put(known[name], _typed(known[name], value, f"${name}"), f"${name}")
        else:
            near = nearest(name, list(known), 1)
            inputs.unknown.append(f"{name} names no field of the spec" + (f" (nearest: {near[0]})" if near else ""))


def _read_setting(inputs: Inputs, setting: str) -> None:
    text, equals, value = _split(setting)
    if not equals or not text:
        raise UsageError(f"{setting!r} is not PATH=VALUE", origin="--set", next_step="--set encode.replicas=4")
    path: KeyPath = tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", text))
    if _field_at(path) is None:
        names = [".".join(map(str, known)) for known in fields_of()]
        raise UsageError(
            f"{'.'.join(map(str, path))} is no field of the spec",
            origin=f"--set {text}",
            nearest=nearest(text, names),
            next_step="mmdeploy schema lists every field",
        )
    inputs.put(path, _typed(path, value, f"--set {text}"), f"--set {text}")


def _split(setting: str) -> tuple[str, str, str]:
    path, equals, value = setting.partition("=")
    return path.strip(), equals, value


def _field_at(path: KeyPath) -> Any:
    """The field at ``path``, or the field with a free mapping that ``path`` reaches into."""
    fields = fields_of()
    for length in range(len(path), 0, -1):
        if path[:length] in fields:
            found = fields[path[:length]]
            return found if length == len(path) or holds_mapping(found) else None
    if any(known[: len(path)] == path for known in fields):
        return ...
    return None


def _typed(path: KeyPath, text: str, origin: str) -> Any:
    """Text from an option or variable as the field wants it: as it is, or read as YAML (numbers, lists, mappings)."""
    fields = fields_of()
    there, around = fields.get(path), fields.get(path[:-1])
    text_map = around is not None and holds_texts(around) and not text.startswith("{")
    if text_map or (there is not None and takes_text(there)):
        return text
    return documents.parse(text, origin).value


def _nested(name: str, value: str, origin: str, base: Path) -> dict[str, Any]:
    text = value.strip()
    inline = not text or text[0] in "{[" or re.match(r"[A-Za-z]+:(\s|$)", text) is not None
    path = base / value
    document = documents.parse(value, origin) if inline else documents.read(path, said_at=origin)
    if not isinstance(document.value, dict):
        raise SpecError(
            f"{name} must be a mapping" + (f", not {kind_of(document.value)}" if inline else ""),
            origin=origin if inline else str(path),
            next_step=f"give {name} as a mapping, or as the name of a file that holds one",
        )
    return document.value


def json_mapping(text: str | None, option: str) -> dict[str, Any] | None:
    """An option's JSON object. Raises `UsageError` for anything else."""
    if text is None:
        return None
    example = f"write a JSON object: {option} '{{\"max_pixels\": 1000000}}'"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        raise UsageError(
            f"{text!r} is not JSON: {problem.msg}", origin=f"{option}, character {problem.pos + 1}", next_step=example
        ) from None
    except (RecursionError, ValueError):
        value = None
    if value is None or text.count("[") + text.count("{") > documents.DEPTH_LIMIT:
        # JSON is YAML, whose reader says where something is too deep or too large.
        documents.parse(text, option, UsageError)
    if not isinstance(value, dict):
        raise UsageError(f"{text!r} is not a JSON object", origin=option, next_step=example)
    return value
