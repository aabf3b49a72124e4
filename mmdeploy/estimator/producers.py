"""Which estimate the router works with, read out of files that anybody may have written.

The files are Helm values of the router's chart, a rendered chart, or the endpoint picker's configuration itself. What
the router does with several, renamed or missing token-producers is in facts router.md sections 1.1 and 1.3 and
router-observed.md ("Wrong configurations").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from mmdeploy.documents import parse, parse_all, read
from mmdeploy.errors import UsageError
from mmdeploy.estimator.router import DEFAULT_FACTOR, DEFAULT_HEIGHT, DEFAULT_WIDTH

PRODUCER = "token-producer"
LEGACY_PRODUCER = "tokenizer"
"""The type's old name; routers up to v0.10.0 still take it."""

KIND = "EndpointPickerConfig"

_CHART_FILES = ("default-plugins.yaml", "payload-agnostic.yaml")
"""Files that the chart puts into every rendered ConfigMap."""

_BUILT_IN = f"the built-in defaults ({DEFAULT_WIDTH}x{DEFAULT_HEIGHT}, {DEFAULT_FACTOR} pixels a token)"
_PARAMETERS = ("estimate", "vllm", "modelName", "udsTokenizerConfig")


@dataclass(frozen=True)
class Producer:
    """The token-producer that the router's plugins use."""

    origin: str
    """Where it stands, or why the defaults hold."""
    estimate: Mapping[str, Any] | None = None
    """The ``estimate:`` block; None is the built-in defaults."""
    precise: bool = False
    """True when the router asks a model server for real token counts."""
    remarks: tuple[str, ...] = ()
    """What a person should know about how it was found."""


def from_text(text: str, name: str) -> Producer:
    """The producer of the router that runs with the file called ``name``.

    Raises `UsageError` for a file that holds no configuration of a router, for several configurations, and for one
    with which the router does not start.
    """
    documents = parse_all(text, name)
    configurations = _in_use([found for value in documents for found in _configurations(value, name)], documents)
    if not configurations:
        raise UsageError(
            "holds no configuration of a router",
            origin=name,
            next_step=f"give Helm values with router.epp.pluginsCustomConfig, a rendered chart, or an {KIND}",
        )
    if len(configurations) > 1:
        places = ", ".join(found.where for found in configurations)
        raise UsageError(
            f"holds {len(configurations)} configurations of a router: {places}", origin=name, next_step="give one"
        )
    return _producer(configurations[0].content, configurations[0].where)


@dataclass(frozen=True)
class _Found:
    """A picker configuration, where it stands, and its file name when it lies in a ConfigMap."""

    where: str
    content: Mapping[str, Any]
    key: str = ""


def _configurations(value: Any, name: str) -> Iterator[_Found]:
    """Every picker configuration in one document."""
    if not isinstance(value, Mapping):
        return
    if _is_configuration(value):
        yield _Found(name, value)
    elif value.get("kind") == "ConfigMap":
        label = f"{name}, ConfigMap {_name(value)}"
        for key, text in _mapping(value.get("data")).items():
            inner = _read(text, f"{label}, {key}") if "plugins:" in str(text) else None
            if _is_configuration(inner):
                yield _Found(f"{label}, {key}", inner, str(key))
    elif str(value.get("kind", "")).endswith("List"):
        for item in value.get("items") or ():
            yield from _configurations(item, name)
    elif "kind" not in value:
        yield from _values(value, name)


def _in_use(found: list[_Found], documents: list[Any]) -> list[_Found]:
    """Those that a picker in ``documents`` starts with, or else those that the chart does not bring along."""
    if len(found) < 2:
        return found
    started = set(_config_files(documents))
    named = [each for each in found if each.key in started]
    return named or [each for each in found if each.key not in _CHART_FILES]


def _config_files(value: Any) -> Iterator[str]:
    """File names that follow ``--config-file`` anywhere in the arguments of containers."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _config_files(item)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            if isinstance(item, str) and item.lstrip("-").startswith("config-file"):
                path = item.partition("=")[2] or (value[at + 1] if at + 1 < len(value) else "")
                yield str(path).rpartition("/")[2]
            else:
                yield from _config_files(item)


def _is_configuration(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and (value.get("kind") == KIND or isinstance(value.get("plugins"), list))


def _values(values: Mapping[str, Any], name: str) -> Iterator[_Found]:
    """The configuration in Helm values: today's keys, and those from before chart v0.9.0."""
    for path, picker in (
        ("router.epp", _mapping(_mapping(values.get("router")).get("epp"))),
        ("inferenceExtension", _mapping(values.get("inferenceExtension"))),
    ):
        if isinstance(picker.get("pluginsConfig"), Mapping) and picker["pluginsConfig"]:
            yield _Found(f"{name}, {path}.pluginsConfig", picker["pluginsConfig"])
            continue
        custom, wanted = _mapping(picker.get("pluginsCustomConfig")), picker.get("pluginsConfigFile")
        if not custom:
            continue
        if not isinstance(wanted, str) or wanted not in custom:
            said = f"names {wanted!r}" if wanted else "is missing"
            raise UsageError(
                f"{path}.pluginsConfigFile {said}, but pluginsCustomConfig holds {', '.join(map(repr, custom))}: the "
                "router does not read it",
                origin=name,
                nearest=[str(key) for key in custom],
            )
        where = f"{name}, {path}.pluginsCustomConfig, {wanted}"
        content = _read(custom[wanted], where)
        if not isinstance(content, Mapping):
            raise UsageError(f"is no {KIND}", origin=where)
        yield _Found(where, content)


