"""Roles: their values and their pods, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.errors import BlueprintError
from mmdeploy.render.arguments import in_shell, tokens_of
from mmdeploy.render.deployment import BundleObject
from mmdeploy.render.expressions import Place, evaluate_tree, plain
from mmdeploy.render.layers import GROUPS, Layer
from mmdeploy.render.merge import Provenance, merge
from mmdeploy.render.values import Values
from mmdeploy.spec import Role, fields_of

ROLE_FIELDS: frozenset[KeyPath] = frozenset(fields_of(Role))


def groups_of(role: str, topology: Mapping[str, Any]) -> tuple[str, ...]:
    """The layer sections that concern a role, general ones first."""
    groups = topology["groups"]
    return tuple(group for group in GROUPS if group in ("all", role) or role in groups.get(group, ()))


class RoleBuild:
    """One role while its layers are laid on each other."""

    def __init__(self, name: str, layers: Sequence[Layer], topology: Mapping[str, Any], context: Mapping[str, Any]):
        self.name = name
        self.layers = layers
        self.provenance = Provenance()
        self._groups = groups_of(name, topology)
        self._context: dict[str, Any] = {**context}
        self.values = Values({}, self.provenance, self._context)

    def set_values(self, said: Mapping[str, Any], said_at: Mapping[KeyPath, str], fixed: Mapping[str, Any]) -> None:
        """Lay the layers' values on each other, and what the person said on top. ``fixed`` is not up to anybody."""
        raw: Any = dict(fixed)
        for value, place in self._sections("values"):
            raw = merge(raw, value, place, self.provenance)
        for key, value in said.items():
            if isinstance(value, Mapping) and isinstance(raw.get(key), Mapping) and "$note" not in raw[key]:
                raw = {**raw, key: {**raw[key], **value}}
                mixed = said_at.get((key,))
                self.provenance.places.update({(key, inner): mixed for inner in value} if mixed else {})
            else:
                raw = {**raw, key: value}
                self._forget(key)
                self.provenance.places[key,] = said_at.get((key,), "spec")
            self.provenance.places.update(
                {path: at for path, at in said_at.items() if path[0] == key and len(path) > 1}
            )
        self.values = Values(raw, self.provenance, self._context, ROLE_FIELDS)
        self._context["role"] = self.values

    def label_keys(self) -> set[str]:
        """Keys of the labels that selectors are made from."""
        keys = (key for value, place in self._sections("labels") for key in evaluate_tree(value, self._context, place))
        return set(keys)

    def _forget(self, key: str) -> None:
        for path in [known for known in self.provenance.places if known[:1] == (key,)]:
            del self.provenance.places[path]

    def build(self) -> None:
        """Work out labels and pod. The values must be set, for this role and the others that expressions name."""
        self.values.put("extraLabels", self.values["labels"])
        self.values.put("labels", self._merged("labels"))
        self.values.put("podLabels", {**self.values["labels"], **self._merged("podLabels")})
        self.values.put("podAnnotations", self._merged("podAnnotations") or None)
        self.values.put("pod", finished_pod(self._merged("pod"), self.provenance))
        self.workload = self._merged("workload")

    def _sections(self, name: str) -> Iterator[tuple[Any, Place]]:
        for layer in self.layers:
            for group in self._groups:
                section = layer.section(group, name)
                if section is not None:
                    yield section

    def _merged(self, name: str) -> dict[str, Any]:
        merged: Any = {}
        for value, place in self._sections(name):
            merged = merge(merged, evaluate_tree(value, self._context, place), place, self.provenance, (name,))
        return dict(merged)

    def objects(self) -> Iterator[BundleObject]:
        """Objects that layers add for this role."""
        for value, place in self._sections("objects"):
            for index, entry in enumerate(value):
                yield as_object(evaluate_tree(entry, self._context, place.at(index)))

    def wrapped(self, wrapper: Any, place: Place, kind: str) -> Any:
        """The role inside its workload's wrapper, with the layers' own changes to that kind."""
        content = evaluate_tree(wrapper, self._context, place)
        patch = self.workload.get(kind)
        if not patch:
            return content
        if "object" in content:
            return {**content, "object": merge(content["object"], patch, place, self.provenance, ("workload",))}
        return merge(content, patch, place, self.provenance, ("workload",))


def as_object(entry: Mapping[str, Any]) -> BundleObject:
    """A layer's ``{file, object}`` as an object of the bundle, its remarks set apart."""
    notes: dict[KeyPath, str] = {}
    return BundleObject(entry["file"], plain(entry["object"], notes), notes)


def finished_pod(pod: dict[str, Any], provenance: Provenance) -> dict[str, Any]:
    """The pod with argv in place of merged arguments.

    Raises `BlueprintError` for a container without an image: a layer that patches a container under a name that no
    other layer gives it ends there.
    """
    finished = dict(pod)
    for part in ("initContainers", "containers"):
        if part in pod:
            finished[part] = [_finished_container(part, container, pod, provenance) for container in pod[part]]
    return finished


def _finished_container(
    part: str, container: Mapping[str, Any], pod: Mapping[str, Any], provenance: Provenance
) -> dict[str, Any]:
    name = container.get("name")
    if "image" not in container:
        path: KeyPath = ("pod", part, str(name))
        place = next((place for known, place in provenance.places.items() if known[:3] == path), None)
        others = [
            item["name"] for kind in ("initContainers", "containers") for item in pod.get(kind, ()) if "image" in item
        ]
        raise BlueprintError(
            f"overrides {part} {name!r}, which no layer defines", origin=str(place or "blueprints"), nearest=others
        )
    finished = {key: value for key, value in container.items() if key != "$shell"}
    if "$shell" in container:
        return {**finished, **in_shell(container["$shell"], container.get("command", ()), container.get("args", ()))}
    if "args" in container:
        finished["args"] = tokens_of(container["args"])
    return finished
