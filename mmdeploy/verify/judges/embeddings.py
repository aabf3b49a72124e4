"""Embeddings are used, not recomputed: a ladder of evidence, and how far up it this deployment was seen.

Only the two upper rungs prove it. A consumer that gets no embeddings encodes the picture itself and answers all the
same, and no counter of vLLM tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmdeploy.verify import hints
from mmdeploy.verify.causes import ranked
from mmdeploy.verify.evidence import Evidence, Observation, Sent
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.handoff import consumers, numbers
from mmdeploy.verify.judges.findings import (
    crowded,
    not_answered,
    not_sent,
    pages_missing,
    proved,
    unanswered,
    unseen,
)
from mmdeploy.verify.targets import Pod
from mmdeploy.verify.verdicts import CONTRADICTED, Line, NotApplicable, Verdict, amount
from mmdeploy.verify.window import Window, crowd, windows

_CLAIM = "embeddings"
RUNGS: Mapping[str, str] = {
    "": "none",
    "a": "a: versions, roles and keys make it possible",
    "b": "b: encode pods count the pictures, and nothing else",
    "c": "c: encode pods offer the embeddings, with an address",
    "d": "d: log lines tie one picture's hash to both sides of a transfer",
    "e": "e: counters of the transfer move",
}
_NEEDS: Mapping[str, str] = {
    "a": "encode pods and consumers of one release, with connectors that fit",
    "b": "encode pods' counters that move with pictures and not with text, in a quiet moment",
    "c": "an encode pod that answers with ec_transfer_params and an address",
    "d": "DEBUG lines in the logs of an encode pod and of a consumer",
    "e": "encode pods' counters of transfers",
}
"""What each rung is seen by."""
_FINISHED, _SERVED, _BAD = ("taken", "loaded"), ("served", "sent"), ("refused", "denied")
_REASONS = {
    "no ECConnector": "consumer-unconnected",
    "compat hash": "incompatible",
    "XferAck": "unreached",
    "NACK": "gone",
}
"""What a refusal's line has → the hint that it gives."""


def judge(evidence: Evidence, facts: Facts) -> Verdict | NotApplicable:
    """See the module."""
    if not facts.encodes:
        return NotApplicable(_CLAIM, "every pod of this topology encodes for itself")
    found = windows(evidence, facts, "embeddings", "image")
    if not any(step.name == "embeddings" for step in evidence.steps):
        return not_sent(_CLAIM, evidence)
    if not any(window.answered for window in found):
        failed = unanswered([sent for window in found for sent in window.sent])
        return not_answered(_CLAIM, failed, ())
    return _Ladder(evidence, facts, [window for window in found if window.answered]).verdict()


