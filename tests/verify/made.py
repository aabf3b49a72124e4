"""Evidence made from a few lines of YAML: what each step sent, and by how much counters moved in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from mmdeploy.verify.evidence import Evidence, Medium, Observation, Sample, Scrape, Sent, Step
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.targets import Endpoint, Pod, Targets
from tests.verify.simulated import CATALOG

MODEL = "Qwen/Qwen3-VL-32B-Instruct"
_ROUTED = {"entry", "gateway"}


def facts(case: Mapping[str, Any]) -> Facts:
    """A deployment of ``case``: ``topology``, ``server``, ``pods`` (role → how many), ``configuration``."""
    pods = tuple(
        Pod(
            name := f"{role}-{number}",
            role,
            Endpoint(name, f"http://{name}:8000"),
            Endpoint(name, f"http://{name}:8000/metrics"),
            address=f"{name}:8000",
            ready=case.get("ready", {}).get(name),
        )
        for role, count in case["pods"].items()
        for number in range(count)
    )
    targets = Targets(
        model=MODEL,
        topology=case["topology"],
        server=case.get("server", "vllm"),
        release="main",
        entry=Endpoint("entry", "http://entry"),
        gateway=Endpoint("gateway", "http://gateway") if case.get("gateway") else None,
        pods=pods,
        pickers=(Endpoint("picker", "http://picker:9090/metrics"),) if case.get("picker", True) else (),
        configuration=case.get("configuration", {}),
    )
    return Facts(CATALOG, targets)


class Maker:
    """Adds up what moved, page by page."""

    def __init__(self, case: Mapping[str, Any], known: Facts) -> None:
        self.case, self.facts = case, known
        self.at: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
        self.evidence = Evidence("mmdeploy", known.targets.as_data(), [{"probe": "made", "claims": [], "requests": 0}])
        self.born = dict.fromkeys([endpoint.name for endpoint, _ in known.targets.pages()], 1000.0)

    def make(self) -> Evidence:
        """The whole."""
        for endpoint, role in self.facts.targets.pages():
            for key, family in self.facts.page(role).families.items():
                if not family.appears:
                    self.at[endpoint.name][key, ""] = 0
        self._pages("start")
        for step in self.case.get("steps", ()):
            self._step(step)
        self.evidence.requests += [self._sent(item) for item in self.case.get("asked", ())]
        self.evidence.observations += [Observation(**item) for item in self.case.get("observations", ())]
        return self.evidence

    def _step(self, step: Mapping[str, Any]) -> None:
        before = self.evidence.steps[-1].after if self.evidence.steps else "start"
        number, after = step.get("round", 0), f"{step['name']}/{step.get('round', 0)}"
        ids = []
        for at, said in enumerate(step.get("requests", [{}])):
            sent = self._sent({"id": f"{step['name']}/{number}.{at}", "purpose": step["name"], **said})
            self.evidence.requests.append(sent)
            ids.append(sent.id)
        for name in step.get("restarted", ()):
            self.at[name] = dict.fromkeys(self.at[name], 0.0)
            self.born[name] += 60
        for name, moved in step.get("moved", {}).items():
            for key, by in moved.items():
                family, _, label = key.partition(":")
                self.at[name][family, label] = self.at[name].get((family, label), 0) + by
        self._pages(after, step.get("missing", {}))
        self.evidence.steps.append(Step(step["name"], number, before, after, tuple(ids), step.get("settled", True)))

    def _pages(self, moment: str, missing: Mapping[str, str] = {}) -> None:  # noqa: B006  # read only
        gone = {**self.case.get("missing", {}), **missing}
        for endpoint, role in self.facts.targets.pages():
            name = endpoint.name
            if name in gone:
                self.evidence.scrapes.append(Scrape(name, moment, 0.0, missing=gone[name], detail="HTTP 401"))  # type: ignore[arg-type]
                continue
            samples = [Sample("process_start_time_seconds", {}, self.born[name])]
            hidden = self.case.get("hidden", ())
            for (key, label), value in self.at[name].items():
                family = self.facts.page(role).families[key]
                if key in hidden:
                    continue
                if key == "cacheConfig":
                    samples.append(Sample(family.names[0], {"block_size": str(self.case.get("block", 128))}, 1))
                    continue
                labels = {"decisions": {"decision_type": label}, "requests": {"fairness_id": label}}.get(key, {})
                parts = ("_sum", "_count") if family.kind == "histogram" else ("",)
                names = [family.names[0] + part for part in parts]
                samples += [Sample(line, labels if label else {}, value) for line in names]
            self.evidence.scrapes.append(Scrape(name, moment, 0.0, tuple(samples), ("llm_d_epp_info", "vllm:x")))

    def _sent(self, said: Mapping[str, Any]) -> Sent:
        media = tuple(Medium("image", word, 64, 64, 200, f"digest-{word}") for word in said.get("pictures", ()))
        more = {key: value for key, value in said.items() if key not in ("pictures", "tokens")}
        usage = {"prompt_tokens": said["tokens"]} if "tokens" in said else {}
        return Sent(
            **{
                "target": "entry",
                "method": "POST",
                "path": "/v1/chat/completions",
                "headers": {},
                "nonce": "00",
                "status": 200,
                "seconds": 0.5,
                "usage": usage,
                "media": media,
                **more,
                "expected": tuple(said.get("expected", ())),
            }
        )
