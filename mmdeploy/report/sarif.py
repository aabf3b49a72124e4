"""Findings as SARIF 2.1.0, which code-scanning pages read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mmdeploy.report.documents import as_json
from mmdeploy.report.findings import release, sentence

_LEVELS = {"error": "error", "warning": "warning", "info": "note", "retired": "none"}


def log(document: Mapping[str, Any], codes: Sequence[Mapping[str, Any]], version: str) -> str:
    """One run. ``codes`` describes at least every code that was found."""
    used = {item["code"] for item in document["findings"]}
    rules = [_rule(code) for code in codes if code["code"] in used]
    places = {rule["id"]: at for at, rule in enumerate(rules)}
    driver = {"name": "mmdeploy lint", "version": version, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "properties": {"judgedAs": release(document["release"])},
        "results": [_result(item, places[item["code"]]) for item in document["findings"]],
    }
    return as_json({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]})


def _rule(code: Mapping[str, Any]) -> dict[str, Any]:
    why = code["why"] or code["title"]
    help_text = "\n\n".join([why, f"Wrong:\n{code['bad']}", f"Right:\n{code['good']}"])
    return {
        "id": code["code"],
        "shortDescription": {"text": code["title"]},
        "fullDescription": {"text": why},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": _LEVELS[code["level"]]},
        "properties": {"tags": [code["group"]], "source": code["source"]},
    }


def _result(item: Mapping[str, Any], rule: int) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": item["line"], "startColumn": item["column"]}
    if item["text"]:
        region["snippet"] = {"text": item["text"]}
    name = "/".join(part for part in (item["subject"], item["path"]) if part)
    identity = "\0".join([item["code"], item["file"], item["subject"], item["path"]])
    return {
        "ruleId": item["code"],
        "ruleIndex": rule,
        "level": _LEVELS[item["level"]],
        "message": {"text": f"{sentence(item)}. Fix: {item['fix']}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": _artifact(item["file"]), "region": region},
                "logicalLocations": [{"fullyQualifiedName": name}],
            }
        ],
        "partialFingerprints": {"mmdeploy/v1": hashlib.sha256(identity.encode()).hexdigest()[:32]},
    }


def _artifact(file: str) -> dict[str, str]:
    path = Path(file)
    if path.is_absolute():
        return {"uri": path.as_uri()}
    return {"uri": quote(path.as_posix().strip("<>")), "uriBaseId": "%SRCROOT%"}
