"""How embeddings are to get from encode pods to their consumers: what a bundle says, and what engines log of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.intended import Intended
    from mmdeploy.lint.pods import Pod

LONGEST_LINE = 300


def read(meant: Intended) -> dict[str, dict[str, Any]]:
    """By role: ``connector``, ``ecRole`` and ``extra`` of the engine's ``--ec-transfer-config``, ``version`` of its
    image where that says one, ``kv`` its KV connector, and ``sidecar`` the ``--ec-connector`` of the sidecar before it.
    """
    from mmdeploy.lint.pods import pods_of
    from mmdeploy.lint.source import Document

    found: dict[str, dict[str, Any]] = {}
    for item in meant.workloads:
        document = Document(file=str(item["metadata"]["name"]), index=0, value=dict(item), composed=None, text="")
        for pod in pods_of(document):
            found.setdefault(pod.role or "decode", _said(pod))
    return found


def live(pods: Mapping[str, Pod]) -> dict[str, dict[str, Any]]:
    """The same, of one running pod a role."""
    return {role: _said(pod) for role, pod in pods.items()}


def _said(pod: Pod) -> dict[str, Any]:
    engine, sidecar = pod.engine, pod.sidecar
    return {
        "connector": engine.ec_connector if engine else None,
        "ecRole": engine.ec_role if engine else None,
        "extra": dict(engine.ec_extra) if engine else {},
        "version": engine.version if engine else None,
        "kv": (engine.kv or {}).get("kv_connector") if engine else None,
        "sidecar": sidecar.command.value("--ec-connector") if sidecar else None,
    }


@dataclass(frozen=True)
class Event:
    """A line of an engine's log that tells of a transfer."""

    name: str
    """A key of ``embeddings.logs`` in ``catalog/metrics.yaml``."""
    digest: str
    """The item's hash; empty where the line has none."""
    text: str


class Logs:
    """What lines of engines' logs mean: ``embeddings`` of ``catalog/metrics.yaml``."""

    def __init__(self, catalog: Catalog) -> None:
        self._said: Mapping[str, Any] = catalog.table("metrics")["embeddings"]

    @cached_property
    def _digest(self) -> re.Pattern[str]:
        return re.compile(self._said["hash"])

    def events(self, lines: Sequence[str]) -> list[Event]:
        """The telling lines, in order."""
        found = []
        for line in lines:
            for name, phrases in self._said["logs"].items():
                if any(phrase in line for phrase in phrases):
                    digest = self._digest.search(line)
                    found.append(Event(name, digest[1] if digest else "", line.strip()[:LONGEST_LINE]))
                    break
        return found


def numbers(version: str) -> tuple[int, ...]:
    """``0.30.0`` as (0, 30, 0), up to what is no number; empty for text that is no version of a release."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    return tuple(map(int, found[1].split("."))) if found else ()


def consumers(roles: Sequence[str]) -> str:
    """The role that takes embeddings."""
    return "prefill" if "prefill" in roles else "decode"
