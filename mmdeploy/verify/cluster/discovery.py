"""From what is in a namespace to what is verified: roles with their pods and ports, the entry point, the pickers.

The same for a deployment that mmdeploy installed and for one that it did not; with a bundle (or the spec that apply
left behind) it is also known which pods should be there, and whose the others are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import NotFoundError, UsageError
from mmdeploy.verify import configuration, handoff
from mmdeploy.verify.cluster.entrance import Entrance
from mmdeploy.verify.cluster.looking import Seen, facts_of, labels, ready, selects
from mmdeploy.verify.cluster.places import pod_url
from mmdeploy.verify.cluster.routers import Router
from mmdeploy.verify.cluster.servers import Server, block_size, workloads_of
from mmdeploy.verify.evidence import Observation
from mmdeploy.verify.targets import Endpoint, Pod, Targets

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.intended import Intended

KIND = "cluster"
"""Of the observations: ``numbers["symptom"]`` is a symptom of the claim ``numbers["claim"]`` in the table of causes, or
empty for a remark."""


@dataclass(frozen=True)
class Found:
    """A deployment on a cluster."""

    targets: Targets
    observations: tuple[Observation, ...]
    router: Router
    containers: Mapping[str, str]
    """Pod → its engine's container."""

    @property
    def trial(self) -> tuple[Pod, ...]:
        """Pods by which a way of getting there can be tried, ready ones first."""
        return tuple(sorted(self.targets.pods, key=lambda pod: not pod.ready))


def discover(
    seen: Seen, router: Router, catalog: Catalog, *, meant: Intended | None = None, model: str | None = None,
    entry: str | None = None, token: str = "", where: str = "",
) -> Found:  # fmt: skip
    """The deployment behind a router.

    ``entry`` is another address to send requests to; ``token`` (``env:NAME`` or ``file:PATH``) is for the pickers'
    metrics. Raises `NotFoundError` where no pod serves a model.
    """
    return _Discovery(seen, router, catalog, meant, model, entry, token, where).found()


