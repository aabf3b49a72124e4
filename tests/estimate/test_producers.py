"""The estimate that a router works with, found in files that anybody may have written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from mmdeploy.errors import UsageError
from mmdeploy.estimator.producers import Producer, from_estimate, from_text

BLOCK = {"image": {"mode": "static", "static": {"staticToken": 7}}}


def config(*producers: dict[str, Any]) -> dict[str, Any]:
    plugins = [{"type": "queue-scorer"}, *({"type": "token-producer", **producer} for producer in producers)]
    return {"kind": "EndpointPickerConfig", "plugins": plugins}


ONE = config({"parameters": {"estimate": BLOCK}})
OTHER = config({"parameters": {"modelName": "m", "vllm": {"url": "http://localhost:8000"}}})


def found(*documents: Any) -> Producer:
    return from_text(yaml.safe_dump_all(documents), "f")


def values(content: Any, name: str = "a.yaml", **more: Any) -> dict[str, Any]:
    return {"router": {"epp": {"pluginsConfigFile": name, "pluginsCustomConfig": {"a.yaml": content}, **more}}}


def chart(**files: dict[str, Any]) -> dict[str, Any]:
    texts = {name.replace("_", "-") + ".yaml": yaml.safe_dump(content) for name, content in files.items()}
    return {"kind": "ConfigMap", "metadata": {"name": "mm-epp"}, "data": {**texts, "note": "plugins: none here"}}


def deployment(*args: str) -> dict[str, Any]:
    return {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"name": "epp", "args": list(args)}]}}}}


@pytest.mark.parametrize(
    "documents",
    [
        [ONE],
        [{"plugins": ONE["plugins"]}],
        [values(yaml.safe_dump(ONE))],
        [values(ONE)],
        [{"router": {"epp": {"pluginsConfig": ONE}}}],
        [{"inferenceExtension": values(ONE)["router"]["epp"]}],
        [chart(mine=ONE)],
        [{"kind": "Secret"}, None, chart(default_plugins=OTHER, mine=ONE, payload_agnostic=OTHER)],
        [chart(mine=OTHER, yours=ONE), deployment("--v=2", "--config-file", "/config/yours.yaml")],
        [chart(mine=OTHER, yours=ONE), deployment("--config-file=/config/yours.yaml")],
        [{"kind": "List", "items": [chart(mine=ONE)]}],
    ],
    ids=lambda documents: str(documents)[:60],
)
def test_the_block_is_found(documents: list[Any]) -> None:
    producer = found(*documents)
    assert producer.estimate == BLOCK
    assert not producer.precise
    assert producer.remarks == ()


@pytest.mark.parametrize("parameters", [{"modelName": "m"}, {"modelName": "m", "vllm": {}}, {"ModelName": "m"}])
def test_real_tokens(parameters: dict[str, Any]) -> None:
    assert found(config({"parameters": parameters})).precise


@pytest.mark.parametrize("parameters", [None, {}, {"estimate": None}, {"estimate": {}}])
def test_nothing_said_is_all_defaults(parameters: Any) -> None:
    producer = found(config({"parameters": parameters}))
    assert not producer.estimate
    assert not producer.precise


def test_a_renamed_producer_loses_to_one_with_defaults() -> None:
    producer = found(config({"name": "mine", "parameters": {"estimate": BLOCK}}))
    assert producer.estimate is None
    assert "'mine'" in producer.remarks[0]
    assert "640x360" in producer.remarks[0]


def test_of_several_the_one_with_its_own_name_counts() -> None:
    producer = found(config({"name": "mine"}, {"parameters": {"estimate": BLOCK}}))
    assert producer.estimate == BLOCK
    assert "'mine'" in producer.remarks[0]


def test_none_at_all_means_defaults() -> None:
    producer = found(config())
    assert producer.estimate is None
    assert "640x360" in producer.remarks[0]


@pytest.mark.parametrize(
    ("documents", "why"),
    [
        ([config({}, {})], "duplicate plugin name"),
        ([config({"parameters": {"estimat": {}}})], "no parameter 'estimat'"),
        ([config({"parameters": {"estimate": {}, "modelName": "m"}})], "only one of"),
        ([config({"parameters": {"vllm": {}}})], "modelName"),
        ([config({"parameters": []})], "must be a mapping"),
        ([{"kind": "EndpointPickerConfig", "plugins": {"a": 1}}], "must be a list"),
        ([{"plugins": ["token-producer"]}], "must be a list"),
        ([values(ONE, "b.yaml")], "'b.yaml'"),
        ([values("just text")], "is no EndpointPickerConfig"),
        ([{"replicas": 1}], "no configuration"),
        (["text"], "no configuration"),
        ([], "no configuration"),
        ([chart(mine=ONE, yours=ONE)], "2 configurations"),
        ([ONE, ONE], "2 configurations"),
    ],
)
def test_what_cannot_be(documents: list[Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as refusal:
        found(*documents)
    assert refusal.value.origin
    assert refusal.value.origin.startswith("f")


def test_text_inside_text_says_where_it_is_wrong() -> None:
    with pytest.raises(UsageError) as refusal:
        found(values("plugins:\n- {type: token-producer"))
    assert refusal.value.origin == "f, router.epp.pluginsCustomConfig, a.yaml:3:1"


@pytest.mark.parametrize("text", ["{image: {mode: static, static: {staticToken: 7}}}", "{estimate: {image: {mode: static, static: {staticToken: 7}}}}"])  # fmt: skip  # noqa: E501
def test_an_estimate_may_be_written_out(text: str) -> None:
    assert from_estimate(text).estimate == BLOCK