@dataclass
class _Ladder:
    evidence: Evidence
    facts: Facts
    media: Sequence[Window]
    lines: list[Line] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """Symptom and sentence."""
    wanted: list[str] = field(default_factory=list)
    seen_hints: dict[str, str] = field(default_factory=dict)
    rung: str = ""

    def verdict(self) -> Verdict:
        self._possible()
        self._encoded()
        if self.facts.router_encodes:
            self._offered()
            self._logged()
        moved = self._counted()
        self._processed()
        self._timed()
        verdict = self._concluded(moved)
        return Verdict(
            verdict.claim, verdict.verdict, verdict.summary, verdict.evidence, verdict.causes, verdict.observable,
            RUNGS[self.rung],
        )  # fmt: skip

    def _concluded(self, moved: bool) -> Verdict:
        if self.wrong:
            summary = "; ".join(dict.fromkeys(sentence for _, sentence in self.wrong))
            symptoms = [symptom for symptom, _ in self.wrong]
            found = {**hints.seen(self.evidence, self.facts), **self.seen_hints}
            return Verdict(
                _CLAIM, CONTRADICTED, summary, tuple(self.lines), ranked(self.facts, _CLAIM, symptoms, found)
            )
        if self.rung in ("d", "e"):
            how = "the counters of the transfer moved" if moved else "the logs of both sides name the same picture"
            return proved(_CLAIM, f"the consumer took the encoder's embeddings: {how}", self.lines)
        if not self.facts.router_encodes and crowd([*self.media]):
            return crowded(_CLAIM, crowd([*self.media]), self.lines)
        reached = f"seen up to rung {RUNGS[self.rung]}" if self.rung else "no rung of the ladder was reached"
        following = self._following
        summary = f"{reached}; the next rung ({following}) needs {_NEEDS[following]}"
        return unseen(_CLAIM, summary, self.lines, self._asks())

    @property
    def _following(self) -> str:
        """The rung above the one that was reached; SGLang's encoders offer and log nothing, and count transfers."""
        order = "abcd" if self.facts.router_encodes else "abe"
        return order[order.index(self.rung) + 1] if self.rung else order[0]

    def _asks(self) -> list[str]:
        """What would prove it."""
        if not self.facts.router_encodes:
            return [*self.wanted, "encoders with --enable-metrics, of a release that counts transfers (0.5.15.post1)"]
        variable = self.facts.catalog.table("metrics")["embeddings"]["variable"]
        level = f"{variable['name']}={variable['value']}"
        if not self.facts.targets.listed:
            return [*self.wanted, f"--debug-logs, which restarts encode and {self._consumers} pods with {level}"]
        pods = [pod for role in ("encode", self._consumers) for pod in self._pods(role)]
        if all(pod.log for pod in pods):
            return [*self.wanted, f"engines that log at DEBUG, those of encode and {self._consumers} pods: {level}"]
        return [
            *self.wanted,
            f"the engines' logs: start encode and {self._consumers} pods with {level}, and name each pod's log in the "
            "targets file (log: FILE or address); in a rehearsal: mmdeploy rehearse --debug-logs",
        ]

    @cached_property
    def _consumers(self) -> str:
        return consumers(self.facts.roles)

    def _pods(self, role: str) -> tuple[Pod, ...]:
        return self.facts.targets.of(role)

    # ---------------------------------------------------------------------------------------------------------- rungs

    def _possible(self) -> None:
        """Rung a."""
        said: Mapping[str, Mapping[str, Any]] = self.facts.targets.configuration.get("handoff") or {}
        holds = True
        if self.facts.router_encodes and said:
            holds = self._configured(said.get("encode", {}), said.get(self._consumers, {}), said.get("decode", {}))
        versions = {
            sent.target: sent.fields["version"] for sent in self.evidence.of("version") if "version" in sent.fields
        }
        sides = {
            role: {versions[pod.name] for pod in self._pods(role) if pod.name in versions}
            for role in ("encode", self._consumers)
        }
        every = set().union(*sides.values())
        self._moves(sides["encode"])
        if len(every) > 1:
            words = ", ".join(f"{role} {' and '.join(sorted(found))}" for role, found in sides.items() if found)
            self.wrong.append(("versions", f"encode and {self._consumers} pods are of different releases: {words}"))
            holds = False
        elif every:
            self.lines.append(Line(f"encode and {self._consumers} pods run {every.pop()}"))
        if holds:
            self.rung = "a"

    def _moves(self, versions: set[str]) -> None:
        """Whether the encode pods' release moves embeddings between pods at all."""
        said = self.facts.catalog.table("metrics")["embeddings"]
        known = [numbers(version) for version in versions if numbers(version)]
        if known and self.facts.router_encodes:
            able = min(known) >= numbers(said["first"])
            word = "moves" if able else "does not move"
            self.seen_hints["moves" if able else "moves-none"] = (
                f"encode pods run {', '.join(sorted(versions))}, which {word} embeddings between pods"
            )

    def _configured(self, encode: Mapping[str, Any], consumer: Mapping[str, Any], decode: Mapping[str, Any]) -> bool:
        """What the bundle says of connectors and roles; a transfer without them cannot be."""
        produces = encode.get("ecRole") in ("ec_producer", "ec_both")
        consumes = consumer.get("ecRole") in ("ec_consumer", "ec_both")
        for holds, role, word in ((produces, "encode", "producer"), (consumes, self._consumers, "consumer")):
            if not holds:
                self.wrong.append(("no-connector", f"the bundle makes {role} pods no {word} of embeddings"))
        if decode and not decode.get("sidecar"):
            self.wrong.append(("no-sidecar", "the bundle's sidecars run without --ec-connector"))
        if not (produces and consumes):
            return False
        self.lines.append(
            Line(
                f"the bundle: encode pods produce by {encode['connector']}, {self._consumers} pods consume by "
                f"{consumer['connector']}, sidecars ask by {decode.get('sidecar') or 'nothing'}"
            )
        )
        return encode["connector"] == consumer["connector"] and bool(decode.get("sidecar"))

    def _encoded(self) -> None:
        """Rung b."""
        quiet = [window for window in self.media if window.quiet]
        items = sum(window.items for window in quiet)
        counted, reasons, short = 0, list[str](), 0
        for window in self.media:
            moved = window.moved("encode", "requests")
            reasons += moved.unknown
            short += max(0, window.items - moved.total) if not moved.unknown else 0
            counted += moved.total if window.quiet else 0
        texts = [window for window in windows(self.evidence, self.facts, "text") if window.quiet and window.answered]
        leaked = sum(window.moved("encode", "requests").total for window in texts)
        if quiet and not reasons:
            self.lines.append(
                Line(
                    f"encode pods counted {counted} of {items} pictures"
                    + (f", {leaked} for {amount(len(texts), 'request of text')}" if texts else ""),
                    {"pictures": items, "encoded": counted, "texts": len(texts), "textsEncoded": leaked},
                )
            )
        if short:
            sent = sum(window.items for window in self.media)
            self.wrong.append(("not-encoded", f"encode pods counted {sent - short} of {sent} pictures"))
        elif reasons:
            self.wanted += pages_missing(reasons)
        elif quiet and not leaked and self.rung == "a":
            self.rung = "b"

    def _offered(self) -> None:
        """Rung c."""
        asked = list(self.evidence.of("embeddings.direct"))
        failed = unanswered(asked)
        offers = [_Offer.of(sent, self.facts) for sent in asked if sent.answered]
        for offer in offers:
            self.lines.append(Line(offer.told, {"pod": offer.pod, "hashes": len(offer.digests), "peer": offer.peer}))
        wrong = [(offer.symptom, offer.sentence) for offer in offers if offer.symptom]
        if self._shared_storage:
            self.wanted.append("the files under shared_storage_path: this connector announces no address")
            return
        if wrong:
            self.wrong += wrong
        elif failed:
            self.wrong.append(("encode-error", failed[0][1]))
        elif offers and self.rung == "b":
            self.rung = "c"

    @property
    def _shared_storage(self) -> bool:
        """Whether the bundle hands embeddings over as files."""
        said = self.facts.targets.configuration.get("handoff") or {}
        shared = self.facts.catalog.table("metrics")["embeddings"]["sharedStorage"]
        return said.get("encode", {}).get("connector") in shared

    def _logged(self) -> None:
        """Rung d."""
        logs = list(self.evidence.observed("log"))
        read = list(self.evidence.observed("logs-read"))
        if not read:
            return
        ours = self._digests
        bad = [
            item for item in logs
            if item.numbers["event"] in _BAD and item.numbers["role"] == self._consumers
            and (item.numbers["hash"] in ours or not item.numbers["hash"] or not ours)
        ]  # fmt: skip
        if bad:
            self.lines += [Line(f"{item.about} logged: {item.detail}") for item in bad[:3]]
            self.wrong.append(("refused", f"{bad[0].about} did not take them: {_end(bad[0].detail)}"))
            for phrase, hint in _REASONS.items():
                if phrase in bad[0].detail:
                    self.seen_hints[hint] = f"{bad[0].about} logged it"
            return
        served = {item.numbers["hash"] for item in logs if item.numbers["event"] in _SERVED}
        taken = [item for item in logs if item.numbers["event"] == "begun" and self._finished(item, logs)]
        tied = [item for item in taken if item.numbers["hash"] in served & ours]
        if tied:
            digest = tied[0].numbers["hash"]
            serving = next(item for item in logs if item.numbers["event"] in _SERVED and item.numbers["hash"] == digest)
            self.lines += [Line(f"{item.about} logged: {item.detail}") for item in (serving, tied[0])]
            self.rung = "d"
        elif any(item.numbers["event"] == "begun" and item.numbers["hash"] in ours for item in logs):
            self.lines.append(Line("a transfer of this picture began, and no line tells of its end"))
        elif not any(int(item.numbers["debug"]) for item in read):
            self.lines.append(Line("the logs were read and say nothing of a transfer: they hold no DEBUG lines"))
        elif any(item.numbers["role"] == self._consumers and int(item.numbers["debug"]) for item in read) and ours:
            self.wrong.append(("no-trace", f"no {self._consumers} pod logged a transfer of this picture, at DEBUG"))

    @property
    def _digests(self) -> set[str]:
        """The hash of the picture, as encode pods answered it."""
        found = [_Offer.of(sent, self.facts) for sent in self.evidence.of("embeddings.direct") if sent.answered]
        return {digest for offer in found for digest in offer.digests}

    def _finished(self, begun: Observation, logs: Sequence[Observation]) -> bool:
        """Whether the pod that began a transfer logged its end as well; not every line of that names the picture."""
        return any(
            item.about == begun.about
            and item.numbers["event"] in _FINISHED
            and item.numbers["hash"] in (begun.numbers["hash"], "")
            for item in logs
        )

    def _counted(self) -> bool:
        """Rung e: counters that move only with a transfer."""
        own = not self.facts.router_encodes
        role, key = ("encode", "embeddingTransfers") if own else (self._consumers, "embeddingLoads")
        total = items = 0
        for window in self.media:
            moved = window.moved(role, key)
            if not window.quiet or moved.unknown:
                if own:
                    self.wanted += pages_missing(moved.unknown)
                continue
            total, items = total + moved.total, items + window.items
        if not items:
            return False
        text = f"{role} pods counted {amount(total, 'transfer of embeddings')} for {amount(items, 'picture')}"
        self.lines.append(Line(text, {"transfers": total, "pictures": items}))
        if total >= items:
            self.rung = "e"
            return True
        self.wrong.append(("no-transfer", text))
        return False

    # ----------------------------------------------------------------------------------------------- supporting lines

    def _processed(self) -> None:
        """Whether consumers were given the pictures themselves: then they could encode them as well."""
        quiet = [window for window in self.media if window.quiet]
        served = sum(window.moved(self._consumers, "requests").total for window in quiet)
        if not served:
            return  # no request came to them, and so no picture could
        moved = [window.moved(self._consumers, "mediaQueries") for window in quiet]
        if not moved or any(item.unknown for item in moved) or not self.facts.router_encodes:
            return
        asked, items = sum(item.total for item in moved), sum(window.items for window in quiet)
        word = "the pictures themselves came along" if asked else "they were given layouts only, or their cache is off"
        self.lines.append(Line(f"{self._consumers} pods processed {asked} of {items} pictures: {word}",
                               {"processed": asked, "pictures": items}))  # fmt: skip

    def _timed(self) -> None:
        """Rung f, which proves nothing by itself: load and distance show in the same number."""
        routed = [sent.first for sent in self.evidence.of("embeddings") if sent.first is not None]
        control = [sent.first for sent in self.evidence.of("embeddings.control") if sent.first is not None]
        if routed and control:
            self.lines.append(
                Line(
                    f"first token after {min(routed):.3f} s with the encoder, after {min(control):.3f} s past it",
                    {"routed": min(routed), "control": min(control)},
                )
            )


