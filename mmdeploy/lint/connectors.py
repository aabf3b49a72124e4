"""EC and KV connectors of vLLM engines, as the engine will see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.commands import NotJsonError
from mmdeploy.lint.peers import arguments, opaque
from mmdeploy.lint.pods import Engine

EC, KV = "--ec-transfer-config", "--kv-transfer-config"


def config_of(engine: Engine, flag: str) -> dict[str, Any] | None:
    """The object of a transfer flag; None where it is absent or cannot be read."""
    try:
        return engine.command.json(flag)
    except NotJsonError:
        return None


def readable(engine: Engine, flag: str) -> bool:
    """Whether the absence of a transfer configuration (or of a key in it) can be told."""
    if opaque(engine) or engine.kind != "vllm":
        return False
    try:
        engine.command.json(flag)
    except NotJsonError:
        return False
    given = engine.command.last(flag)
    return given is None or not given.value or not given.value.startswith("$")


def place(engine: Engine, flag: str, *keys: str) -> KeyPath:
    """Where a key of a transfer configuration stands: its dotted flag, the JSON argument, or the argument list."""
    dotted = {_spelt_alike(item.name): item for item in engine.command.flags}
    for length in range(len(keys), -1, -1):
        found = dotted.get(".".join((flag, *keys[:length])))
        if found is not None:
            return found.value_path or found.path
    below = [item for item in engine.command.flags if item.name.startswith(flag + ".")]
    return below[0].path if below else arguments(engine.container)


def _spelt_alike(name: str) -> str:
    """A dotted flag with the underscores that its keys have in JSON."""
    flag, dot, keys = name.partition(".")
    return flag + dot + keys.replace("-", "_")


def extra(config: Mapping[str, Any] | None, kind: str) -> Mapping[str, Any]:
    """The free-form configuration of a connector; ``kind`` is ``ec`` or ``kv``."""
    value = (config or {}).get(f"{kind}_connector_extra_config")
    return value if isinstance(value, Mapping) else {}


def name_of(config: Mapping[str, Any] | None, kind: str) -> str | None:
    """The connector's name, if it is one."""
    name = (config or {}).get(f"{kind}_connector")
    return name if isinstance(name, str) and "$" not in name else None


def caches(engine: Engine) -> Iterator[Mapping[str, Any]]:
    """KV configurations of an engine, with the members of a MultiConnector one by one."""
    config = config_of(engine, KV)
    if config is None:
        return
    yield config
    members = extra(config, "kv").get("connectors")
    for member in members if isinstance(members, list) else ():
        if isinstance(member, Mapping):
            yield member


def cache_names(engine: Engine) -> list[str]:
    """Names of the KV connectors of an engine, members of a MultiConnector included."""
    found = (name_of(config, "kv") for config in caches(engine))
    return [name for name in found if name is not None and name != "MultiConnector"]
