"""From what a person said to a `Deployment`: pure, and the same for the same input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.catalog.catalog import AXES
from mmdeploy.catalog.support import Choice, choose, model_of
from mmdeploy.documents import KeyPath
from mmdeploy.errors import UnsupportedError
from mmdeploy.render import refusals
from mmdeploy.render.deployment import BundleObject, Deployment, Explained, ResolvedRole
from mmdeploy.render.expressions import Place, evaluate_tree, plain
from mmdeploy.render.layers import Stack
from mmdeploy.render.merge import Provenance, merge
from mmdeploy.render.pods import ROLE_FIELDS, RoleBuild, as_object
from mmdeploy.render.pricing import Pricing
from mmdeploy.render.provenance import explain_tree, explain_values
from mmdeploy.render.routing import resolve_router
from mmdeploy.render.values import Values
from mmdeploy.render.warnings import warnings
from mmdeploy.spec import ROLES, SCHEMA_VERSION, DeploymentSpec, Role, fields_of

SPEC_FIELDS: frozenset[KeyPath] = frozenset(path for path in fields_of() if path[0] not in ROLES)

UNPUBLISHED = (
    ("routing", "precise"),
    ("encoderCacheAffinity", True),
    ("ecConnector", "ECMooncakeConnector"),
    ("ecConnector", "ECExampleConnector"),
    ("mediaHandoff", "metadata"),
)
"""Options that no published guide uses: a deployment with one of them is unverified, whatever its row says."""

OriginOf = Callable[[KeyPath], str]


class Resolver:
    """Resolves specs against one set of blueprints; layers are read once however many specs follow."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.stack = Stack(catalog)

    def resolve(self, spec: DeploymentSpec, origin_of: OriginOf = lambda path: "spec") -> Deployment:
        """The deployment that ``spec`` asks for. ``origin_of`` says where a value of the spec came from.

        Raises `UsageError` and its kin for what cannot work, `BlueprintError` for blueprints that are wrong.
        """
        return Resolution(self, spec, origin_of).deployment()


