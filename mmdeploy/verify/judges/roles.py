"""Every role serves: each pod answers on its role's own port under the served name, and the picker counts these pods
and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mmdeploy.verify import counters, hints
from mmdeploy.verify.evidence import Evidence, Scrape, Sent
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.hints import lacking_roles
from mmdeploy.verify.judges.findings import contradicted, not_sent, pages_missing, proved, unseen
from mmdeploy.verify.targets import Pod
from mmdeploy.verify.verdicts import Line, Verdict
from mmdeploy.verify.window import restarts

_TOLD = 3
"""Sentences of a summary; all of them stand in the evidence."""

_RANK = re.compile(r"-rank-\d+$")


@dataclass
class _Found:
    """What the parts of the claim gave."""

    lines: list[Line] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """Symptom and sentence."""
    unseen: list[str] = field(default_factory=list)
    counted: bool = False
    """Whether somebody says which pods the pool holds: a picker, or the cluster's own objects."""


def judge(evidence: Evidence, facts: Facts) -> Verdict:
    """See the module."""
    asked = {sent.target: sent for sent in evidence.of("models", "health")}
    found = _Found()
    _seen(evidence, facts, found)
    if not asked:
        found.wrong += [("unready", f"{pod.name} is not ready") for pod in facts.targets.pods if pod.ready is False]
        return _wrong(found, evidence, facts) if found.wrong else not_sent("roles", evidence)
    for role in facts.roles:
        _role(role, asked, facts, found)
    _versions(evidence, facts, found)
    _counted(evidence, facts, found)
    _lost(evidence, facts, found)
    if found.wrong:
        return _wrong(found, evidence, facts)
    short = facts.targets.unlisted
    counts = ", ".join(f"{len(facts.targets.of(role))}{_of_bundle(role, short)} {role}" for role in facts.roles)
    answers = f"{counts}: each answers under the served name"
    if short:
        listed, meant = (sum(numbers) for numbers in zip(*short.values(), strict=True))
        more = f"{meant - listed} of the bundle's {'/'.join(short)} pods are not listed, and were not looked at"
        found.unseen.append(f"list every pod in {facts.targets.where or 'the targets file'} (roles:)")
        return unseen("roles", f"{answers}; {more}", found.lines, found.unseen)
    if not found.counted:
        return unseen("roles", f"{answers}; which pods the pool holds is not known", found.lines, found.unseen)
    return proved("roles", answers, found.lines, found.unseen)


def _of_bundle(role: str, short: Mapping[str, tuple[int, int]]) -> str:
    return f" of {short[role][1]}" if role in short else ""


def _wrong(found: _Found, evidence: Evidence, facts: Facts) -> Verdict:
    said = list(dict.fromkeys(sentence for _, sentence in found.wrong))
    more = f"; and {len(said) - _TOLD} more" if len(said) > _TOLD else ""
    listed = [f"{one} of {meant} {role} pods" for role, (one, meant) in facts.targets.unlisted.items()]
    more += f"; the targets file lists {', '.join(listed)} of the bundle" if listed else ""
    summary = "; ".join(said[:_TOLD]) + more
    return contradicted("roles", summary, found.lines, [name for name, _ in found.wrong], evidence, facts)


def _seen(evidence: Evidence, facts: Facts, found: _Found) -> None:
    """What the cluster's own objects show: pods of others in the pool, pods that it misses, labels that mislead."""
    found.counted = any(pod.ready is not None for pod in facts.targets.pods)
    for item in evidence.observed("cluster"):
        if item.numbers.get("claim") == "roles":
            found.wrong.append((str(item.numbers["symptom"]), item.detail))
            found.lines.append(Line(item.detail, {"symptom": str(item.numbers["symptom"])}))
        elif item.about == "pools":
            found.counted = False
            found.unseen.append(f"which pods the pool selects: {item.detail}; mmdeploy verify --print-rbac prints it")


