"""Which deployment somebody means: a bundle, an inventory in the namespace, or what the labels of llm-d say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmdeploy.apply.inventory import Entry, Inventory
from mmdeploy.apply.readiness.objects_seen import Object, Seen, labels, notes
from mmdeploy.apply.readiness.ownership import owned_by_set
from mmdeploy.apply.readiness.readiness import Workload, template_labels, workloads_of
from mmdeploy.errors import MmdeployError, UsageError
from mmdeploy.intended import ROLES
from mmdeploy.words import nearest

if TYPE_CHECKING:
    from mmdeploy.apply.readiness.startup import Startup
    from mmdeploy.catalog import Catalog
    from mmdeploy.intended import Intended

_KINDS = ("DisaggregatedSet", "LeaderWorkerSet", "Deployment", "StatefulSet")
_UNNAMED = "decode"
"""The role of a workload that says none: it serves whole requests."""


@dataclass(frozen=True)
class Subject:
    """A deployment that is looked at."""

    name: str
    namespace: str
    by: str
    """How it was found: bundle, inventory or labels."""
    workloads: tuple[Workload, ...]
    release: str
    """The Helm release of its router."""
    model: str = ""
    inventory: Inventory | None = None
    values: Mapping[str, Any] | None = None
    """The router's values, where a bundle has them."""


def from_intended(intended: Intended, inventory: Inventory | None) -> Subject:
    """What a bundle describes."""
    return Subject(
        intended.name, intended.namespace, "bundle", workloads_of(intended), intended.name,
        str(intended.spec.get("model", "")), inventory, intended.values,
    )  # fmt: skip


def absent(subject: Subject) -> None:
    """Raise `MmdeployError` for a bundle of which nothing is on the cluster."""
    raise MmdeployError(
        f"{subject.name} is not on the cluster", origin=f"namespace {subject.namespace}",
        next_step="mmdeploy apply puts it there",
    )  # fmt: skip


def from_cluster(
    seen: Seen, inventories: Mapping[str, Inventory], namespace: str, name: str | None, catalog: Catalog,
    startup: Startup,
) -> Subject:  # fmt: skip
    """The deployment of that name in a namespace, or the only one.

    Raises `MmdeployError` where there is none, `UsageError` where a name must be said.
    """
    found = {each.name: _from_inventory(seen, each, catalog) for each in inventories.values()}
    taken = {workload.name for subject in found.values() for workload in subject.workloads}
    for subject in _by_labels(seen, namespace, taken, catalog, startup):
        found.setdefault(subject.name, subject)
    if name is not None:
        if name not in found:
            raise MmdeployError(
                f"no deployment is called {name!r}", origin=f"namespace {namespace}",
                nearest=nearest(name, list(found)) or sorted(found), next_step="mmdeploy apply puts one there",
            )  # fmt: skip
        return found[name]
    if not found:
        raise MmdeployError(
            "there is no deployment of model servers", origin=f"namespace {namespace}",
            next_step="mmdeploy apply puts one there; --namespace looks elsewhere",
        )  # fmt: skip
    if len(found) > 1:
        names = sorted(found)
        raise UsageError("there are several deployments", origin=f"namespace {namespace}", nearest=names,
                         next_step=f"--name {names[0]}")  # fmt: skip
    return next(iter(found.values()))


def _from_inventory(seen: Seen, inventory: Inventory, catalog: Catalog) -> Subject:
    workloads: list[Workload] = []
    for entry in inventory.entries:
        if entry.kind in _KINDS:
            item = seen.named(entry.kind, entry.name) or inventory.content.get(entry.key)
            made = _workloads(entry.kind, entry.name, item, catalog)
            workloads += made if item is not None else _unwritten(entry, inventory) or made
    release = inventory.release.name if inventory.release else inventory.name
    model = str(inventory.spec.get("model", ""))
    return Subject(inventory.name, inventory.namespace, "inventory", tuple(workloads), release, model, inventory)


def _unwritten(entry: Entry, inventory: Inventory) -> list[Workload]:
    """Roles of a workload that an apply listed and never wrote, by the spec: the rest is called after its role."""
    roles = [name for name in ROLES if isinstance(inventory.spec.get(name), Mapping)]
    if entry.kind != "DisaggregatedSet":
        roles = [name for name in roles if entry.name.endswith(f"-{name}")]
    return [Workload(name, entry.kind, entry.name) for name in roles]


def _workloads(kind: str, name: str, item: Object | None, catalog: Catalog) -> list[Workload]:
    if item is None:
        return [Workload(_UNNAMED, kind, name)]
    if kind == "DisaggregatedSet":
        return [Workload(str(role["name"]), kind, name) for role in item["spec"]["roles"]]
    role = template_labels(item, "").get(catalog.labels["role"]) or _UNNAMED
    return [Workload(role, kind, name)]


def _by_labels(
    seen: Seen, namespace: str, taken: Iterable[str], catalog: Catalog, startup: Startup
) -> list[Subject]:  # fmt: skip
    """Deployments that mmdeploy did not install: workloads that share the guide's label."""
    mine = set(taken)
    groups: dict[str, list[Workload]] = {}
    for kind in _KINDS:
        for item in seen.of(kind):
            name = str(item["metadata"]["name"])
            guide = _guide(item, kind, catalog)
            if guide and name not in mine and not owned_by_set(item):
                groups.setdefault(guide, []).extend(_workloads(kind, name, item, catalog))
    return [
        Subject(guide, namespace, "labels", tuple(workloads), _release(seen, startup))
        for guide, workloads in groups.items()
    ]


def _guide(item: Object, kind: str, catalog: Catalog) -> str:
    roles = [str(role["name"]) for role in item["spec"]["roles"]] if kind == "DisaggregatedSet" else [""]
    made = next((found for role in roles if (found := template_labels(item, role))), {})
    key = catalog.labels["guide"]
    return str(made.get(key) or labels(item).get(key) or "")


def _release(seen: Seen, startup: Startup) -> str:
    """The Helm release of the router that is there, by the router's labels; empty for none, or several."""
    found = {
        notes(item).get(startup["releaseAnnotation"], str(item["metadata"]["name"]))
        for item in seen.of("Deployment")
        if any(key in labels({"metadata": item["spec"]["template"]["metadata"]}) for key in startup["routerLabels"])
    }
    return found.pop() if len(found) == 1 else ""