class _Discovery:
    def __init__(
        self, seen: Seen, router: Router, catalog: Catalog, meant: Intended | None, model: str | None,
        entry: str | None, token: str, where: str,
    ) -> None:  # fmt: skip
        self.seen, self.router, self.catalog, self.meant = seen, router, catalog, meant
        self.model, self.entry, self.token, self.where = model, entry, token, where
        self.facts = facts_of(catalog)
        self.role_key = catalog.labels["role"]
        self.workloads = workloads_of(meant)
        self.selector = self._selector()
        self.port = router.target_port or self._meant_port() or catalog.ports["modelServer"]
        self.picker = self._picker()

    def found(self) -> Found:
        mine, foreign, stray = self._sorted()
        if not mine:
            raise NotFoundError(
                f"no pod of the deployment {self.router.release} serves a model",
                origin=f"namespace {self.seen.namespace}",
                next_step=f"kubectl get pods --namespace {self.seen.namespace} --show-labels",
            )
        topology = self._topology(mine)
        placed = self._placed(mine, topology)
        release, guessed = self._release(mine)
        entrance = Entrance(self.seen, self.router, self.catalog, self.entry)
        targets = self._targets(placed, topology, release, entrance)
        remarks = [
            *self._unread(), *guessed, *entrance.remarks, *self._missing(targets.pods), *self._strangers(foreign),
            *self._unselected(stray, targets.server), *self._unlabelled(placed, topology), *self._drift(),
            *(_standing(*said) for said in entrance.standing()),
        ]  # fmt: skip
        containers = {server.name: server.engine.container.name for server in mine if server.engine is not None}
        return Found(targets, tuple(remarks), self.router, containers)

    def _placed(self, mine: Sequence[Server], topology: str) -> list[tuple[str, Server]]:
        """Each pod and its role, in the order of the roles."""
        roles = tuple(self.catalog.topologies[topology]["roles"])
        placed = [(self._role(server, roles), server) for server in mine]
        return sorted(placed, key=lambda item: (roles.index(item[0]), item[1].name))

    def _targets(
        self, placed: Sequence[tuple[str, Server]], topology: str, release: str, entrance: Entrance
    ) -> Targets:  # fmt: skip
        return Targets(
            model=self.model or self._model(placed),
            topology=topology,
            server=self._server([server for _, server in placed]),
            release=release,
            entry=entrance.entry,
            gateway=entrance.gateway,
            pickers=tuple(self._pickers()),
            pods=tuple(self._pod(server, role) for role, server in placed),
            configuration=self._configuration(placed, entrance),
            where=self.where or f"namespace {self.seen.namespace}",
        )

    # ------------------------------------------------------------------------------------------------------ which pods

    def _selector(self) -> Mapping[str, str]:
        """The pool's labels; where they cannot be seen, those of the bundle's values."""
        found = self.router.selector
        if found is None and self.meant is not None:
            servers = (self.meant.values.get("router") or {}).get("modelServers") or {}
            found = {str(key): str(value) for key, value in (servers.get("matchLabels") or {}).items()}
        return found or {}

    def _meant_port(self) -> int | None:
        servers = ((self.meant.values if self.meant else {}).get("router") or {}).get("modelServers") or {}
        ports = servers.get("targetPorts") or ()
        return int(ports[0]["number"]) if ports else None

    def _sorted(self) -> tuple[list[Server], list[Server], list[Server]]:
        """Pods of the deployment; pods of others that the pool selects; pods of the deployment that it does not."""
        every = [Server(pod, self.facts, self.role_key) for pod in self.seen.pods]
        selected = [server for server in every if selects(self.selector, server.pod)]
        names = {server.name for server in selected}
        if self.meant is not None:
            mine = [server for server in every if server.owner in self.workloads]
        else:
            owners, pickers = (
                {server.owner for server in selected},
                {pod["metadata"]["name"] for pod in self.router.pods},
            )
            groups = {self._group(server) for server in selected}
            mine = [
                server for server in every
                if server.engine is not None and server.name not in pickers
                and (server.name in names or server.owner in owners
                     or (self._group(server) in groups and (server.labelled or server.engine.encodes_only)))
            ]  # fmt: skip
        own = {server.name for server in mine}
        foreign = [server for server in selected if server.name not in own]
        return mine, foreign, [server for server in mine if server.name not in names]

    def _group(self, server: Server) -> tuple[str, str]:
        """What model servers of one deployment have in common, whether the pool selects them or not."""
        said = labels(server.pod)
        return said.get(self.catalog.labels["guide"], ""), said.get(self.catalog.labels["model"], "")

    def _topology(self, mine: Sequence[Server]) -> str:
        if self.meant is not None:
            return str(self.meant.spec["topology"])
        played = {server.role(self.workloads) for server in mine} | set(configuration.profiles(self.picker))
        wanted = {"decode"} | (played & {"encode", "prefill"})
        for name, entry in self.catalog.topologies.items():
            if set(entry["roles"]) == wanted:
                return str(name)
        raise UsageError(
            f"{self.router.release} has the roles {', '.join(sorted(wanted))}; no topology with these is known",
            origin=f"namespace {self.seen.namespace}", nearest=list(self.catalog.topologies),
        )  # fmt: skip

    def _role(self, server: Server, roles: Sequence[str]) -> str:
        role = server.role(self.workloads)
        return role if role in roles else "decode"

    # -------------------------------------------------------------------------------------------------- one of the pods

    def _pod(self, server: Server, role: str) -> Pod:
        own = server.own_port or self.port
        in_front = self.port if self._selects(server) or server.sidecar is not None else own
        page = self.catalog_page(server, role)
        return Pod(
            name=server.name,
            role=role,
            api=self._at(server, server.name, in_front),
            metrics=self._at(server, server.name, own, page),
            engine=self._at(server, f"{server.name} engine", own) if server.sidecar is not None else None,
            address=f"{server.ip}:{in_front}" if server.ip else "",
            ready=server.ready,
        )

    def _selects(self, server: Server) -> bool:
        return selects(self.selector, server.pod)

    def catalog_page(self, server: Server, role: str) -> str:
        """Path of the metrics of a pod."""
        kind = server.engine.kind if server.engine is not None else "vllm"
        return self.catalog.metrics.engine(kind, role).paths["metrics"]

    def _at(self, server: Server, name: str, port: int, path: str = "") -> Endpoint:
        return Endpoint(name, pod_url(self.seen.namespace, server.name, port, path))

    def _pickers(self) -> Iterator[Endpoint]:
        port = self.router.metrics_port
        for pod in self.router.pods:
            name = pod["metadata"]["name"]
            token = self.token if self.router.guarded else ""
            yield Endpoint(name, pod_url(self.seen.namespace, name, port, "/metrics"), token)

    # ---------------------------------------------------------------------------------------------- what it is made of

    def _model(self, placed: Iterable[tuple[str, Server]]) -> str:
        if self.meant is not None:
            return str(self.meant.spec["model"])
        for role, server in placed:
            if role == "decode" and server.engine is not None and server.engine.served_name:
                return server.engine.served_name
        return ""

    def _server(self, mine: Sequence[Server]) -> str:
        if self.meant is not None:
            return str(self.meant.spec["server"])
        return next((server.engine.kind for server in mine if server.engine is not None), "vllm")

    def _release(self, mine: Sequence[Server]) -> tuple[str, list[Observation]]:
        """The llm-d release: the bundle's, or the one whose router or images run here."""
        if self.meant is not None:
            return str(self.meant.spec["release"]), []
        tag = self.router.image.partition("@")[0].rpartition(":")[2]
        images = {server.engine.container.image for server in mine if server.engine is not None}
        images |= {server.sidecar.image for server in mine if server.sidecar is not None}
        for name in self.catalog.release_names:
            release = self.catalog.release(name)
            if tag == release.routerVersion or release.versions.get("sidecarImage") in images:
                return name, [_remark("release", f"taken for {name}, by the images that run here")]
        name = self.catalog.release_names[-1]
        return name, [_remark("release", f"the images say no release of llm-d; taken for {name}")]

    def _configuration(self, placed: Sequence[tuple[str, Server]], entrance: Entrance) -> dict[str, Any]:
        live = {"picker": self.picker, **self._routed(entrance)}
        if self.meant is not None:
            said = configuration.read(self.meant)
            return {**said, **self._routed(entrance)} if self.meant.values else {**said, **live}
        mode = "gateway" if entrance.routes else "standalone"
        return {
            "mode": mode, "model": None, "replicas": {}, "blockSize": block_size(server for _, server in placed),
            "handoff": handoff.live({role: server.template for role, server in placed}), "spec": {}, **live,
        }  # fmt: skip

    def _routed(self, entrance: Entrance) -> dict[str, Any]:
        """What the routes on the cluster say of timeouts, where there are any: they, not the bundle's, cut requests."""
        if not entrance.routes:
            return {}
        names = ", ".join(str(route["metadata"]["name"]) for route in entrance.routes)
        return {"requestTimeout": entrance.request_timeout, "requestTimeoutOf": f"HTTPRoute {names}"}

    def _picker(self) -> dict[str, Any]:
        """The EndpointPickerConfig that the picker runs with; empty where it cannot be read."""
        from mmdeploy import documents

        place = self.router.configuration_file
        if place is None or place[0] not in self.seen.configurations:
            return {}
        text = (self.seen.configurations[place[0]].get("data") or {}).get(place[1])
        found = documents.parse(text, f"ConfigMap {place[0]}").value if isinstance(text, str) else None
        return found if isinstance(found, dict) else {}

    # ------------------------------------------------------------------------------------------------- what strikes one

    def _unread(self) -> Iterator[Observation]:
        for what, why in self.seen.missing.items():
            if what != "gateways" or self.seen.routes:
                yield _remark(what, why)

    def _missing(self, pods: Sequence[Pod]) -> Iterator[Observation]:
        """Fewer pods than the bundle says; the roles' judge counts them, so that this is only for a person to read."""
        if self.meant is None:
            return
        for role, count in configuration.read(self.meant)["replicas"].items():
            there = [pod for pod in pods if pod.role == role]
            unready = [pod.name for pod in there if not pod.ready]
            if len(there) != count:
                yield _remark(role, f"{len(there)} pods where the bundle says {count}", role=role)
            if unready:
                yield _remark(role, f"not ready: {', '.join(unready)}", role=role)
        if not any(ready(pod) for pod in self.router.pods):
            yield _remark("picker", f"no pod of {self.router.service_name} is ready")

    def _strangers(self, foreign: Sequence[Server]) -> Iterator[Observation]:
        pickers = {pod["metadata"]["name"] for pod in self.router.pods}
        for server in foreign:
            what = "the picker itself" if server.name in pickers else server.owner
            yield _symptom("pool-foreign", server.name, f"the pool selects {server.name} ({what}), "
                           "which is not of this deployment")  # fmt: skip

    def _unselected(self, stray: Sequence[Server], engine: str) -> Iterator[Observation]:
        own = self.catalog.metrics.picks_own_encoders(engine)
        for server in stray:
            role = server.role(self.workloads)
            if self.selector and not (own and role == "encode"):
                words = ",".join(f"{key}={value}" for key, value in self.selector.items())
                said = f"the pool's selector {words} does not match the {role} pod {server.name}"
                yield _symptom("not-selected", server.name, said)

    def _unlabelled(self, placed: Iterable[tuple[str, Server]], topology: str) -> Iterator[Observation]:
        """Pods whose label says another role than they play: the picker's filters go by it."""
        if len(self.catalog.topologies[topology]["roles"]) == 1:
            return
        for role, server in placed:
            if server.labelled != role:
                said = f"{self.role_key}={server.labelled}" if server.labelled else f"no label {self.role_key}"
                yield _symptom("unlabelled", server.name, f"{server.name} plays {role} and carries {said}")

    def _drift(self) -> Iterator[Observation]:
        """The picker runs with another configuration than the bundle's."""
        if self.meant is None or not self.meant.values or not self.picker:
            return
        if self.picker != configuration.picker(self.meant.values):
            yield _remark("picker", "its configuration on the cluster is not the bundle's; mmdeploy diff shows how")


def _remark(about: str, detail: str, **numbers: Any) -> Observation:
    return Observation(KIND, about, detail, numbers)


def _standing(said: str, resolved: bool | None) -> Observation:
    """What is said of a route, or of the pool behind it, for the judge of the entry point."""
    symptom = "unresolved" if resolved is False else ""
    return Observation(KIND, "route", said, {"claim": "entry", "symptom": symptom})


def _symptom(symptom: str, about: str, detail: str) -> Observation:
    return Observation(KIND, about, detail, {"claim": "roles", "symptom": symptom})
