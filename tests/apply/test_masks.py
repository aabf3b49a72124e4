"""Nothing secret is in a difference, wherever it stands, and what is no secret can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmdeploy.apply.comparison.differences import differences
from mmdeploy.apply.comparison.masks import masked, text
from mmdeploy.secrecy import MASK, secret_name

SECRET = "s3cr3t-of-" + "somebody"
OTHER = "another-s3cr3t"
TOKEN = "hf_" + "AbCdEfGhIjKlMnOpQr"  # the form of a Hugging Face token, made up


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "modelserver", **fields}]}}


HIDDEN = {
    "data of a Secret": ("Secret", {"data": {"HF_TOKEN": SECRET}}, {"data": {"HF_TOKEN": OTHER}}),
    "a key of a Secret that is new": ("Secret", {"data": {"a": "eA=="}}, {"data": {"a": "eA==", "b": SECRET}}),
    "a Secret that had no data": ("Secret", {}, {"stringData": {"plain": SECRET}}),
    "a variable": (
        "Deployment",
        container(env=[{"name": "HF_TOKEN", "value": SECRET}]),
        container(env=[{"name": "HF_TOKEN", "value": OTHER}]),
    ),
    "a variable that is new": ("Deployment", container(env=[]), container(env=[{"name": "API_KEY", "value": SECRET}])),
    "a whole container": (
        "Deployment",
        {"spec": {"containers": []}},
        container(env=[{"name": "HF_TOKEN", "value": SECRET}], args=["--api-key", SECRET, f"--hf-token={OTHER}"]),
    ),
    "a flag": ("Deployment", container(args=[f"--api-key={SECRET}"]), container(args=["--api-key", OTHER])),
    "a flag in a script": (
        "Deployment",
        container(args=["-c", f"vllm serve m \\\n  --api-key {SECRET}\n"]),
        container(args=["-c", f"vllm serve m \\\n  --api-key '{OTHER}'\n"]),
    ),
    "a flag whose value stands on the next line": (
        "Deployment",
        container(args=["-c", f"vllm serve m --api-key \\\n  {SECRET} \\\n  --x\n"]),
        container(args=["-c", f"vllm serve m --api-key \\\n  {OTHER} \\\n  --x\n"]),
    ),
    "a variable in a script": (
        "Deployment",
        container(args=["-c", f"export HF_TOKEN={SECRET}\nrun\n"]),
        container(args=["-c", f'export HF_TOKEN="{OTHER}"\nrun\n']),
    ),
    "Helm values": ("", {"router": {"epp": {"password": SECRET}}}, {"router": {"epp": {"password": OTHER}}}),
    "a variable in Helm values": (
        "",
        {"router": {"epp": {"env": [{"name": "A_SECRET", "value": SECRET}]}}},
        {"router": {"epp": {"env": [{"name": "A_SECRET", "value": OTHER}]}}},
    ),
    "a header in a configuration": (
        "ConfigMap",
        {"data": {"c.yaml": f"headers:\n  Authorization: Bearer {SECRET}\n"}},
        {"data": {"c.yaml": f"headers:\n  Authorization: Bearer {OTHER}\n"}},
    ),
    "a text that is no document": (
        "ConfigMap",
        {"data": {"notes": f"- name: HF_TOKEN\n  value: {SECRET}\n- name: HF_TOKEN\n*\n"}},
        {"data": {"notes": f"- name: HF_TOKEN\n  value: {OTHER}\n- name: HF_TOKEN\n*\n"}},
    ),
    "an address": (
        "Deployment",
        container(env=[{"name": "HTTPS_PROXY", "value": f"http://me:{SECRET}@proxy:3128"}]),
        container(env=[{"name": "HTTPS_PROXY", "value": f"http://me:{OTHER}@proxy:3128"}]),
    ),
}
"""Place → kind, and two objects that differ in a secret there."""


@pytest.mark.parametrize(("kind", "before", "after"), HIDDEN.values(), ids=HIDDEN)
def test_a_secret_is_told_to_change_and_not_shown(kind: str, before: Any, after: Any) -> None:
    found = differences(before, after)
    assert found
    told = [masked(item, kind) for item in found]
    said = json.dumps([[item.path, item.before, item.after, item.lines] for item in told])
    assert SECRET not in said
    assert OTHER not in said
    assert MASK in said


def test_what_looks_like_a_token_is_hidden_under_any_name() -> None:
    assert text(f"cache at {TOKEN}/models") == f"cache at {MASK}/models"


def test_a_private_key_is_hidden_line_by_line() -> None:
    before = "x\n"
    after = "x\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nend\n"
    (item,) = differences({"data": {"k": before}}, {"data": {"k": after}})
    assert masked(item, "ConfigMap").lines == (" x", *[f"+{MASK}"] * 4, "+end")


SHOWN = {
    "a reference to a Secret": container(
        env=[{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "llm-d-hf-token", "key": "HF_TOKEN"}}}]
    ),
    "a volume of a Secret": {"spec": {"volumes": [{"name": "v", "secret": {"secretName": "hf"}}]}},
    "a number of tokens": container(args=["--max-num-batched-tokens=8192"]),
    "a switch": {"automountServiceAccountToken": False},
    "a plugin that is called after tokens": {"plugins": [{"type": "token-producer", "weight": 2}]},
    "a tokenizer": container(args=["--tokenizer=Qwen/Qwen3-VL-32B-Instruct"]),
    "metrics without authentication": container(args=["--metrics-endpoint-auth=false"]),
}


@pytest.mark.parametrize("after", SHOWN.values(), ids=SHOWN)
def test_what_is_no_secret_is_shown(after: Any) -> None:
    for item in differences({}, after):
        assert masked(item, "Deployment") == item


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "apiKey", "--api-key", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "privateKey"]
)
def test_names_of_secrets(name: str) -> None:
    assert secret_name(name)


@pytest.mark.parametrize("name", ["key", "tokenizer", "secretName", "HF_TOKEN_PATH", "eos_token_id", "max_tokens", ""])
def test_names_of_other_things(name: str) -> None:
    assert not secret_name(name)
