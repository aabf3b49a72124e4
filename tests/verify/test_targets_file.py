"""The targets file: what it means, and what its mistakes are told as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.errors import UsageError
from mmdeploy.verify import targets_file
from mmdeploy.verify.targets import from_data, token, with_configuration
from tests.verify.simulated import CATALOG, ROOT

CASES = yaml.safe_load((Path(__file__).parent / "targets-files.yaml").read_text(encoding="utf-8"))
WHOLE: dict[str, Any] = {
    "schemaVersion": 1,
    "kind": "Targets",
    "model": "Qwen/Qwen3-VL-32B-Instruct",
    "topology": "e-pd",
    "server": "vllm",
    "release": "main",
    "entry": {"url": "http://127.0.0.1:18080/"},
    "picker": [{"name": "epp-0", "metrics": "http://127.0.0.1:19090/metrics", "token": "env:PICKER_TOKEN"}],
    "roles": {
        "encode": [{"name": "encode-0", "url": "http://127.0.0.1:18201"}],
        "decode": [
            {
                "name": "decode-0",
                "url": "http://127.0.0.1:18301",
                "engine": "http://127.0.0.1:18302",
                "metrics": "http://127.0.0.1:18302/metrics",
                "address": "10.0.0.7:8000",
            }
        ],
    },
}


def write(place: Path, document: dict[str, Any]) -> Path:
    file = place / "targets.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return file


def test_what_is_left_out_follows_from_the_address(tmp_path: Path) -> None:
    found = targets_file.read(write(tmp_path, WHOLE), CATALOG)
    encode, decode = found.of("encode")[0], found.of("decode")[0]
    assert found.entry.url == "http://127.0.0.1:18080"
    assert (encode.metrics.url, encode.address) == ("http://127.0.0.1:18201/metrics", "127.0.0.1:18201")
    assert encode.engine is None
    assert decode.engine is not None
    assert (decode.engine.url, decode.address) == ("http://127.0.0.1:18302", "10.0.0.7:8000")


def test_it_survives_the_evidence_file(tmp_path: Path) -> None:
    found = targets_file.read(write(tmp_path, WHOLE), CATALOG)
    assert from_data(found.as_data()) == found


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_mistakes_are_told_with_their_place(case: dict[str, Any], tmp_path: Path) -> None:
    document = {key: value for key, value in {**WHOLE, **case["change"]}.items() if value is not None}
    file = write(tmp_path, document)
    with pytest.raises(UsageError) as raised:
        targets_file.read(file, CATALOG)
    problem = raised.value
    told = " ".join([problem.found, *problem.nearest, problem.next_step or ""])
    for words in case["said"]:
        assert words in told
    for words in case.get("unsaid", ()):
        assert words not in told
    line = int(str(problem.origin).split(":")[-2])
    assert str(problem.origin).startswith(f"{file}:")
    assert 1 <= line <= len(file.read_text(encoding="utf-8").splitlines())


def test_the_place_is_the_line_of_the_mistake(tmp_path: Path) -> None:
    file = write(tmp_path, {**WHOLE, "topology": "epd"})
    with pytest.raises(UsageError) as raised:
        targets_file.read(file, CATALOG)
    line = file.read_text(encoding="utf-8").splitlines().index("topology: epd") + 1
    assert raised.value.origin == f"{file}:{line}:1"


def test_a_file_that_is_not_there_says_who_writes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file") as raised:
        targets_file.read(tmp_path / "none.yaml", CATALOG)
    assert "mmdeploy rehearse" in str(raised.value.next_step)


def test_a_bundle_of_another_topology_is_refused(tmp_path: Path) -> None:
    found = targets_file.read(write(tmp_path, WHOLE), CATALOG)
    with pytest.raises(UsageError, match="topology is aggregation there, but e-pd"):
        with_configuration(found, CATALOG, ROOT / "overlays/main/aggregation/gpu/vllm/base")


def test_a_token_comes_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picker = targets_file.read(write(tmp_path, WHOLE), CATALOG).pickers[0]
    monkeypatch.setenv("PICKER_TOKEN", "from-the-variable\n")
    assert token(picker) == "from-the-variable"
    monkeypatch.delenv("PICKER_TOKEN")
    with pytest.raises(UsageError, match="the variable PICKER_TOKEN is not set"):
        token(picker)
    secret = tmp_path / "token"
    secret.write_text("from-the-file\n", encoding="utf-8")
    document = {**WHOLE, "picker": [{"name": "epp-0", "metrics": "http://127.0.0.1:1", "token": f"file:{secret}"}]}
    assert token(targets_file.read(write(tmp_path, document), CATALOG).pickers[0]) == "from-the-file"
