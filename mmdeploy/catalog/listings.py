"""The support matrix as rows to print."""

from __future__ import annotations

from typing import Any

from mmdeploy.catalog.catalog import Catalog
from mmdeploy.errors import UsageError
from mmdeploy.words import nearest


def matrix(catalog: Catalog, release: str | None = None, topology: str | None = None) -> list[dict[str, Any]]:
    """One row a release and shipped combination, newest release first. Raises `UsageError` for unknown words."""
    if topology is not None and topology not in catalog.topologies:
        names = list(catalog.topologies)
        raise UsageError(
            f"topology {topology!r} is not in the catalog",
            origin="--topology",
            nearest=nearest(topology, names) or names,
            next_step="mmdeploy matrix without options lists every combination",
        )
    rows = []
    for name in (catalog.release(release).name,) if release else catalog.release_names:
        forms = catalog.release(name).workloads
        for row in catalog.rows:
            if name not in row.status or topology not in (None, row.topology):
                continue
            mixed = row.roleAccelerators or {}
            rows.append(
                {
                    "release": name,
                    "topology": row.topology,
                    "accelerator": row.accelerator,
                    "roleAccelerators": dict(mixed),
                    "server": row.server,
                    "providers": list(row.providers),
                    "model": row.models[0],
                    "models": list(row.models),
                    "workloads": list(row.workloads or forms[row.topology]),
                    "status": row.status[name],
                    "note": row.note if row.status[name] != "unverified" else "nobody is known to have run it",
                    "source": row.source,
                }
            )
    return rows
