"""Correct bundles as other people write them: the same meaning in other words, on which lint must stay silent too."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

Files = Mapping[str, str]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _each_object(files: Files, change: Callable[[dict[str, Any]], Any]) -> dict[str, str]:
    """Files with every Kubernetes object changed; ``change`` returns what stands in its place (None: itself)."""
    result = dict(files)
    for path, text in files.items():
        value = yaml.load(text, Loader=_LOADER)
        if isinstance(value, dict) and "kind" in value and value["kind"] != "Kustomization":
            changed = change(value)
            result[path] = yaml.safe_dump(value if changed is None else changed, sort_keys=False, width=1000)
    return result


def _pod_specs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for item in value.values():
            yield from _pod_specs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _pod_specs(item)


def _engines(value: Any) -> Iterator[dict[str, Any]]:
    for spec in _pod_specs(value):
        for container in spec["containers"]:
            if "serve" in container.get("command", []) or "sglang.launch_server" in container.get("command", []):
                yield container


def renamed_containers(files: Files) -> dict[str, str]:
    """Another name for the model server, and ports without names."""

    def change(value: dict[str, Any]) -> None:
        for container in _engines(value):
            container["name"] = "engine"

    return _each_object(files, change)


def separated(files: Files) -> dict[str, str]:
    """``--flag value`` for ``--flag=value``."""

    def change(value: dict[str, Any]) -> None:
        for container in _engines(value):
            container["args"] = [
                part for word in container["args"] for part in (word.split("=", 1) if word.startswith("--") else [word])
            ]

    return _each_object(files, change)


def underscored(files: Files) -> dict[str, str]:
    """Underscores for dashes in the names of flags, which argparse takes as well."""

    def change(value: dict[str, Any]) -> None:
        for container in _engines(value):
            container["args"] = [re.sub(r"^--[a-z][a-z0-9-]*", _underscored, word) for word in container["args"]]

    return _each_object(files, change)


def _underscored(match: re.Match[str]) -> str:
    return "--" + match[0][2:].replace("-", "_")


def in_a_shell(files: Files) -> dict[str, str]:
    """The command as one string that a shell splits."""

    def change(value: dict[str, Any]) -> None:
        for container in _engines(value):
            words = [*container.pop("command"), *container["args"]]
            container["command"] = ["/bin/bash", "-lc"]
            container["args"] = ["set -e\nexec " + " \\\n  ".join(shlex.quote(word) for word in words) + "\n"]

    return _each_object(files, change)


def in_command(files: Files) -> dict[str, str]:
    """Everything in ``command``, and vLLM as a module."""

    def change(value: dict[str, Any]) -> None:
        for container in _engines(value):
            words = [*container["command"], *container.pop("args")]
            if words[:2] == ["vllm", "serve"]:
                words = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", *words[2:]]
            container["command"] = words

    return _each_object(files, change)


def dotted(files: Files) -> dict[str, str]:
    """JSON flags as dotted ones, which vLLM takes."""

    def change(value: dict[str, Any]) -> None:
        for container in _engines(value):
            container["args"] = list(_dotted(container["args"]))

    return _each_object(files, change)


def _dotted(words: list[str]) -> Iterator[str]:
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        if not equals and at + 1 < len(words) and words[at + 1].startswith("{"):
            value, at = words[at + 1], at + 1
        if name.endswith("-transfer-config") and value.startswith("{"):
            yield from (f"{name}.{'.'.join(path)}={leaf}" for path, leaf in _leaves(json.loads(value)))
        else:
            yield word
        at += 1


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def stateful(files: Files) -> dict[str, str]:
    """StatefulSets for Deployments."""

    def change(value: dict[str, Any]) -> None:
        if value["kind"] == "Deployment":
            value["kind"] = "StatefulSet"
            value["spec"]["serviceName"] = value["metadata"]["name"]
            for key in ("strategy", "progressDeadlineSeconds", "minReadySeconds"):
                value["spec"].pop(key, None)

    return _each_object(files, change)


def listed(files: Files) -> dict[str, str]:
    """All objects as one List in JSON, without a kustomization."""
    items: list[Any] = []
    _each_object(files, items.append)
    kept = {path: text for path, text in files.items() if path.startswith("router/") or path == "mmdeploy.yaml"}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2)
    return {**kept, "all.json": text}


def windows(files: Files) -> dict[str, str]:
    """CRLF, and a byte order mark."""
    return {path: "\ufeff" + text.replace("\n", "\r\n") for path, text in files.items()}


def charted(files: Files) -> dict[str, str]:
    """What the chart makes of the values in place of the values: the configuration's ConfigMap and the pool."""
    result = dict(files)
    values = yaml.load(result.pop("router/values.yaml"), Loader=_LOADER)
    epp, servers = values["router"]["epp"], values["router"]["modelServers"]
    objects = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "router-epp"},
            "data": epp["pluginsCustomConfig"],
        },
        {
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": {"name": "router"},
            "spec": {
                "selector": {"matchLabels": servers["matchLabels"]},
                "targetPorts": servers.get("targetPorts") or [{"number": 8000}],
                "endpointPickerRef": {"name": "router-epp", "port": {"number": 9002}, "failureMode": "FailOpen"},
            },
        },
    ]
    result["router/rendered.yaml"] = "---\n".join(yaml.safe_dump(item, sort_keys=False) for item in objects)
    return result


SPELLINGS: dict[str, Callable[[Files], dict[str, str]]] = {
    item.__name__: item
    for item in (
        renamed_containers, separated, underscored, in_a_shell, in_command, dotted, stateful, listed, windows, charted
    )
}  # fmt: skip
