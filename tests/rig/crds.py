"""The real custom resource definitions, from ../shared/crds beside this checkout; none of them is copied here."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rig.api import Api, RefusedError, wait

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "crds"
_ROOT = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

# Of the two forms of the workload kinds, the one whose fields include the other's.
FILES = (
    "disaggregatedsetrolescalers",
    "disaggregatedsets-groupidentity",
    "gateways",
    "httproutes",
    "inferencemodelrewrites",
    "inferenceobjectives",
    "inferencepools",
    "leaderworkersets-groupidentity",
    "podmonitors",
    "servicemonitors",
)


def unavailable() -> str | None:
    """Why there are none, or nothing when they are all here."""
    absent = [name for name in FILES if not (FOLDER / f"{name}.yaml").exists()]
    return f"../shared/crds beside this checkout lacks {', '.join(absent)}" if absent else None


def install(api: Api, *files: str) -> None:
    """Install some (all when none is named), and wait until they are served. What is there already stays."""
    names = [_create(api, file) for file in files or FILES]
    for name in names:
        wait(f"{name} is served", lambda name=name: _served(api, name))


def remove(api: Api, file: str) -> None:
    """Take one away, with all its objects."""
    name = _name(_text(file))
    api.delete(f"{_ROOT}/{name}")
    wait(f"{name} is gone", lambda: api.find(f"{_ROOT}/{name}") is None)


def _create(api: Api, file: str) -> str:
    # As the file says it: the large ones take seconds to read and write in Python. And not applied, since the record
    # of who owns which field would make them too large for etcd.
    text = _text(file)
    try:
        api.request("POST", _ROOT, text, "application/yaml")
    except RefusedError as refused:
        if refused.status != 409:
            raise
    return _name(text)


def _served(api: Api, name: str) -> bool:
    # Asked of discovery: the definitions themselves are up to a megabyte and a half.
    plural, _, group = name.partition(".")
    found = api.find(f"/apis/{group}")
    served = api.find(f"/apis/{found['preferredVersion']['groupVersion']}") if found else None
    return bool(served) and any(each["name"] == plural for each in served["resources"])


def _text(file: str) -> bytes:
    return (FOLDER / f"{file}.yaml").read_bytes()


def _name(text: bytes) -> str:
    found = re.search(rb"^  name: (\S+)$", text, re.MULTILINE)
    assert found
    return found[1].decode()