@dataclass(frozen=True)
class _Offer:
    """What an encode pod answered when it was asked directly."""

    pod: str
    digests: tuple[str, ...] = ()
    peer: str = ""
    symptom: str = ""
    sentence: str = ""

    @property
    def told(self) -> str:
        """A sentence."""
        return f"{self.pod} answers with embeddings at {self.peer}" if not self.symptom else self.sentence

    @classmethod
    def of(cls, sent: Sent, facts: Facts) -> _Offer:
        """From its answer."""
        pod = sent.target
        said = facts.catalog.table("metrics")["embeddings"]
        entries = sent.fields.get("ec_transfer_params")
        if not isinstance(entries, Mapping) or not entries:
            word = "null" if "ec_transfer_params" in sent.fields else "missing"
            return cls(pod, symptom="no-parameters", sentence=f"{pod} answers, but ec_transfer_params is {word}")
        digests = tuple(map(str, entries))
        host, port = ({str(entry.get(key) or "") for entry in entries.values() if isinstance(entry, Mapping)}
                      for key in said["address"])  # fmt: skip
        if "" in host | port or not host:
            sentence = f"{pod} answers with ec_transfer_params, but without an address: it shares them with nobody"
            return cls(pod, digests, symptom="no-address", sentence=sentence)
        peer = f"{min(host)}:{min(port)}"
        if host & {*said["loopback"]} and _apart(pod, facts):
            sentence = f"{pod} answers with embeddings at {peer}, where another pod finds only itself"
            return cls(pod, digests, peer, "loopback", sentence)
        return cls(pod, digests, peer)


def _apart(name: str, facts: Facts) -> bool:
    """Whether consumers run on another host than the encode pod of that name."""
    hosts = {pod.name: pod.address.rpartition(":")[0] for pod in facts.targets.pods}
    others = {hosts[pod.name] for pod in facts.targets.of(consumers(facts.roles))}
    return hosts.get(name) not in others


def _end(line: str) -> str:
    return line if len(line) <= 120 else f"...{line[-117:]}"
