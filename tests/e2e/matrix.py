"""The support matrix as cases: every row, provider and form that a release ships, and two ways to route and watch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmdeploy.catalog.catalog import Row
from tests.rig import rendering

_ROLES = {"aggregation": ("decode",), "e-pd": ("encode", "decode"), "e-p-d": ("encode", "prefill", "decode")}


@dataclass(frozen=True)
class Case:
    """One deployment of the matrix."""

    id: str
    said: Mapping[str, Any]
    """The spec, without a namespace."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles of the topology."""
        return _ROLES[self.said["topology"]]

    @property
    def model(self) -> str:
        """The served model."""
        return str(self.said["model"])

    def small(self) -> Case:
        """The same with one pod a role."""
        return Case(self.id, {**self.said, **{role: {"replicas": 1} for role in self.roles}})

    def but(self, suffix: str, **said: Any) -> Case:
        """The same with more said."""
        return Case(f"{self.id}+{suffix}", {**self.said, **said})

    def write(self, directory: Path, namespace: str) -> Path:
        """Its bundle."""
        return rendering.write_bundle(directory, {**self.said, "namespace": namespace})


def _forms(row: Row, release: str) -> tuple[str, ...]:
    return row.workloads or tuple(rendering.catalog().release(release).workloads[row.topology])


def _cases(release: str, row: Row, providers: tuple[str, ...], forms: tuple[str, ...]) -> Iterator[Case]:
    for model in row.models:
        for provider in providers:
            for form in forms:
                said = {
                    "release": release, "topology": row.topology, "accelerator": row.accelerator,
                    "server": row.server, "provider": provider, "model": model, "workload": form,
                }  # fmt: skip
                words = [release, row.topology, row.accelerator.replace("/", "-"), row.server]
                words += [model.rpartition("/")[2]] if model != rendering.catalog().rows[0].models[0] else []
                yield Case("-".join([*words, provider, form]), said)


def _rows() -> Iterator[tuple[str, Row]]:
    catalog = rendering.catalog()
    for release in catalog.release_names:
        for row in catalog.rows:
            if release in row.status:
                yield release, row


ALL = [case for release, row in _rows() for case in _cases(release, row, row.providers, _forms(row, release))]
"""Every row, with each of its providers and in each of its forms."""

_NEWEST = rendering.catalog().release_names[0]


def _once() -> Iterator[Case]:
    for release, row in _rows():
        turn = rendering.catalog().release_names.index(release)
        forms = _forms(row, release)
        provider = row.providers[turn % len(row.providers)]
        yield from _cases(release, row, (provider,), forms if release == _NEWEST else forms[:1])


ONCE = [case.small() for case in _once()]
"""Every row once, with one pod a role; those of the newest release in each form. Releases take turns with providers."""


def newest(topology: str, form: str) -> Case:
    """The newest release's row of a topology on NVIDIA GPUs with vLLM, as it is shipped."""
    return next(
        case
        for case in ALL
        if case.said["release"] == _NEWEST
        and (case.said["accelerator"], case.said["server"]) == ("gpu", "vllm")
        and (case.said["topology"], case.said["workload"]) == (topology, form)
    )


_ONE_EACH = (("aggregation", "Deployment"), ("e-pd", "DisaggregatedSet"), ("e-p-d", "Deployment"))
SHIPPED = [newest(topology, form).but("replicas") for topology, form in _ONE_EACH]
"""One of each topology as it is shipped, with all its replicas."""

_GATEWAY = {"mode": "gateway", "gateway": {"gatewayClass": "istio"}}
ROUTED = [
    newest("e-pd", "Deployment").but("gateway", **_GATEWAY),
    newest("e-p-d", "DisaggregatedSet").but("gateway-monitoring", monitoring=True, **_GATEWAY),
    newest("aggregation", "Deployment").but("monitoring", monitoring=True),
]
"""Behind a Gateway, with Prometheus monitors, and both."""