class Resolution:
    """One spec on its way to a deployment."""

    def __init__(self, resolver: Resolver, spec: DeploymentSpec, origin_of: OriginOf) -> None:
        self.catalog, self.stack, self.origin_of = resolver.catalog, resolver.stack, origin_of
        self.said: dict[str, Any] = spec.model_dump(exclude_none=True, exclude_defaults=True)
        self.choice = self._choose()
        self.context: dict[str, Any] = {}
        self.release = self.catalog.release(self.choice.values["release"])
        self.model = model_of(self.catalog, self.choice.values["model"])
        self.topology = self.catalog.topologies[self.choice.values["topology"]]
        self.spec = self._spec_values()
        self.pricing = Pricing(self.catalog, self.spec, self.model, self.release, origin_of)
        self._fill_context()
        self.facts = self._facts()
        self.routing_provenance = Provenance()
        self.roles = self._role_builds()

    def _choose(self) -> Choice:
        axes = {axis: str(self.said[axis]) for axis in AXES if axis in self.said}
        described = "processorConfig" in self.said or "estimator" in self.said
        return choose(self.catalog, axes, described, lambda axis: self.origin_of((axis,)) if axis in axes else None)

    @property
    def workloads(self) -> tuple[str, ...]:
        """Workload forms that this combination can take, the default first."""
        return self.choice.row.workloads or self.release.workloads[self.choice.values["topology"]]

    def _spec_values(self) -> Values:
        provenance = Provenance()
        defaults = self.catalog.defaults_document
        raw: Any = merge({}, defaults.value, Place(defaults, ()), provenance)
        matrix = f"{self.catalog.label}/catalog/matrix.yaml:{self.choice.row.line}"
        release = f"{self.catalog.label}/catalog/releases/{self.release.name}.yaml"
        decided: Iterable[tuple[str, Any, str]] = (
            *((axis, value, matrix) for axis, value in self.choice.values.items()),
            *((key, value, matrix) for key, value in (self.choice.row.defaults or {}).items()),
            ("versions", dict(self.release.versions), release),
            ("workload", self.workloads[0], matrix if self.choice.row.workloads else release),
            ("groupIdentity", self.release.groupIdentity, release),
        )
        for key, value, place in decided:
            raw[key] = value
            provenance.set((key,), place)
        for path, value in _leaves({k: v for k, v in self.said.items() if k not in ROLES}, SPEC_FIELDS):
            _put(raw, path, value)
            provenance.set(path, self.origin_of(path))
        values = Values(raw, provenance, self.context, SPEC_FIELDS)
        for name in (*self.choice.values, "name", "namespace", "namePrefix", "mode"):
            values.touch(name)
        return values

    def _fill_context(self) -> None:
        row = self.choice.row
        name = (row.defaults or {}).get("name") or self.catalog.defaults_document.value["name"]
        self.context.update(
            spec=self.spec,
            row={"namePrefix": row.namePrefix, "name": name},
            model=self.model,
            release=self.release,
            ports=self.catalog.ports,
            labels=self.catalog.labels,
            preciseRouting=self.catalog.precise_routing,
            topology=self.topology,
            estimate=self.pricing.estimate,
            calibration=self.pricing.calibration,
        )

    def _facts(self) -> dict[str, Any]:
        axes = dict(self.choice.values)
        plain_facts = ("workload", "mode", "routing", "monitoring", "tracing", "encoderCacheAffinity")
        roles = self.topology["roles"]
        facts = {**axes, **{fact: self.spec[fact] for fact in plain_facts}}
        if axes["server"] == "vllm":
            facts["encoderParallelism"] = self.spec["encoderParallelism"]
        if "ecConnector" in (self.choice.row.defaults or {}):
            facts["ecConnector"], facts["mediaHandoff"] = self.spec["ecConnector"], self.spec["mediaHandoff"]
        if facts["mode"] == "gateway":
            facts["gatewayClass"] = self.spec["gateway"]["gatewayClass"]
        facts["encodes"], facts["prefills"] = ("encode" in roles), ("prefill" in roles)
        facts["forked"] = "ec-fork" in self.release.features
        return facts

    def _role_builds(self) -> dict[str, RoleBuild]:
        builds: dict[str, RoleBuild] = {}
        self.context["roles"] = {}
        for name in self.topology["roles"]:
            accelerator = self._accelerator(name)
            facts = {**self.facts, "accelerator": accelerator}
            layers = self.stack.select(self.stack.modelserver, facts)
            context = {**self.context, "accelerator": self.catalog.accelerators[accelerator]}
            build = RoleBuild(name, layers, self.topology, context)
            said = self.said.get(name, {})
            said_at = {path: self.origin_of((name, *path)) for path, _ in _leaves(said, ROLE_FIELDS)}
            build.set_values(said, said_at, {"name": name, "accelerator": accelerator})
            builds[name] = build
            self.context["roles"][name] = build.values
        # The role that prefills: in E/P/D its own, elsewhere decode.
        self.context["prefiller"] = builds["prefill" if "prefill" in builds else "decode"].values
        return builds

    def _accelerator(self, role: str) -> str:
        given = (self.choice.row.roleAccelerators or {}).get(role, self.choice.values["accelerator"])
        asked = self.said.get(role, {}).get("accelerator", given)
        if asked != given:
            raise UnsupportedError(
                f"{role}.accelerator is {asked!r}, but {role} pods of this combination run on {given}",
                origin=self.origin_of((role, "accelerator")),
                nearest=[f"{role}.accelerator={given}"],
                next_step="mmdeploy matrix lists the combinations that mix accelerators",
            )
        return given

    def deployment(self) -> Deployment:
        """Put it all together."""
        refusals.check(self)
        for build in self.roles.values():
            build.build()
        shared = _common([build.values["labels"] for build in self.roles.values()])
        self.context["commonLabels"] = {k: v for k, v in shared.items() if k != self.catalog.labels["role"]}
        router, gateway_objects = resolve_router(self.stack, self.facts, self.context, self.routing_provenance)
        objects = [*self._objects(), *gateway_objects]
        roles = tuple(self._resolved(build) for build in self.roles.values())
        self._read_versions()
        refusals.check_unread(self)
        resolved = self._resolved_spec()
        return Deployment(
            spec=resolved,
            row=self.choice.row,
            status=self.status,
            model=self.model,
            release=self.release,
            roles=roles,
            router=self.pricing.noted(router),
            objects=objects,
            pairing=self.pricing.pairing,
            warnings=warnings(self),
            explain=lambda: self._explained(resolved),
        )

    def _explained(self, resolved: Mapping[str, Any]) -> Iterator[Explained]:
        own = {key: value for key, value in resolved.items() if key not in self.roles}
        for item in explain_values("", self.spec, own):
            yield replace(item, origin=self.pricing.origins.get(item.path.split(".")[0], item.origin))
        for name, build in self.roles.items():
            yield from explain_values(name, build.values, resolved.get(name, {}))
            yield from explain_tree(name, build.provenance, "pod")
        yield from explain_tree("router", self.routing_provenance, "values")
        yield from explain_tree("router", self.routing_provenance, "config")

    def _read_versions(self) -> None:
        """Versions that the bundle's instructions name although no object does."""
        versions = self.spec["versions"]
        used = ["routerChart", "inferenceExtension"]
        used += ["gatewayApi"] if self.facts["mode"] == "gateway" else []
        used += ["leaderWorkerSet"] if self.facts["workload"] == "DisaggregatedSet" else []
        for name in used:
            versions[name]

    @property
    def status(self) -> str:
        """How well the deployment is tested: the row's status, or less where it leaves what the row was tested with."""
        if self.choice.status != "unverified" and any(self.facts.get(fact) == value for fact, value in UNPUBLISHED):
            return "unverified"
        if self.choice.status == "validated" and self.facts["workload"] != self.choice.row.testedAs:
            return "experimental"
        return self.choice.status

    def said_paths(self) -> list[KeyPath]:
        """Every setting that the person made."""
        return [path for path, _ in _leaves(self.said, SPEC_FIELDS | {(r, *f) for r in ROLES for f in ROLE_FIELDS})]

    def kind(self, build: RoleBuild) -> str:
        """The Kubernetes kind that runs a role."""
        return str(build.values["kind"]) if "kind" in build.values else str(self.facts["workload"])

    def _objects(self) -> list[BundleObject]:
        objects = [*self._shared_objects()]
        for build in self.roles.values():
            objects += build.objects()
        objects += self._workload_objects()
        used = {build.values["pod"].get("serviceAccountName") for build in self.roles.values()}
        return [
            item
            for item in objects
            if item.content["kind"] != "ServiceAccount" or item.content["metadata"]["name"] in used
        ]

    def _shared_objects(self) -> Iterator[BundleObject]:
        seen = set()
        for build in self.roles.values():
            for layer in build.layers:
                for index, entry in enumerate(layer.value.get("objects", ())):
                    if (layer.name, index) not in seen:
                        seen.add((layer.name, index))
                        place = Place(layer.document, ("objects", index))
                        yield as_object(evaluate_tree(entry, self.context, place))

    def _workload_objects(self) -> Iterator[BundleObject]:
        in_set = []
        for build in self.roles.values():
            kind = self.kind(build)
            wrapper = self.stack.workload(kind)
            content = build.wrapped(wrapper.value["role"], Place(wrapper, ("role",)), kind)
            if "object" in content:
                yield as_object(content)
            else:
                in_set.append(content)
        if in_set:
            wrapper = self.stack.workload(str(self.facts["workload"]))
            self.context["setRoles"] = in_set
            yield as_object(evaluate_tree(wrapper.value["set"], self.context, Place(wrapper, ("set",))))

    def _resolved(self, build: RoleBuild) -> ResolvedRole:
        values = build.values
        names = sorted({str(path[0]) for path in ROLE_FIELDS} - {"labels"})
        settings = {name: plain(values[name], {}) for name in names if values.was_read((name,))}
        return ResolvedRole(
            name=build.name,
            kind=self.kind(build),
            objectName=values["objectName"],
            accelerator=values["accelerator"],
            settings={key: value for key, value in settings.items() if value is not None},
            labels=values["labels"],
            podLabels=values["podLabels"],
            pod=plain(values["pod"], {}),
        )

    def _resolved_spec(self) -> dict[str, Any]:
        """Every field that had a say, in the order of the schema; fields that had none are left out."""
        resolved: dict[str, Any] = {"schemaVersion": SCHEMA_VERSION}
        decided = self.pricing.decided()
        for path in fields_of():
            if path[0] in ROLES:
                continue
            value = decided.get(path, NotImplemented)
            if value is NotImplemented and self.spec.was_read(path):
                value = _get(self.spec, path)
            if value is not NotImplemented and value is not None:
                _put(resolved, path, plain(value, {}))
        for name, build in self.roles.items():
            resolved[name] = _role_spec(build, self.spec)
        canonical = DeploymentSpec.model_validate(resolved).model_dump(exclude_none=True)
        return {key: value for key, value in canonical.items() if value != {}}