def _role(role: str, asked: dict[str, Sent], facts: Facts, found: _Found) -> None:
    pods = facts.targets.of(role)
    wrong = [problem for pod in pods if (problem := _pod(pod, asked.get(pod.name), facts)) is not None]
    good = len(pods) - len(wrong)
    found.wrong += wrong
    meant = facts.targets.configuration.get("replicas", {}).get(role)
    said = f", {meant} in the bundle" if meant is not None else ""
    numbers = {"pods": len(pods), "serving": good, "meant": meant}
    found.lines.append(Line(f"{role}: {good} of {len(pods)} pods serve {facts.targets.model}{said}", numbers))
    found.lines += [Line(sentence) for _, sentence in wrong]
    live = any(pod.ready is not None for pod in facts.targets.pods)
    if live and not pods and meant is None:
        found.wrong.append(("pods-missing", f"there are no {role} pods"))
    if live and meant is not None and len(pods) < meant:
        found.wrong.append(("pods-missing", f"{role} has {len(pods)} pods where {meant} should be"))


def _pod(pod: Pod, sent: Sent | None, facts: Facts) -> tuple[str, str] | None:
    if pod.ready is False:
        return "unready", f"{pod.name} is not ready"
    if sent is None:
        return None
    if sent.status is None:
        return "no-answer", f"{pod.name} does not answer: {sent.error}"
    if not sent.answered:
        return f"http-{sent.status}", f"{pod.name} answers HTTP {sent.status} on {sent.path}"
    if sent.purpose != "models":
        return None
    models = sent.fields.get("models")
    if models is None:
        return "other-program", f"{pod.name} does not list models on {sent.path}"
    if facts.targets.model not in models:
        listed = ", ".join(map(str, models)) or "no model"
        return "other-model", f"{pod.name} serves {listed}, not {facts.targets.model}"
    return None


def _versions(evidence: Evidence, facts: Facts, found: _Found) -> None:
    """Pods of a role, and all that hand KV to each other, are of one engine release."""
    versions = {sent.target: sent.fields["version"] for sent in evidence.of("version") if sent.fields.get("version")}
    if not versions:
        return
    groups = [(role,) for role in facts.roles] + [facts.language_roles]
    for group in groups:
        said = {
            pod.name: versions[pod.name] for role in group for pod in facts.targets.of(role) if pod.name in versions
        }
        if len(set(said.values())) > 1 and "other-version" not in {name for name, _ in found.wrong}:
            counts: dict[str, list[str]] = {}
            for name, version in said.items():
                counts.setdefault(str(version), []).append(name)
            odd = min(counts, key=lambda version: len(counts[version]))
            others = " and ".join(sorted(set(counts) - {odd}))
            found.wrong.append(("other-version", f"{', '.join(counts[odd])} runs {odd}, the others {others}"))
    listed = ", ".join(sorted(set(map(str, versions.values()))))
    found.lines.append(Line(f"engine release of {len(versions)} pods: {listed}", {"releases": listed}))


def _counted(evidence: Evidence, facts: Facts, found: _Found) -> None:
    """What each picker says of its endpoints. The gauge is written every 5 s and counts fresh pages only, so the run's
    best and worst readings count."""
    wanted = len(facts.pool)
    if not facts.targets.pickers:
        found.unseen.append("list the endpoint picker's metrics address (picker: in the targets file)")
    family = facts.page("picker").families["readyEndpoints"]
    for picker in facts.targets.pickers:
        pages = [page for page in evidence.scrapes if page.endpoint == picker.name]
        values = [number for page in pages if (number := counters.value(page, family)) is not None]
        if not values:
            found.unseen += pages_missing([_why(pages, picker.name, family.names[0])])
            continue
        found.counted = True
        names = _listed(pages[-1], facts)
        _compare(picker.name, values, wanted, _missing(names, round(max(values)), evidence, facts), found)
        _named(names, picker.name, facts, found)