def _producer(configuration: Mapping[str, Any], where: str) -> Producer:
    """The one plugin among ``plugins`` that consumers get their token counts from."""
    plugins = configuration.get("plugins")
    if not isinstance(plugins, list | None) or not all(isinstance(plugin, Mapping) for plugin in plugins or ()):
        raise UsageError("the router does not start: plugins must be a list of mappings", origin=where)
    declared = [
        (str(plugin.get("name") or plugin["type"]), plugin)
        for plugin in plugins or ()
        if plugin.get("type") in (PRODUCER, LEGACY_PRODUCER)
    ]
    heard = [plugin for name, plugin in declared if name == PRODUCER]
    unheard = [name for name, _ in declared if name != PRODUCER]
    if len(heard) > 1:
        raise UsageError(f"the router does not start: duplicate plugin name {PRODUCER!r}", origin=where)
    producers = [_configured(plugin.get("parameters"), where) for _, plugin in declared]
    if heard:
        chosen = producers[[name for name, _ in declared].index(PRODUCER)]
        remarks = tuple(f"the {PRODUCER} named {name!r} is not listened to" for name in unheard)
        return Producer(where, chosen.estimate, chosen.precise, remarks)
    if unheard:
        return Producer(
            f"{where} (built-in defaults)",
            remarks=(
                f"the {PRODUCER} is named {unheard[0]!r}, but every consumer listens to the name {PRODUCER!r}: the "
                f"router makes a second one with {_BUILT_IN}, and that one decides. Take the name away",
            ),
        )
    return Producer(
        f"{where} (built-in defaults)",
        remarks=(
            f"there is no {PRODUCER}: when a plugin asks for token counts, the router makes one with {_BUILT_IN}",
        ),
    )


def _configured(parameters: Any, where: str) -> Producer:
    """The mode that parameters select. Raises `UsageError` for what stops the router."""
    if not isinstance(parameters, Mapping | None):
        raise UsageError(f"the router does not start: parameters of {PRODUCER} must be a mapping", origin=where)
    spelt = {known.lower(): known for known in _PARAMETERS}
    given: dict[str, Any] = {}
    for key, value in (parameters or {}).items():
        if str(key).lower() not in spelt:
            known = ", ".join(_PARAMETERS[:3])
            raise UsageError(f"the router does not start: {PRODUCER} has no parameter {key!r} ({known})", origin=where)
        if value is not None:
            given[spelt[str(key).lower()]] = value
    asks = "vllm" in given or bool(given.get("modelName")) or bool(_mapping(given.get("udsTokenizerConfig")))
    if "estimate" in given and asks:
        raise UsageError(
            f"the router does not start: {PRODUCER} takes only one of 'estimate', 'vllm' or 'udsTokenizerConfig', and "
            "modelName selects vllm",
            origin=where,
        )
    if asks and not given.get("modelName"):
        raise UsageError("the router does not start: 'modelName' must be specified", origin=where)
    return Producer(where, given.get("estimate"), precise=asks)


def _read(content: Any, where: str) -> Any:
    """A configuration that stands in the file as text, or as a mapping."""
    return parse(content, where).value if isinstance(content, str) else content


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _name(value: Mapping[str, Any]) -> str:
    return str(_mapping(value.get("metadata")).get("name", "without a name"))


def from_estimate(text: str) -> Producer:
    """The producer with one ``estimate:`` block: written out (``{...}``), or the name of the file that holds it.

    The block may have the key ``estimate`` on top, as ``render --estimator`` takes it. Raises `UsageError`.
    """
    inline = text.lstrip().startswith("{")
    name = "--estimator" if inline else text
    document = parse(text, name) if inline else read(Path(text))
    value = document.value
    if isinstance(value, Mapping) and set(value) == {"estimate"}:
        value = value["estimate"]
    if not isinstance(value, Mapping):
        raise UsageError("an estimate is a mapping with image: and video:", origin=document.origin(()))
    return Producer(name, value)