def _role_spec(build: RoleBuild, shared: Values) -> dict[str, Any]:
    """The role's fields that had a say; a field that only repeats the deployment's own (its Secret) is left to it."""
    spec: dict[str, Any] = {}
    for path in fields_of(Role):
        inner = ("extraLabels",) if path[0] == "labels" else path
        if not build.values.was_read(inner):
            continue
        value = plain(_get(build.values, inner), {})
        repeats = path in SPEC_FIELDS and shared.was_read(path) and _get(shared, path) == value
        if value not in (None, {}, []) and not repeats:
            _put(spec, path, value)
    return spec


def _get(values: Any, path: KeyPath) -> Any:
    for step in path:
        values = values[step]
    return values


def _put(tree: dict[str, Any], path: KeyPath, value: Any) -> None:
    for step in path[:-1]:
        below = tree.get(str(step))
        tree[str(step)] = dict(below) if isinstance(below, Mapping) else {}
        tree = tree[str(step)]
    tree[str(path[-1])] = value


def _leaves(values: Mapping[str, Any], fields: frozenset[KeyPath], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """``(path, value)`` of every field of the schema that is set; a field that holds a free mapping is one leaf."""
    for key, value in values.items():
        here = (*path, key)
        if here in fields or not isinstance(value, Mapping):
            yield here, value
        else:
            yield from _leaves(value, fields, here)


def _common(mappings: list[Mapping[str, str]]) -> dict[str, str]:
    first, *others = mappings
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
