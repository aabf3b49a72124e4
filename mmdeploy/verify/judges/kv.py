"""KV moves from prefill to decode: decode pods fetch the prompt's blocks instead of computing them, and nothing fails
on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.verify import hints
from mmdeploy.verify.causes import ranked
from mmdeploy.verify.evidence import Evidence
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges.findings import (
    crowded,
    not_answered,
    not_sent,
    pages_missing,
    proved,
    unanswered,
    unseen,
)
from mmdeploy.verify.verdicts import CONTRADICTED, Line, NotApplicable, Verdict, amount
from mmdeploy.verify.window import Moved, Window, crowd, windows

_CLAIM = "kv"
_STEPS = ("text", "image", "affinity.first", "affinity.again")
_FAILURES = (
    ("decode", "kvFailedTransfers", "failed", "transfer that failed"),
    ("decode", "kvFailedNotifications", "failed", "notice to prefill that failed"),
    ("prefill", "kvExpired", "expired", "request whose blocks expired"),
    ("decode", "kvExpired", "expired", "request whose blocks expired"),
)


def judge(evidence: Evidence, facts: Facts) -> Verdict | NotApplicable:
    """See the module."""
    if "prefill" not in facts.roles:
        return NotApplicable(_CLAIM, "no prefill stage hands its KV blocks over")
    everything = windows(evidence, facts, *_STEPS)
    if not everything:
        return not_sent(_CLAIM, evidence)
    answered = [window for window in everything if window.answered]
    judging = _Judging(evidence, facts, everything, _long(answered, facts))
    judging.failures()
    if not answered and not judging.wrong:
        return not_answered(_CLAIM, unanswered([sent for window in everything for sent in window.sent]), judging.lines)
    return judging.verdict()


def _long(found: Sequence[Window], facts: Facts) -> list[Window]:
    """Windows whose requests have prompts that are worth a transfer."""
    least = _said(facts)["leastPrompt"]
    return [window for window in found if all((sent.prompt_tokens or 0) >= least for sent in window.routed)]


def _said(facts: Facts) -> Mapping[str, Any]:
    said: Mapping[str, Any] = facts.catalog.table("metrics")["kv"]
    return said


@dataclass
class _Judging:
    evidence: Evidence
    facts: Facts
    everything: Sequence[Window]
    long: Sequence[Window]
    lines: list[Line] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def failures(self) -> None:
        """Counters of what must stay at 0. One that a page does not have says nothing, and is not taken for 0."""
        sums: dict[tuple[str, str], int] = {}
        for role, key, symptom, what in _FAILURES:
            moved = [window.moved(role, key) for window in self.everything]
            known = sum(item.total for item in moved if item.known)
            self.unread += [why for item in moved for why in item.unknown]
            if any(item.known for item in moved):
                sums[symptom, what] = sums.get((symptom, what), 0) + known
        for (symptom, what), count in sums.items():
            self.lines.append(Line(amount(count, what), {what: count}))
            if count:
                self.wrong.append((symptom, amount(count, what)))

    def verdict(self) -> Verdict:
        failed = unanswered([sent for window in self.everything for sent in window.sent])
        if not self.long and not self.wrong and failed:
            return not_answered(_CLAIM, failed, self.lines)
        if not self.long and not self.wrong:
            return unseen(_CLAIM, "no request was long enough to be worth a transfer", self.lines,
                          ("run it with the claim affinity, whose prompts are long",))  # fmt: skip
        quiet = [window for window in self.long if window.quiet]
        judged = quiet or self.long
        hits = self._sum(judged, "externalHits")
        asked = self._sum(judged, "externalQueries")
        own = self._sum(judged, "prefixHits")
        transfers = self._sum(judged, "kvTransferTime", "count")
        nbytes = self._sum(judged, "kvBytes", "sum")
        self._told(judged, hits, transfers, nbytes)
        if not hits.known and not transfers.known:
            if self.wrong:
                return self._contradicted(judged)
            return unseen(_CLAIM, "the decode pods' counters of KV transfers are not known", self.lines,
                          pages_missing([*hits.unknown, *transfers.unknown]))  # fmt: skip
        if quiet:
            self._quiet(judged, hits, own, transfers)
        elif hits.known and not hits.unknown and hits.total == 0 and not transfers.total:
            self.wrong.append(("recomputed", "decode pods fetched nothing, for us or anybody else"))
        if self.wrong:
            return self._contradicted(judged)
        if hits.unknown:
            return unseen(_CLAIM, "not every decode pod's counters are known", self.lines, pages_missing(hits.unknown))
        if not quiet and not self._all(hits, asked, judged):
            return crowded(_CLAIM, crowd([*self.long]), self.lines)
        if transfers.complete and transfers.total == 0:
            said = f"decode pods found {hits.total} tokens outside their own cache, and counted no transfer"
            alone = "decode pods with no other store of KV than the connector to prefill"
            return unseen(_CLAIM, f"{said}: where they are from is not known", self.lines, (alone,))
        return proved(_CLAIM, self._summary(judged, hits, transfers), self.lines, pages_missing(self._absent()))

    def _told(self, judged: Sequence[Window], hits: Moved, transfers: Moved, nbytes: Moved) -> None:
        tokens = sum(sent.prompt_tokens or 0 for window in judged for sent in window.routed)
        if hits.known:
            self.lines.append(
                Line(
                    f"decode pods fetched {hits.total} tokens of prompts of {tokens} ({hits})",
                    {"fetchedTokens": hits.total, "promptTokens": tokens},
                )
            )
        if transfers.known:
            size = f", {nbytes.total / (1 << 20):.1f} MiB" if nbytes.known else ""
            self.lines.append(
                Line(
                    f"decode pods counted {amount(transfers.total, 'transfer')}{size}",
                    {"transfers": transfers.total, "bytes": nbytes.total if nbytes.known else None},
                )
            )

    def _quiet(self, judged: Sequence[Window], hits: Moved, own: Moved, transfers: Moved) -> None:
        """Nobody else was there: what moved is ours."""
        tokens = sum(sent.prompt_tokens or 0 for window in judged for sent in window.routed)
        wanted = max(0, tokens - own.total) * _said(self.facts)["leastShare"]
        if hits.known and not hits.unknown:
            if hits.total == 0:
                self.wrong.append(
                    ("recomputed", f"decode pods fetched none of {tokens} tokens, and computed them again")
                )
            elif hits.total < wanted:
                self.wrong.append(("partly", f"decode pods fetched {hits.total} of {tokens} tokens only"))
        elif transfers.known and not transfers.unknown and transfers.total == 0:
            self.wrong.append(("recomputed", "decode pods counted no transfer"))

    def _all(self, hits: Moved, asked: Moved, judged: Sequence[Window]) -> bool:
        """Whether everything that decode pods asked for was brought, for us and for everybody else."""
        tokens = sum(sent.prompt_tokens or 0 for window in judged for sent in window.routed)
        least = tokens * float(_said(self.facts)["leastShare"])
        return asked.complete and hits.total >= asked.total >= least

    def _summary(self, judged: Sequence[Window], hits: Moved, transfers: Moved) -> str:
        requests = sum(len(window.routed) for window in judged)
        moved = f", in {amount(transfers.total, 'transfer')}" if transfers.known else ""
        sent = f"{requests} long request{'s' * (requests != 1)}"
        return f"decode pods fetched {hits.total} tokens for {sent}{moved}; nothing failed or expired"

    def _absent(self) -> list[str]:
        return [why for why in dict.fromkeys(self.unread) if "has no" in why or "unauthorised" in why]

    def _contradicted(self, judged: Sequence[Window]) -> Verdict:
        found = hints.seen(self.evidence, self.facts)
        said = self.facts.targets.configuration.get("handoff") or {}
        if said and not said.get("prefill", {}).get("kv"):
            found["no-prefill-connector"] = "the bundle gives prefill pods no --kv-transfer-config"
        summary = "; ".join(dict.fromkeys(sentence for _, sentence in self.wrong))
        causes = ranked(self.facts, _CLAIM, [symptom for symptom, _ in self.wrong], found)
        return Verdict(_CLAIM, CONTRADICTED, summary, tuple(self.lines), causes)

    def _sum(self, found: Sequence[Window], key: str, part: str = "") -> Moved:
        """Over several windows, on decode pods."""
        known: dict[str, int] = {}
        unknown: list[str] = []
        for window in found:
            moved = window.moved("decode", key, part)
            unknown += moved.unknown
            for name, number in moved.known.items():
                known[name] = known.get(name, 0) + number
        return Moved(known, tuple(dict.fromkeys(unknown)))
