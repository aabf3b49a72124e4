"""The part of SARIF 2.1.0 that lint writes, as a JSON Schema: names, types and words as the standard has them."""

from __future__ import annotations

from typing import Any


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_MESSAGE = _object("text", text=_TEXT)
_COUNT = {"type": "integer", "minimum": 1}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_BAG = {"type": "object"}

_RULE = _object(
    "id",
    id=_TEXT,
    shortDescription=_MESSAGE,
    fullDescription=_MESSAGE,
    help=_MESSAGE,
    defaultConfiguration=_object(level=_LEVEL),
    properties=_BAG,
)
_REGION = _object("startLine", startLine=_COUNT, startColumn=_COUNT, snippet=_object("text", text=_TEXT))
_ARTIFACT = _object("uri", uri={"type": "string", "format": "uri-reference"}, uriBaseId=_TEXT)
_LOCATION = _object(
    physicalLocation=_object(artifactLocation=_ARTIFACT, region=_REGION),
    logicalLocations={"type": "array", "items": _object(fullyQualifiedName=_TEXT)},
)
_RESULT = _object(
    "message",
    ruleId=_TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=_LEVEL,
    message=_MESSAGE,
    locations={"type": "array", "items": _LOCATION},
    partialFingerprints={"type": "object", "additionalProperties": _TEXT},
)
_DRIVER = _object("name", name=_TEXT, version=_TEXT, rules={"type": "array", "items": _RULE, "uniqueItems": True})
_RUN = _object(
    "tool",
    tool=_object("driver", driver=_DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations={"type": "array", "items": _object("executionSuccessful", executionSuccessful={"type": "boolean"})},
    properties=_BAG,
    results={"type": "array", "items": _RESULT},
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        "version runs",
        version={"const": "2.1.0"},
        runs={"type": "array", "items": _RUN, "minItems": 1},
        **{"$schema": {"type": "string", "format": "uri"}},
    ),
}
