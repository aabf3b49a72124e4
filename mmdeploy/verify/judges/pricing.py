"""The router prices what the model takes: both measured on pictures of known sizes, and compared with each other and
with the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mmdeploy.estimator.router import Estimator
from mmdeploy.verify import hints
from mmdeploy.verify.bisection import Bounds, Search
from mmdeploy.verify.causes import ranked
from mmdeploy.verify.evidence import Evidence, Sent
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges.findings import not_answered, not_sent, pages_missing, proved, unanswered, unseen
from mmdeploy.verify.pricing import Expectation, Lookalikes, Plan, Size, expectation
from mmdeploy.verify.verdicts import CONTRADICTED, Line, NotApplicable, Verdict
from mmdeploy.verify.window import windows

_CLAIM = "pricing"


@dataclass
class _Seen:
    """What one size showed."""

    size: Size
    hidden: bool = False
    price: Bounds = field(default_factory=Bounds)
    configured: int | None = None
    taken: int | None = None
    """By the model, the marks of its chat template around a picture left out as far as they are known."""
    expected: int | None = None
    """What the catalog says that the model takes."""

    @property
    def name(self) -> str:
        """``1280x720``."""
        return f"{self.size[0]}x{self.size[1]}"


def judge(evidence: Evidence, facts: Facts) -> Verdict | NotApplicable:
    """See the module."""
    known = expectation(facts)
    if known.silent:
        return NotApplicable(_CLAIM, known.silent)
    sent = list(evidence.of("pricing.text", "pricing.count", "pricing.step"))
    if not sent:
        return not_sent(_CLAIM, evidence)
    answered = [item for item in sent if item.answered]
    if not any(item.media for item in answered) or not any(not item.media for item in answered):
        return not_answered(_CLAIM, unanswered(sent), ())
    return _Judging(evidence, facts, known, answered).verdict()


@dataclass
class _Judging:
    evidence: Evidence
    facts: Facts
    known: Expectation
    answered: list[Sent]
    lines: list[Line] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """Symptom and sentence."""
    seen_hints: dict[str, str] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        return Plan.of(self.facts.catalog)

    def verdict(self) -> Verdict:
        taken, as_listed = self._taken()
        seen = self._prices(taken)
        for item in seen:
            self._line(item)
        if as_listed:
            self.seen_hints["as-listed"] = "the model takes what the catalog says"
        else:
            self._counts(taken)
        priced = [item for item in seen if item.price.known]
        self._configured(priced)
        self._against_each_other(seen, priced)
        self._remarks()
        if self.wrong:
            return self._contradicted()
        if not priced:
            return self._unseen()
        return self._proved(priced, seen)

    # ------------------------------------------------------------------------------------------------- what was seen

    def _taken(self) -> tuple[dict[Size, int], bool]:
        """Tokens of a picture by size, and whether they are the catalog's.

        The longest text was sent alone and with each picture, so that the differences are the pictures' own, but for
        the few marks that a chat template puts around each; what one has too much, within reason, is taken for those.
        """
        alone = next((item.prompt_tokens for item in self.answered if not item.media and item.prompt_tokens), None)
        raw: dict[Size, int] = {}
        for item in self.answered:
            if item.purpose == "pricing.count" and item.prompt_tokens and alone is not None:
                medium = item.media[0]
                raw[medium.width, medium.height] = item.prompt_tokens - alone
        if self.known.family is None:
            return raw, False
        extra = [tokens - (self.known.tokens(size) or 0) for size, tokens in raw.items()]
        marks = sorted(number for number in extra if 0 <= number <= self.plan.marks)
        least = marks[0] if marks else 0
        return {size: tokens - least for size, tokens in raw.items()}, bool(marks) and len({*extra}) == 1

    def _prices(self, taken: Mapping[Size, int]) -> list[_Seen]:
        found: dict[tuple[Size, bool], Search] = {}
        for item in self.evidence.observed("price"):
            numbers = item.numbers
            key = (int(numbers["width"]), int(numbers["height"])), bool(numbers["hidden"])
            search = found.setdefault(key, Search(numbers["form"], int(numbers["block"]), 0))
            search.form = numbers["form"]
            search.heard(int(numbers["text"]), int(numbers["counted"]))
        keys = sorted({*found, *((size, False) for size in taken)}, key=lambda key: (key[1], key[0][0] * key[0][1]))
        return [
            _Seen(
                size,
                hidden,
                found[size, hidden].bounds if (size, hidden) in found else Bounds(),
                self.known.price(size, hidden),
                None if hidden else taken.get(size),
                None if hidden else self.known.tokens(size),
            )
            for size, hidden in keys
        ]

    def _line(self, item: _Seen) -> None:
        price = str(item.price) if item.price.known else None
        parts = [f"the router charges {price}"] if price else []
        if price and item.configured is not None:
            parts[0] += f" (configured: {item.configured})"
        if item.taken is not None:
            catalog = f" (catalog: {item.expected})" if item.expected is not None else ""
            parts.append(f"the model takes {item.taken}{catalog}")
        what = f"{item.name} in a format that the router does not read" if item.hidden else item.name
        self.lines.append(
            Line(
                f"{what}: {', '.join(parts)}",
                {
                    "size": item.name, "lowestPrice": item.price.low if price else None,
                    "highestPrice": item.price.high if price else None, "configuredPrice": item.configured,
                    "taken": item.taken, "catalogTaken": item.expected,
                },
            )
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------- what is wrong

    def _counts(self, taken: Mapping[Size, int]) -> None:
        """The model's tokens against the catalog's."""
        family = self.known.family
        off = {size: tokens for size, tokens in taken.items() if tokens != self.known.tokens(size)}
        if family is None or not off:
            return
        size = max(off, key=lambda item: item[0] * item[1])
        text = f"a {size[0]}x{size[1]} picture takes {off[size]} tokens, {family.title} takes {self.known.tokens(size)}"
        alike = list(Lookalikes(self.facts.catalog).families(taken, self.plan.marks))
        same = [other for other in alike if other.slug == family.slug]
        if alike and not same:
            titles = list(dict.fromkeys(other.title for other in alike))
            self.seen_hints["looks-like"] = f"these are the counts of {' or '.join(titles)}"
            self._tokens("other-model", text)
        elif same or self._one_sided(off, taken):
            if same:
                self.seen_hints["looks-like"] = f"these are the counts of {same[0].setting}"
            self._tokens("processor-limits", text)
        elif self.known.sure:
            self._tokens("other-counts", text)
        else:
            self.lines.append(Line(f"{text}; but the catalog has that from memory: {family.confidence}"))

    def _tokens(self, symptom: str, text: str) -> None:
        self.wrong.append((symptom, text))
        self.seen_hints["other-tokens"] = text

    def _one_sided(self, off: Mapping[Size, int], taken: Mapping[Size, int]) -> bool:
        """Whether only the largest pictures take less than they should, or only the smallest take more."""
        areas = {size: size[0] * size[1] for size in taken}
        rest = [areas[size] for size in taken if size not in off]
        if not rest:
            return False
        less = all(tokens < (self.known.tokens(size) or 0) for size, tokens in off.items())
        more = all(tokens > (self.known.tokens(size) or 0) for size, tokens in off.items())
        return (less and min(areas[size] for size in off) > max(rest)) or (
            more and max(areas[size] for size in off) < min(rest)
        )

    def _configured(self, priced: Sequence[_Seen]) -> None:
        """The router's prices against its configuration."""
        off = [item for item in priced if item.configured is not None and item.configured not in item.price]
        if not off:
            if priced and self.known.estimator is not None:
                self.seen_hints["as-configured"] = "the prices are as configured"
            return
        item = max(off, key=lambda one: one.size[0] * one.size[1])
        what = f"{item.name} picture" + (" of a format that it does not read" if item.hidden else "")
        symptom = "default-price" if all(one.hidden for one in off) else "other-price"
        self.wrong.append(
            (symptom, f"the router charges {item.price} for a {what}, the bundle configures {item.configured}")
        )
        if self._built_in(priced):
            self.seen_hints["built-in"] = "every price is that of the router's built-in defaults"
            return
        fits = {one.size: one.price for one in priced if not one.hidden}
        alike = list(Lookalikes(self.facts.catalog).estimates(fits))
        if alike:
            self.seen_hints["other-estimate"] = f"these are the prices of {' or '.join(alike[:3])}"

    def _built_in(self, priced: Iterable[_Seen]) -> bool:
        plain = Estimator()
        return all((plain.image_unseen() if item.hidden else plain.image(*item.size)) in item.price for item in priced)

    def _against_each_other(self, seen: Iterable[_Seen], priced: Sequence[_Seen]) -> None:
        """Prices against tokens, where both were measured; where only tokens were, the configured price, if the
        measured ones were as configured. The one that is furthest off is told."""
        as_configured = bool(priced) and all(item.configured in item.price for item in priced)
        off: list[tuple[float, str]] = []
        for item in seen:
            if item.hidden or not item.taken or item.size == min(self.plan.counted):
                continue  # icons lie under the floor of many models: no setting of the router follows those
            prices = item.price if item.price.known else None
            if prices is None and as_configured and item.configured is not None:
                prices = Bounds(item.configured, item.configured)
            if prices is None:
                continue
            allowed = self.known.tolerance(item.size, item.taken) * item.taken / 100
            if prices.low > item.taken + allowed or prices.high < item.taken - allowed:
                price = prices.low if prices.low > item.taken else prices.high
                percent = (price - item.taken) / item.taken * 100
                text = f"a {item.name} picture is charged {prices}, and takes {item.taken} ({percent:+.0f} %)"
                off.append((abs(percent), text))
        if off:
            self.wrong.append(("wrong-price", max(off)[1]))

    def _remarks(self) -> None:
        for remark in self.known.remarks:
            self.lines.append(Line(remark))
            self.seen_hints.setdefault("odd-producer", remark)

    # ---------------------------------------------------------------------------------------------------- the verdict

    def _contradicted(self) -> Verdict:
        symptoms = [symptom for symptom, _ in self.wrong]
        found = {**hints.seen(self.evidence, self.facts), **self.seen_hints}
        causes = ranked(self.facts, _CLAIM, symptoms, found)
        summary = "; ".join(dict.fromkeys(sentence for _, sentence in self.wrong))
        return Verdict(_CLAIM, CONTRADICTED, summary, tuple(self.lines), causes)

    def _unseen(self) -> Verdict:
        taken = "what the model takes is as the catalog has it, but " if self.known.family is not None else ""
        failed = unanswered(list(self.evidence.of("pricing.text", "pricing.count", "pricing.step")))
        if failed:
            total = len(failed) + len(self.answered)
            return unseen(
                _CLAIM,
                f"{taken}{len(failed)} of {total} requests failed: {failed[0][1]}",
                self.lines,
                ("requests that succeed: the claims text, image, entry and roles say why these fail",),
            )
        foreign = hints.seen(self.evidence, self.facts).get("pool-foreign")
        others = sum(int(item.numbers.get("others") or 0) for item in self.evidence.observed("price-unread"))
        if others:
            return unseen(
                _CLAIM,
                f"{taken}{others} foreign request{'s' * (others != 1)} counted with ours",
                self.lines,
                ("a quiet moment; or a router from v0.10.0 on, whose gauge of tokens in flight is kept by client",),
            )
        if foreign:
            wanted = [f"a pool without pods of others ({foreign}): the claim roles says more of it"]
        elif not self.facts.targets.pickers:
            wanted = ["list the picker's metrics address (picker: in the targets file)"]
        else:
            found = windows(self.evidence, self.facts, "pricing")
            wanted = pages_missing(
                reason for window in found for reason in window.moved("picker", "prefixHitBytes", "sum").unknown
            ) or ["one decode pod, or requests slow enough to be seen under way (0.1 s to the first token)"]
        return unseen(_CLAIM, f"{taken}what the router charges could not be read", self.lines, wanted)

    def _proved(self, priced: Iterable[_Seen], seen: Iterable[_Seen]) -> Verdict:
        shown = [item for item in priced if not item.hidden]
        if len(shown) < 2 and not any(item.price.exact for item in shown):
            return self._unseen()  # one rough price fits several estimates
        item = max(shown, key=lambda one: one.size[0] * one.size[1])
        taken = f", the model takes {item.taken}" if item.taken is not None else ""
        summary = f"a {item.name} picture is charged {item.price}{taken}"
        summary += ": as the catalog has it" if self.known.estimator is not None and self.known.family else ""
        wanted = []
        if self.known.estimator is None:
            wanted.append("what the router should charge: name the bundle (bundle: in the targets file)")
        if self.known.family is None:
            wanted.append(f"what {self.facts.targets.model} should take: the catalog does not know this model")
        lacking = [one.name for one in seen if one.hidden and not one.price.known]
        if lacking:
            wanted.append("the price of pictures that the router does not read: a quiet moment, a larger --budget")
        return proved(_CLAIM, summary, self.lines, wanted)
