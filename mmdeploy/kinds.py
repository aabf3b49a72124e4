"""Kinds of values in a spec: what each takes, what becomes of it, and its JSON Schema.

A kind takes what people write (``cpu: 8``), gives what Kubernetes wants (the text ``8``), and its JSON Schema accepts
exactly what it takes, so that an editor and the program say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

_UNIT = "(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_QUANTITY = rf"^[0-9]+(\.[0-9]+)?{_UNIT}"
_AMOUNT = rf"^(0*[1-9][0-9]*(\.[0-9]+)?|0+\.[0-9]*[1-9][0-9]*){_UNIT}"
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_PRINTABLE = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
_WORD = r"^[A-Za-z0-9]([-A-Za-z0-9._+]*[A-Za-z0-9])?$"
_ENV_NAME = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
_REPLICAS_LIMIT = (1 << 31) - 1
"""Kubernetes keeps replicas in 32 bits."""

PATTERN_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("cpuRequest", "memoryRequest"), "Kubernetes quantity (8, 500m, 128Gi)"),
    **dict.fromkeys(
        ("cpu", "memory", "shm", "ecCacheBytes", "storeMaxPendingBytes", "storeReadBufferBytes"),
        "Kubernetes quantity above zero (8, 500m, 128Gi)",
    ),
    **dict.fromkeys(
        ("name", "namePrefix", "namespace", "priorityClassName", "serviceAccountName", "claimName"),
        "Kubernetes name (lower-case letters, digits and '-')",
    ),
    "requestTimeout": "duration (30s, 5m, 0s)",
    "key": "key of a Secret (letters, digits, '-', '_' and '.')",
    **dict.fromkeys(("routerChart", "inferenceExtension", "gatewayApi", "leaderWorkerSet"), "version (v0.10.0, 1.2)"),
}
"""Fields whose text has a form, in a person's words."""


def _text(value: Any) -> Any:
    """Numbers become text where Kubernetes wants text: people write ``cpu: 8``; YAML reads ``0.9`` as a number."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it is read as a number that is not finite; put it in quotes where it is text")
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _exact_text(value: Any) -> Any:
    """Whole numbers become text; others would lose digits (``0.10`` is read as 0.1), so they must be quoted."""
    if isinstance(value, float):
        raise ValueError("it is read as a number and loses digits; put it in quotes")
    return _text(value)


def _env_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _without_nulls(value) if isinstance(value, dict) else _text(value)


def _texts(value: Any) -> Any:
    return {k: _env_text(v) for k, v in value.items()} if isinstance(value, dict) else value


def _whole(value: Any) -> Any:
    # Python counts with booleans, and pydantic reads digits in quotes; Kubernetes refuses both.
    if isinstance(value, bool | str):
        raise PydanticCustomError("int_type", "it must be a whole number")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool | str) or (isinstance(value, float) and not math.isfinite(value)):
        raise PydanticCustomError("float_type", "it must be a number")
    return value


def _said(value: Any) -> Any:
    """What a free value says; None for one that is empty, which is how a template leaves a field out."""
    said = _without_nulls(value)
    return None if said in ({}, []) else said


def _without_nulls(value: Any) -> Any:
    """Without keys that hold null: Kubernetes and the router read those as left out, and a null merged as a layer's
    would take a value away. Numbers that JSON has no words for are refused."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it holds a number that is not finite (.inf or .nan), which JSON cannot say")
    return value


def _not_empty(value: Any) -> Any:
    return None if value in ({}, []) else value


Quantity = Annotated[
    str,
    BeforeValidator(_text),
    StringConstraints(pattern=_QUANTITY),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": _QUANTITY}, {"type": "number", "minimum": 0}]}),
]
Amount = Annotated[
    str,
    BeforeValidator(_text),
    StringConstraints(pattern=_AMOUNT),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": _AMOUNT}, {"type": "number", "exclusiveMinimum": 0}]}),
]
"""A quantity above zero: of a limit or a buffer that is there at all."""

Name = Annotated[str, StringConstraints(pattern=_NAME, max_length=63)]
ReleaseName = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
"""The router's Services are named after it, and a Service's name starts with a letter (RFC 1035)."""

SecretKey = Annotated[
    str, BeforeValidator(_exact_text), StringConstraints(pattern=r"^[-._A-Za-z0-9]+$", max_length=253)
]
"""A key of a Secret; it also stands in commands that people copy, so nothing else may be in it."""

Version = Annotated[
    str,
    BeforeValidator(_exact_text),
    StringConstraints(pattern=_WORD),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": _WORD}, {"type": "integer"}]}),
]

NamePrefix = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=54)]
Duration = Annotated[str, StringConstraints(pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")]
Text = Annotated[
    str,
    BeforeValidator(_exact_text),
    StringConstraints(min_length=1, pattern=_PRINTABLE),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1, "pattern": _PRINTABLE}, {"type": "integer"}]}),
]
Texts = Annotated[list[Text] | None, BeforeValidator(_not_empty)]
TextMap = Annotated[
    dict[str, str],
    BeforeValidator(_texts),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
EnvName = Annotated[str, StringConstraints(pattern=_ENV_NAME)]
EnvMap = Annotated[
    dict[EnvName, str | dict[str, Any]],
    BeforeValidator(_texts),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": _ENV_NAME},
            "additionalProperties": {"type": ["string", "number", "boolean", "object"]},
        }
    ),
]
SomeTexts = Annotated[TextMap | None, BeforeValidator(_not_empty)]
SomeEnv = Annotated[EnvMap | None, BeforeValidator(_not_empty)]
ProcessorConfig = Annotated[dict[str, Any] | None, BeforeValidator(_without_nulls)]
"""A processor's file; one that is empty is a mistake, and kept so that it can be told."""

FreeMapping = Annotated[dict[str, Any] | None, BeforeValidator(_said)]
FreeMappings = Annotated[list[dict[str, Any]] | None, BeforeValidator(_said)]

Replicas = Annotated[int, Field(ge=1, le=_REPLICAS_LIMIT), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Milliseconds = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
Gibibytes = Annotated[
    int | float, Field(ge=0), BeforeValidator(_number), WithJsonSchema({"type": "number", "minimum": 0})
]
Share = Annotated[
    int | float,
    Field(gt=0, le=1),
    BeforeValidator(_number),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
]
"""A part of a whole, above 0 and up to 1."""
