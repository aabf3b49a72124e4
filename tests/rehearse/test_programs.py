"""The real endpoint picker, sidecar and Envoy in front of the simulated engines, and the stand-in held against them.

The programs are not part of this repository: where REHEARSE_EPP (v0.10.0), REHEARSE_SIDECAR and REHEARSE_ENVOY name
them they are used; what needs none of them runs everywhere.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.errors import UnsupportedError, UsageError
from mmdeploy.rehearse.messages import Message
from mmdeploy.rehearse.programs import Programs
from mmdeploy.rehearse.rehearsal import Rehearsal
from mmdeploy.rehearse.settings import Timings
from tests.rehearse.client import CHAT, Start, Watch, body, chat, image, samples, text
from tests.rehearse.test_decisions import ENCODE_CALLS, REQUESTS
from tests.rehearse.test_prices import AT_1024, price

PATHS = {name: os.environ.get(f"REHEARSE_{name.upper()}", "") for name in ("epp", "sidecar", "envoy")}
PLACE = "v0.9/{}/gpu/vllm/base"  # llm-d v0.9 has router v0.10.0
ABSENT = "REHEARSE_EPP, REHEARSE_SIDECAR and REHEARSE_ENVOY name no programs"
real = pytest.mark.skipif(not all(PATHS.values()), reason=ABSENT)

Run = Callable[..., Rehearsal]


@pytest.fixture
def run(catalog: Any, bundles: Any) -> Iterator[Run]:
    started: list[Rehearsal] = []

    def begun(topology: str, faults: Sequence[str] = (), timings: Timings | None = None) -> Rehearsal:
        programs = Programs(Path(PATHS["epp"]), Path(PATHS["envoy"]), Path(PATHS["sidecar"]))
        place = PLACE.format(topology)
        running = Rehearsal(bundles(place), catalog, faults=faults, timings=timings, programs=programs)
        running.__enter__()
        started.append(running)
        return running

    yield begun
    for running in started:
        running.__exit__(None, None, None)


def post(running: Rehearsal, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    url = running.targets()["entry"]["url"] + CHAT
    asked = urllib.request.Request(url, json.dumps(content).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=20) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, {}


def page(running: Rehearsal) -> str:
    with urllib.request.urlopen(running.targets()["picker"][0]["metrics"], timeout=20) as reply:
        return str(reply.read().decode())


def decisions(told: str) -> dict[str, float]:
    found = (each for each in samples(told) if each[0] == "llm_d_epp_disagg_decision_total")
    return {at["decision_type"]: value for _, at, value in found}


WRONG = {
    "e-pd": ["encode-decider-missing", "wrong-decider", "text-to-encode", "encode-missing", "encode-unready",
             "pool-empty", "encoder-fails", "encoder-silent", "sidecar-without-ec", "sidecar-tls", "served-name"],
    "e-p-d": ["encode-profile-renamed", "wrong-decider", "prefill-unready", "kv-recomputed", "kv-side-channel-host"],
}  # fmt: skip
CASES = [(topology, fault) for topology in ("aggregation", "e-pd", "e-p-d") for fault in ("", *WRONG.get(topology, ()))]


@real
@pytest.mark.parametrize(("topology", "fault"), CASES)
def test_the_stand_in_decides_as_the_real_picker(run: Run, start: Start, topology: str, fault: str) -> None:
    """... with the real sidecar, and where something is wrong."""
    faults = [fault] if fault else []
    running, stand_in = run(topology, faults), start(PLACE.format(topology), faults)
    watches = Watch(running.deployment, picker=False), Watch(stand_in)
    for name, parts in REQUESTS.items():
        before = decisions(page(running))
        for watch in watches:
            watch.reset()
        status, _ = post(running, body(stand_in.settings.model, *parts))
        assert status == chat(stand_in.entry, stand_in.settings.model, *parts).status, name
        ended = [watch.roles("vllm:request_success_total") for watch in watches]
        if fault == "encoder-fails":  # siblings of a failed encode call are cancelled, or not any more
            ended = [{role: min(count, 1) for role, count in each.items()} for each in ended]
        assert ended[0] == ended[1], name
        if not fault:
            assert status == 200
            assert ended[0].get("encode", 0) == (ENCODE_CALLS[name] if topology != "aggregation" else 0)
        time.sleep(0.3)  # the real picker counts a little later
        now = decisions(page(running))
        moved = {kind: value - before.get(kind, 0) for kind, value in now.items() if value != before.get(kind, 0)}
        assert moved == watches[1].by("llm_d_epp_disagg_decision_total", "decision_type"), name


@real
@pytest.mark.parametrize(("size", "tokens"), [*AT_1024.items()][:4])
def test_the_real_picker_has_the_same_prices(run: Run, size: tuple[int, int], tokens: int) -> None:
    running = run("aggregation")

    def settled() -> str:
        time.sleep(0.05)
        return page(running)

    def send(content: dict[str, Any]) -> None:
        assert post(running, content)[0] == 200

    assert price(send, settled, running.settings.model, 64, image(*size)) == tokens


@real
@pytest.mark.parametrize("topology", ["aggregation", "e-pd", "e-p-d"])
def test_the_real_picker_has_the_same_load_in_flight(run: Run, start: Start, topology: str) -> None:
    """By stage, while a request waits for its first token."""
    request = (text("x" * 4000), image(640, 360))
    running = run(topology, timings=Timings(first_token=1.0))
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(post, running, body(running.settings.model, *request))
        time.sleep(0.5)
        of_real = flying(page(running))
        assert sent.result()[0] == 200
    stand_in = start(PLACE.format(topology), timings=Timings(first_token=1.0))
    of_ours: list[dict[str, float]] = []

    def look(seconds: float) -> None:
        of_ours.append(flying(str(stand_in.picker_metrics(Message("GET", "/metrics")).content)))

    object.__setattr__(stand_in.clock, "sleep", look)
    chat(stand_in.entry, stand_in.settings.model, *request)
    assert of_real == of_ours[0]
    assert of_real


def flying(told: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, at, value in samples(told):
        if name == "llm_d_epp_inflight_tokens" and value:
            role = at["endpoint_name"].rpartition("-")[0]
            found[role] = found.get(role, 0) + value
    return found


@real
def test_metrics_of_the_stand_in_are_a_part_of_the_real_ones(run: Run, start: Start) -> None:
    """Names and labels, after the same requests."""
    running, stand_in = run("e-p-d"), start(PLACE.format("e-p-d"))
    for parts in REQUESTS.values():
        post(running, body(stand_in.settings.model, *parts))
        chat(stand_in.entry, stand_in.settings.model, *parts)
    time.sleep(6)  # gauges of the pool are flushed every 5 s
    of_real = {(name, *sorted(at)) for name, at, _ in samples(page(running))}
    scraped = str(stand_in.scrape_picker(Message("GET", "/metrics")).content)
    of_ours = {(name, *sorted(at)) for name, at, _ in samples(scraped)}
    assert of_ours <= of_real


def script(place: Path, words: str) -> Path:
    """A program that does what a shell does."""
    place.write_text(f"#!/bin/sh\n{words}\n")
    place.chmod(0o755)
    return place


def test_a_picker_that_does_not_start_says_why(catalog: Any, bundles: Any, tmp_path: Path) -> None:
    broken = script(tmp_path / "epp", "echo starting; echo 'no kind EndpointPickerConfig' >&2; exit 1")
    with pytest.raises(UsageError, match=r"epp ended with 1.*no kind EndpointPickerConfig"):
        Rehearsal(bundles("e-pd"), catalog, programs=Programs(broken, broken)).__enter__()


def test_a_sidecar_that_ends_well_has_still_not_started(catalog: Any, bundles: Any, tmp_path: Path) -> None:
    """An invalid value ends it with 0 (router-observed.md)."""
    ended = script(tmp_path / "sidecar", "echo 'invalid connector'; exit 0")
    with pytest.raises(UsageError, match=r"sidecar ended with 0.*invalid connector"):
        Rehearsal(bundles("e-pd"), catalog, programs=Programs(ended, ended, ended)).__enter__()


def test_a_program_that_is_not_there(catalog: Any, bundles: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot run"):
        Rehearsal(bundles("aggregation"), catalog, programs=Programs(tmp_path / "epp", tmp_path / "envoy")).__enter__()


@pytest.mark.parametrize("fault", ["round-robin", "metrics-401", "node-lost", "traffic-1x", "picker-down"])
def test_what_only_the_stand_in_can_do_is_refused(catalog: Any, bundles: Any, fault: str) -> None:
    with pytest.raises(UnsupportedError, match="only the stand-in"):
        Rehearsal(bundles("e-pd"), catalog, faults=[fault], programs=Programs(Path("epp"), Path("envoy")))


def test_files_for_the_picker(catalog: Any, bundles: Any, tmp_path: Path) -> None:
    """The endpoints of the pool with their labels, and the configuration with the plugin that reads them."""
    kept = tmp_path / "kept"
    kept.mkdir()
    copying = script(tmp_path / "epp", f'config=${{1#--config-file=}}; cp "$(dirname "$config")"/*.yaml {kept}; exit 1')
    with pytest.raises(UsageError):
        Rehearsal(bundles("e-pd"), catalog, programs=Programs(copying, copying)).__enter__()
    endpoints = yaml.safe_load((kept / "endpoints.yaml").read_text())["endpoints"]
    assert [each["name"] for each in endpoints] == [f"encode-{n}" for n in range(2)] + [f"decode-{n}" for n in range(8)]
    assert all(each["address"] == "127.0.0.1" and isinstance(each["port"], str) for each in endpoints)
    assert {each["labels"]["llm-d.ai/role"] for each in endpoints} == {"encode", "decode"}
    picker = yaml.safe_load((kept / "picker.yaml").read_text())
    assert picker["dataLayer"] == {"discovery": {"endpoints": {"pluginRef": "file-discovery"}}}  # of llm-d.ai/v1
    assert picker["plugins"][-1]["type"] == "file-discovery"
