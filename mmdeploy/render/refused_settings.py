"""Settings of a role that would break what the deployment is wired to: arguments, variables, labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mmdeploy.render.arguments import flag_of, group
from mmdeploy.render.refusing import refuse

if TYPE_CHECKING:
    from mmdeploy.render.resolve import Resolution

_LABEL_KEY = re.compile(
    r"(?:(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def extra_arguments_are_free(resolution: Resolution) -> None:
    """Engine arguments that other parts of the deployment are wired to."""
    owned = resolution.catalog.engine_flags.get(resolution.facts["server"], {})
    for name in resolution.roles:
        for argument in group(resolution.said.get(name, {}).get("extraArgs") or []):
            flag = flag_of(argument)
            entry = owned.get(flag.split(".")[0]) if flag else None
            if entry is None or entry.get("routing", resolution.facts["routing"]) != resolution.facts["routing"]:
                continue
            field = entry.get("field")
            target = field if field and entry.get("top") else f"{name}.{field}" if field else None
            why = f"it has a field of its own, {target}" if target else entry["why"]
            raise refuse(
                resolution, (name, "extraArgs"), f"{name}.extraArgs sets {flag}, which is not free: {why}",
                [f"{target}=…"] if target else None, f"remove {flag} from extraArgs",
            )  # fmt: skip


def variables_have_one_source(resolution: Resolution) -> None:
    """A variable with a value and a source of values, or with neither: Kubernetes refuses it."""
    for name in resolution.roles:
        for variable, value in (resolution.said.get(name, {}).get("extraEnv") or {}).items():
            if isinstance(value, Mapping) and len({"value", "valueFrom"} & set(value)) != 1:
                raise refuse(
                    resolution, (name, "extraEnv", variable),
                    f"{name}.extraEnv.{variable} needs either value or valueFrom, not {', '.join(value) or 'nothing'}",
                    [f"{name}.extraEnv.{variable}=TEXT"], "give the variable one source",
                )  # fmt: skip


def labels_are_legal(resolution: Resolution) -> None:
    """Labels that Kubernetes refuses, or that the deployment itself needs."""
    reserved = set(resolution.catalog.labels.values())
    for name, build in resolution.roles.items():
        reserved |= build.label_keys()
        for kind in ("labels", "annotations", "nodeSelector"):
            for key, value in (build.values.plain(kind) or {}).items():
                path = (name, kind, key)
                if not _LABEL_KEY.fullmatch(key):
                    raise refuse(resolution, path, f"{name}.{kind}: {key!r} is not a legal key")
                if kind != "annotations" and not _LABEL_VALUE.fullmatch(value):
                    raise refuse(
                        resolution, path, f"{name}.{kind}: {value!r} is not a legal value of {key}",
                        [re.sub(r"[^A-Za-z0-9._-]", "-", value)[:63].strip("-._")],
                        "a value has at most 63 letters, digits, '-', '_' and '.'",
                    )  # fmt: skip
                if kind == "labels" and key in reserved:
                    raise refuse(
                        resolution, path, f"{name}.labels sets {key}, which pools and selectors are made from", None,
                        "remove it; the deployment sets it",
                    )  # fmt: skip
