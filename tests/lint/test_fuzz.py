"""Whatever becomes of a bundle, lint answers with findings or with silence, never with a traceback."""

from __future__ import annotations

import difflib
import traceback
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmdeploy.lint import index, reading, run
from mmdeploy.lint.findings import as_finding, rules
from tests.lint.harness import base_files, resolver

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

SPECS: tuple[dict[str, Any], ...] = (
    {"topology": "e-pd", "workload": "Deployment", "monitoring": True},
    {"topology": "e-p-d", "release": "main", "workload": "DisaggregatedSet"},
    {"topology": "aggregation", "routing": "precise", "tracing": True},
    {"topology": "aggregation", "accelerator": "tpu/v7", "release": "v0.9"},
    {"topology": "e-pd", "server": "sglang"},
    {"topology": "e-pd", "release": "v0.8", "mode": "gateway", "gateway": {"gatewayClass": "istio"}},
)

SCALARS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**30, float("inf"), "", "x", "8000", "0x10", "{", '{"a": 1', "--", "-", "$(A)",
    "[]", "\u2028", "1Gi", "-5Mi", "v0.10.0", "main", "a/b:c@d", [], {}, [None], [[]], {"name": None}, {"": {"": []}},
    [{"name": 1}, 2, None, "x"], {"matchLabels": 3}, "2024-01-01",
)  # fmt: skip


class Changed(dict[str, str]):
    """Files that say how they differ from a bundle; hypothesis prints this."""

    base: dict[str, str]

    def __repr__(self) -> str:
        changed = (
            "".join(
                difflib.unified_diff(
                    old.splitlines(True),
                    self.get(path, "").splitlines(True),
                    path,
                    path if path in self else "gone",
                    n=1,
                )
            )
            for path, old in self.base.items()
        )
        return "\n" + "".join(changed)[:4000]


@st.composite
def bundles(draw: st.DrawFn) -> Changed:
    base = base_files(draw(st.sampled_from(SPECS)))
    files = Changed(base)
    files.base = {path: _plain(text) for path, text in base.items()}
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(sorted(files)))
        files[path] = draw(st.sampled_from((_in_the_tree, _in_the_configuration, _in_the_text)))(draw, files[path])
    if draw(st.integers(0, 5)) == 0:
        del files[draw(st.sampled_from(sorted(files)))]
    return files


def _plain(text: str) -> str:
    """As it is dumped, so that a difference shows the change alone."""
    return yaml.safe_dump(yaml.load(text, Loader=_LOADER), sort_keys=False)


def _in_the_tree(draw: st.DrawFn, text: str) -> str:
    try:
        value = yaml.load(text, Loader=_LOADER)
    except (yaml.YAMLError, ValueError):
        return text
    return yaml.safe_dump(_changed(draw, value), sort_keys=False)


def _in_the_configuration(draw: st.DrawFn, text: str) -> str:
    """The same to the endpoint picker's configuration inside the values."""
    try:
        value = yaml.load(text, Loader=_LOADER)
        files = value["router"]["epp"]["pluginsCustomConfig"]
        name = draw(st.sampled_from(sorted(files)))
        config = yaml.load(files[name], Loader=_LOADER)
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError):
        return _in_the_tree(draw, text)
    files[name] = yaml.safe_dump(_changed(draw, config), sort_keys=False)
    return yaml.safe_dump(value, sort_keys=False)


def _changed(draw: st.DrawFn, value: Any) -> Any:
    """Drop, rename, replace or double one thing somewhere below."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 7)) == 0:
        return draw(st.sampled_from(SCALARS))
    if isinstance(value, dict):
        key = draw(st.sampled_from(list(value)))
        what = draw(st.sampled_from(("below", "below", "below", "below", "drop", "rename")))
        if what == "below":
            return {**value, key: _changed(draw, value[key])}
        kept = {name: item for name, item in value.items() if name != key}
        return kept if what == "drop" else {**kept, draw(st.sampled_from(("x", 1, "name", "kind", None))): value[key]}
    at = draw(st.integers(0, len(value) - 1))
    what = draw(st.sampled_from(("below", "below", "below", "drop", "double")))
    if what == "below":
        return [*value[:at], _changed(draw, value[at]), *value[at + 1 :]]
    return [*value[:at], *([value[at]] * (2 if what == "double" else 0)), *value[at + 1 :]]


def _in_the_text(draw: st.DrawFn, text: str) -> str:
    at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 40))
    what = draw(st.sampled_from(("cut", "remove", "insert", "repeat")))
    if what == "cut":
        return text[:at]
    if what == "remove":
        return text[:at] + text[at + length :]
    if what == "repeat":
        return text[: at + length] + text[at:]
    return (
        text[:at]
        + draw(
            st.sampled_from(("\t", "\x00", "\r", "'", '"', "{", "]", "\n---\n", ": ", "&a ", "*a", "#", "é", "!!x "))
        )
        + text[at:]
    )


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(bundles(), st.sampled_from((None, "v0.8", "v0.9", "main")))
def test_no_change_makes_a_traceback(files: dict[str, str], release: str | None) -> None:
    deployment = index.index(resolver().catalog, reading.read_files(files), release)
    problems = []
    for item in rules():
        try:
            for found in item.check(deployment):
                as_finding(found, item)
        except Exception:
            problems.append(f"{item.code}:\n{traceback.format_exc(limit=-3)}")
    if problems:
        pytest.fail("\n".join(problems))
    run.run(deployment, run.select([], []), strict=True)


KEYS = (
    "kind", "apiVersion", "metadata", "spec", "router", "plugins", "name", "template", "containers", "items", "data",
    "schedulingProfiles", "args", "env", "roles", "labels", "selector", "epp", "modelServers", "matchLabels",
    "pluginsCustomConfig", "namespace",
)  # fmt: skip


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.recursive(
        st.sampled_from(SCALARS),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
        max_leaves=30,
    )
)
def test_no_document_makes_a_traceback(value: Any) -> None:
    for extra in ({}, {"kind": "Deployment"}, {"kind": "ConfigMap"}, {"kind": "EndpointPickerConfig"}):
        document = {**value, **extra} if isinstance(value, dict) else value
        text = yaml.safe_dump(document)
        run.run(index.index(resolver().catalog, reading.read_files({"a.yaml": text})), run.select([], []), strict=True)