def _missing(names: set[str], count: int, evidence: Evidence, facts: Facts) -> str:
    """Which pods a picker does not count, as far as anything tells them apart: their names in its own list; a role that
    it says it has none of; the only role that has as many as are missing."""
    if any(_is_of(name, facts.pool) for name in names):
        lacking = [pod.name for pod in facts.pool if not any(_is_of(name, [pod]) for name in names)]
        if lacking:
            return f": {', '.join(lacking)} not among them"
    unready = [pod.name for pod in facts.pool if pod.ready is False]
    if unready:
        return f": {', '.join(unready)} not ready"
    seen = hints.seen(evidence, facts)
    said = [role for role in facts.roles if f"says-no-{role}" in seen or f"{role}-none" in seen]
    roles = lacking_roles(count, facts)
    fit = [role for role in said if role in roles] or roles
    if len(fit) == 1:
        how = (
            ", as it says itself" if f"says-no-{fit[0]}" in seen else f", of which there are {len(facts.pool) - count}"
        )
        return f": it lacks the {fit[0]} pods{how}"
    return f": it lacks the {' or the '.join(fit)} pods, of which there are as many" if fit else ""


def _compare(picker: str, values: Sequence[float], wanted: int, missing: str, found: _Found) -> None:
    most, least = round(max(values)), round(min(values))
    numbers = {"least": least, "most": most, "wanted": wanted}
    found.lines.append(
        Line(f"{picker} counts {most} endpoints with fresh metrics; {wanted} should be in the pool", numbers)
    )
    if most < wanted:
        symptom = "pool-empty" if most == 0 else "pool-small"
        found.wrong.append(
            (symptom, f"{picker} counts {most} endpoints where {wanted} should be{missing * (most > 0)}")
        )
    elif least > wanted:
        found.wrong.append(("pool-foreign", f"{picker} counts {least} endpoints where {wanted} should be"))


def _listed(page: Scrape, facts: Facts) -> set[str]:
    """Endpoints by the names that a picker has for them; empty where it lists none."""
    family = facts.page("picker").families["endpointQueue"]
    return {
        name
        for label in ("model_server_endpoint", "model_server_pod")
        for name in counters.by_label(page, family, label)
    }


def _named(listed: set[str], picker: str, facts: Facts, found: _Found) -> None:
    """Endpoints by name, where the names can be matched with pods at all."""
    known = {name for name in listed if _is_of(name, facts.targets.pods)}
    if not known:
        return
    foreign = sorted(listed - known)
    found.lines.append(
        Line(f"{picker} lists {len(listed)} endpoints by name, {len(foreign)} of them not of this deployment",
             {"listed": len(listed), "foreign": len(foreign)})
    )  # fmt: skip
    if foreign and "pool-foreign" not in {name for name, _ in found.wrong}:
        found.wrong.append(("pool-foreign", f"{picker}'s pool holds {', '.join(foreign)}"))


def _is_of(endpoint: str, pods: Iterable[Pod]) -> bool:
    """Whether a picker's name of an endpoint is one of these pods: by name, with namespace or rank, or by address."""
    plain = _RANK.sub("", endpoint.rpartition("/")[2])
    return any(plain == pod.name or endpoint == pod.address or plain == pod.address.rpartition(":")[0] for pod in pods)


def _why(pages: Sequence[Scrape], picker: str, name: str) -> str:
    last = pages[-1] if pages else None
    if last is None:
        return f"{picker}'s metrics were not read"
    if last.missing is None:
        return f"{picker} has no {name}"
    return f"{picker}'s metrics are {last.missing} ({last.detail})"


def _lost(evidence: Evidence, facts: Facts, found: _Found) -> None:
    """What was there when the run began, and then was not, or was another process."""
    for pod in facts.targets.pods:
        pages = [page for page in evidence.scrapes if page.endpoint == pod.name]
        if len(pages) > 1 and pages[0].readable and pages[-1].missing == "unreachable":
            found.wrong.append(("lost", f"{pod.name} was there when the run began, and is unreachable now"))
    again = restarts(evidence, facts)
    if again:
        found.wrong.append(("restarted", f"{', '.join(again)} restarted during the run"))
