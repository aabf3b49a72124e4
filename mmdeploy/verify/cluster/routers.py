"""The router of a deployment on a cluster: its picker's pods, its pool, and the Service that clients call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import NotFoundError, UsageError
from mmdeploy.verify.cluster.looking import Object, Seen, facts_of, labels, selects
from mmdeploy.words import nearest

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.lint.commands import Command


@dataclass(frozen=True)
class Router:
    """One release of the router, as it stands."""

    release: str
    pods: tuple[Object, ...]
    """Pods of the endpoint picker."""
    pool: Object | None
    service: Object | None
    """``<release>-epp``; None where it is not there, or Services may not be listed."""
    facts: Mapping[str, Any]
    """``router`` of ``catalog/discovery.yaml``."""
    container: str
    """Name of the picker's container."""
    selector_flag: str

    @property
    def service_name(self) -> str:
        """What the Service is called."""
        return str(self.service["metadata"]["name"]) if self.service else f"{self.release}{self.facts['serviceSuffix']}"

    @property
    def command(self) -> Command | None:
        """The picker's command line."""
        from mmdeploy.lint.commands import parse

        for pod in self.pods:
            for item in pod["spec"]["containers"]:
                if item["name"] == self.container:
                    return parse(item, ())
        return None

    @property
    def image(self) -> str:
        """The picker's image."""
        found = [item for pod in self.pods for item in pod["spec"]["containers"] if item["name"] == self.container]
        return str(found[0].get("image", "")) if found else ""

    @property
    def selector(self) -> dict[str, str] | None:
        """What selects the pods of the pool; None where neither a pool nor the picker's own flag shows it."""
        if self.pool is not None:
            return dict((self.pool["spec"].get("selector") or {}).get("matchLabels") or {})
        said = self.command.value(self.selector_flag) if self.command else None
        if not said:
            return None
        pairs = (pair.partition("=") for pair in said.split(","))
        return {left.strip(): right.strip() for left, _, right in pairs}

    @property
    def target_port(self) -> int | None:
        """The port that the pool targets, the first of several."""
        if self.pool is not None:
            ports = self.pool["spec"].get("targetPorts") or ()
            return int(ports[0]["number"]) if ports else None
        said = self.command.value(self.facts["portsFlag"]) if self.command else None
        first = (said or "").split(",")[0]
        return int(first) if first.isdigit() else None

    @property
    def guarded(self) -> bool:
        """Whether the picker's metrics ask for a token."""
        return self.command is not None and self.command.value(self.facts["authFlag"]) != "false"

    @property
    def metrics_port(self) -> int:
        """Where the picker's metrics are."""
        wanted = self.facts["metricsPort"]
        for pod in self.pods:
            for item in pod["spec"]["containers"]:
                for port in item.get("ports") or () if item["name"] == self.container else ():
                    if port.get("name") == wanted["name"]:
                        return int(port["containerPort"])
        return int(wanted["number"])

    @property
    def configuration_file(self) -> tuple[str, str] | None:
        """ConfigMap and key of the picker's configuration; None where it comes from elsewhere."""
        said = self.command.value(self.facts["configFlag"]) if self.command else None
        if not said or not self.pods:
            return None
        folder, _, key = said.rpartition("/")
        spec = self.pods[0]["spec"]
        mounts = [item for each in spec["containers"] if each["name"] == self.container
                  for item in each.get("volumeMounts") or () if item["mountPath"].rstrip("/") == folder]  # fmt: skip
        volumes = {item["name"]: item for item in spec.get("volumes") or ()}
        for mount in mounts:
            name = (volumes.get(mount["name"], {}).get("configMap") or {}).get("name")
            if name:
                return str(name), key
        return None


def find(seen: Seen, catalog: Catalog, name: str | None) -> Router:
    """The router of a name; without one, the only one there is.

    Raises `NotFoundError` where there is none, and `UsageError` where several could be meant, or none of that name.
    """
    found = every(seen, catalog)
    if not found:
        if name is None and "pools" in seen.missing:
            raise NotFoundError(
                f"no endpoint picker runs in namespace {seen.namespace}, and its pools cannot be seen: "
                f"{seen.missing['pools']}",
                next_step="mmdeploy verify BUNDLE --print-rbac --for USER prints the rights for an administrator",
            )
        raise NotFoundError(
            f"namespace {seen.namespace} has no endpoint picker and no InferencePool",
            origin=f"namespace {seen.namespace}",
            next_step="--namespace names another one; kubectl get inferencepools --all-namespaces shows where they are",
        )
    if name is None:
        if len(found) > 1:
            raise UsageError(
                f"namespace {seen.namespace} has {len(found)} deployments", origin="--name",
                nearest=[each.release for each in found], next_step="say which: --name NAME",
            )  # fmt: skip
        return found[0]
    for each in found:
        if each.release == name:
            return each
    names = [each.release for each in found]
    raise UsageError(
        f"namespace {seen.namespace} has no deployment {name!r}", origin="--name", nearest=nearest(name, names) or names
    )


def every(seen: Seen, catalog: Catalog) -> list[Router]:
    """All routers of a namespace, by release."""
    facts, start = facts_of(catalog)["router"], catalog.table("startup")
    suffix, keys = facts["serviceSuffix"], start["routerLabels"]
    releases: dict[str, Object | None] = {}
    for each in seen.pools:
        picker = str((each["spec"].get("endpointPickerRef") or {}).get("name", ""))
        note = (each["metadata"].get("annotations") or {}).get(start["releaseAnnotation"])
        releases[note or picker.removesuffix(suffix) or each["metadata"]["name"]] = each
    for pod in seen.pods:
        for key in keys:
            if key in labels(pod):
                releases.setdefault(labels(pod)[key].removesuffix(suffix), None)
    found = []
    for release, pool in sorted(releases.items()):
        reference = (pool["spec"].get("endpointPickerRef") or {}).get("name") if pool else None
        service = seen.service(str(reference or f"{release}{suffix}"))
        pods = _pods(seen.pods, release, service, keys, suffix)
        found.append(Router(release, pods, pool, service, facts, start["pickerContainer"], start["selectorFlag"]))
    return found


def _pods(
    pods: Sequence[Object], release: str, service: Object | None, keys: Sequence[str], suffix: str
) -> tuple[Object, ...]:
    selector = (service["spec"].get("selector") or {}) if service else {}
    if selector:
        return tuple(pod for pod in pods if selects(selector, pod))
    return tuple(pod for pod in pods if any(labels(pod).get(key) == f"{release}{suffix}" for key in keys))
