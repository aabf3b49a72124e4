"""Evidence of a disaggregated deployment, written out of a few words: which requests were sent, and what moved.

Each request moves what model-servers.md §2 and router-observed.md say that it moves: one on a pod of every language
role, one on encode-0 for each picture, one on the picker. A case says what else moved, or what did not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmdeploy.verify.evidence import Evidence, Medium, Observation, Sample, Scrape, Sent, Step
from mmdeploy.verify.targets import Endpoint, Pod, Targets

ROLES = {"e-pd": ("encode", "decode"), "e-p-d": ("encode", "prefill", "decode")}
SUCCESS, PICKED = "vllm:request_success_total", "llm_d_epp_request_total"
ENCODED = {"vllm": SUCCESS, "sglang": "sglang:encoder_requests_received_total"}
ANSWERED = {"vllm": SUCCESS, "sglang": "sglang:num_requests_total"}
BASE = 100.0
"""What every counter stands at before."""


class Story:
    """Tells a case as evidence."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = case
        self.server = case.get("server", "vllm")
        self.roles = ROLES[case["topology"]]
        self.evidence = Evidence("test", self._targets().as_data())
        self.values: dict[str, dict[str, float]] = {name: {} for name in (*self._names(), "picker")}
        for name, families in case.get("families", {}).items():
            for pod in self._names():
                if pod.startswith(name):
                    self.values[pod] |= dict.fromkeys(families, BASE)
        for pod in self._names():
            table = ENCODED if pod.startswith("encode") else ANSWERED
            self.values[pod][table[self.server]] = BASE
        self.values["picker"][PICKED] = BASE

    def _names(self) -> list[str]:
        return [f"{role}-{number}" for role in self.roles for number in range(2)]

    def _targets(self) -> Targets:
        pods = []
        for number, name in enumerate(self._names()):
            end = Endpoint(name, f"http://10.0.0.{number + 1}:8000")
            pods.append(Pod(name, name.partition("-")[0], end, end, None, f"10.0.0.{number + 1}:8000"))
        configuration = {"handoff": self.case["handoff"]} if "handoff" in self.case else {}
        return Targets(
            "Qwen/Qwen3-VL-32B-Instruct", self.case["topology"], self.server, "main",
            Endpoint("entry", "http://10.0.0.9"), tuple(pods), (Endpoint("picker", "http://10.0.0.9:9090"),),
            configuration=configuration,
        )  # fmt: skip

    def told(self) -> Evidence:
        """The evidence."""
        for name, version in self.case.get("versions", {}).items():
            for pod in self._names():
                if pod.startswith(name):
                    self._send(f"version/{pod}", "version", pod, method="GET", fields={"version": version})
        self._read("start")
        moment = "start"
        for number, step in enumerate(self.case["steps"]):
            ids = [self._request(step, f"{step['name']}/{number}/{at}") for at in range(step.get("requests", 1))]
            for pod, moves in step.get("moves", {}).items():
                for family, amount in moves.items():
                    self.values[pod][family] = self.values[pod].get(family, BASE) + amount
            after = f"{step['name']}/{number}"
            self._read(after)
            self.evidence.steps.append(Step(step["name"], 0, moment, after, tuple(ids)))
            moment = after
        for about, numbers in self.case.get("logs", []):
            self.evidence.observations.append(Observation("log", about, numbers.pop("line", ""), {
                "role": about.partition("-")[0], "hash": "", **numbers}))  # fmt: skip
        for about, debug in self.case.get("read", {}).items():
            numbers = {"role": about.partition("-")[0], "lines": 10, "debug": debug}
            self.evidence.observations.append(Observation("logs-read", about, "", numbers))
        return self.evidence

    def _request(self, step: Mapping[str, Any], id: str) -> str:
        pictures = step.get("pictures", 0)
        media = tuple(Medium("image", "red", 64, 64, 1, f"{id}/{at}") for at in range(pictures))
        target = step.get("target", "entry")
        answered = step.get("status", 200) == 200
        if target == "entry" and answered:
            for role in self.roles:
                if role == "encode":
                    self.values["encode-0"][ENCODED[self.server]] += 0 if step.get("unencoded") else pictures
                else:
                    self.values[f"{role}-0"][ANSWERED[self.server]] += 1
            self.values["picker"][PICKED] += 1
        elif answered:
            self.values[target][SUCCESS] += 1
        fields = {"ec_transfer_params": step["params"]} if "params" in step else {}
        self._send(
            id, step["name"], target, media=media, status=step.get("status", 200), fields=fields,
            usage={"prompt_tokens": step.get("tokens", 100)}, first=step.get("first"),
        )  # fmt: skip
        return id

    def _send(self, id: str, purpose: str, target: str, method: str = "POST", **more: Any) -> None:
        self.evidence.requests.append(Sent(id, purpose, target, method, "/", {}, "", **{"status": 200, **more}))

    def _read(self, moment: str) -> None:
        for name, values in self.values.items():
            samples = tuple(Sample(family, {}, value) for family, value in values.items())
            families = tuple(family.removesuffix("_total") for family in values)
            missing = self.case.get("missing", {}).get(name)
            self.evidence.scrapes.append(
                Scrape(name, moment, 0.0, () if missing else samples, families, missing, "HTTP 401" if missing else "")
            )
