"""The router's Helm values and endpoint picker configuration, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.errors import BlueprintError
from mmdeploy.render.deployment import BundleObject, ResolvedRouter
from mmdeploy.render.expressions import Place, evaluate_tree, plain
from mmdeploy.render.layers import Layer, Stack
from mmdeploy.render.merge import Provenance, merge
from mmdeploy.render.pods import as_object
from mmdeploy.words import nearest


def resolve_router(
    stack: Stack, facts: Mapping[str, Any], context: Mapping[str, Any], provenance: Provenance
) -> tuple[ResolvedRouter, list[BundleObject]]:
    """The router's configuration and the objects that its layers add (a Gateway).

    Raises `BlueprintError` for layers that name no configuration file, or a profile that refers to no plugin.
    """
    layers = stack.select(stack.router, facts)
    inner = dict(context)
    for name in ("poolSelector", "configFile"):
        inner[name] = _last(layers, name, inner)
    values: Any = {}
    config: Any = {}
    objects = []
    for layer in layers:
        for name in ("values", "config"):
            if name in layer.value:
                place = Place(layer.document, (name,))
                patch = evaluate_tree(layer.value[name], inner, place)
                if name == "values":
                    values = merge(values, patch, place, provenance, ("values",))
                else:
                    config = merge(config, patch, place, provenance, ("config",))
        for index, entry in enumerate(layer.value.get("objects", ())):
            objects.append(as_object(evaluate_tree(entry, inner, Place(layer.document, ("objects", index)))))
    _check_references(config, layers, provenance)
    values_notes: dict[KeyPath, str] = {}
    config_notes: dict[KeyPath, str] = {}
    router = ResolvedRouter(
        values=plain(values, values_notes),
        configFile=inner["configFile"],
        config=plain(config, config_notes),
        valuesNotes=values_notes,
        configNotes=config_notes,
    )
    return router, objects


def _last(layers: list[Layer], name: str, context: Mapping[str, Any]) -> Any:
    for layer in reversed(layers):
        if name in layer.value:
            return evaluate_tree(layer.value[name], context, Place(layer.document, (name,)))
    raise BlueprintError(f"no router layer of this deployment says {name}", origin="blueprints/stack.yaml")


def _check_references(config: Mapping[str, Any], layers: list[Layer], provenance: Provenance) -> None:
    declared = {plugin.get("name", plugin.get("type")) for plugin in config["plugins"]}
    for profile in config["schedulingProfiles"]:
        for entry in profile["plugins"]:
            name = entry["pluginRef"]
            if name not in declared:
                path = ("config", "schedulingProfiles", profile["name"], "plugins", name, "pluginRef")
                raise BlueprintError(
                    f"profile {profile['name']!r} refers to {name!r}, which no layer declares",
                    origin=str(provenance.places.get(path, layers[-1].document.name)),
                    nearest=nearest(name, sorted(str(known) for known in declared)),
                )
