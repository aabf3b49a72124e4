"""Names that are short enough by themselves and too long for what controllers make of them.

The API server measures what it is given, also in a dry run. What a controller derives later it refuses later, where
only events, or the controller's own log, say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mmdeploy.preflight.check import Check

if TYPE_CHECKING:
    from mmdeploy.intended import Intended, Object
    from mmdeploy.preflight.subject import Subject

CATEGORY: Final = "names"
_PLACE: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Derived:
    """A name or a label's value that somebody will make of an object's name."""

    owner: str
    """Kind and name of the object, and its role where it has several."""
    what: str
    """Whose name it is: ``the Service of each group``."""
    shape: str
    """How it is made: ``{name}-{hash}``."""
    length: int
    """Characters, at most."""
    longest: int
    """Characters that are allowed."""

    @property
    def excess(self) -> int:
        """Characters that it has too many; not above zero where it fits."""
        return self.length - self.longest


def checks(subject: Subject) -> Iterator[Check]:
    """The namespace's name where nobody has accepted it yet, one check for each object that is named too long."""
    rules = subject.facts["names"]
    yield from _spelt(subject, rules)
    yield from _unusable(subject.intended, rules)
    found = list(derived(subject.intended, rules))
    worst: dict[str, Derived] = {}
    for each in found:
        if each.excess > 0 and (each.owner not in worst or worst[each.owner].excess < each.excess):
            worst[each.owner] = each
    for each in worst.values():
        yield Check(
            CATEGORY, f"{each.owner}{',' * (', ' in each.owner)} has a name that controllers can work with", "error",
            f"{each.what} will be {each.shape.replace('{', '').replace('}', '')}, {each.length} characters of "
            f"{each.longest} that are allowed", _hint(subject, each),
        )  # fmt: skip
    if not worst:
        tightest = max(found, key=lambda each: each.excess, default=None)
        detail = (
            f"the tightest is {tightest.owner}: {tightest.length} of {tightest.longest} characters" if tightest else ""
        )
        yield Check(CATEGORY, "names leave room for what controllers add", "ok", detail)


def _hint(subject: Subject, each: Derived) -> str:
    if each.owner.startswith("Helm release"):
        return f"shorten it by {each.excess} (--set name=…)"
    return f"shorten it by {each.excess} (--set namePrefix=… where the bundle was rendered)"


def _spelt(subject: Subject, rules: Mapping[str, Any]) -> Iterator[Check]:
    """A namespace that exists has a name that will do; of one that does not nothing else tries it."""
    if subject.seen.namespace.value is not None or not subject.seen.namespace.absent:
        return
    name, longest = subject.namespace, int(rules["label"])
    if len(name) > longest:
        yield Check(CATEGORY, f"{name} can be a namespace's name", "error",
                    f"it has {len(name)} characters of {longest} that are allowed",
                    f"shorten it by {len(name) - longest} (--set namespace=…)")  # fmt: skip
    elif re.fullmatch(rules["spelling"], name) is None:
        yield Check(CATEGORY, f"{name} can be a namespace's name", "error",
                    "lower-case letters, digits and dashes only, and none of the dashes first or last",
                    "choose another (--set namespace=…)")  # fmt: skip


def _unusable(intended: Intended, rules: Mapping[str, Any]) -> Iterator[Check]:
    """Sets whose children's Services cannot be named after them: the set is stored, and nothing ever comes of it."""
    for item in intended.workloads:
        name = str(item["metadata"]["name"])
        if item["kind"] in rules["serving"] and re.fullmatch(rules["serviceSpelling"], name) is None:
            yield Check(
                CATEGORY, f"{item['kind']} {name} has a name that a Service can have", "error",
                "lower-case letters, digits and dashes only, a letter first and no dash last: the set would be stored "
                "and never started, as only its manager's log says", "choose another (--set namePrefix=…)",
            )  # fmt: skip


def derived(intended: Intended, rules: Mapping[str, Any]) -> Iterator[Derived]:
    """Everything that is made of the names of a deployment, by ``names`` of the catalog's ``preflight.yaml``."""
    yield Derived(f"Helm release {intended.name}", "a release's name", "{name}", len(intended.name), rules["release"])
    for item in intended.workloads:
        for owner, given, traits in _named(item):
            for rule in rules["derived"].get(item["kind"], ()):
                if set(rule.get("when") or ()) <= traits:
                    shape = str(rule["shape"])
                    length = len(_PLACE.sub(lambda place: _widest(place[1], given, rules), shape))  # noqa: B023
                    yield Derived(owner, rule["what"], shape, length, rules[rule["longest"]])


def _widest(place: str, given: Mapping[str, str], rules: Mapping[str, Any]) -> str:
    """What stands for a place of a shape; of what a controller makes up as much as it may take."""
    return given[place] if place in given else "x" * int(rules["widths"][place])


def _named(item: Object) -> Iterator[tuple[str, dict[str, str], set[str]]]:
    """Who is meant, the words of its shapes, and which rules hold: for a set once a role."""
    name, spec = str(item["metadata"]["name"]), item.get("spec") or {}
    owner = f"{item['kind']} {name}"
    if item["kind"] == "DisaggregatedSet":
        for role in spec["roles"]:
            given = {"name": name, "role": str(role["name"]), "slice": str(max(0, int(spec.get("slices", 1)) - 1))}
            yield f"{owner}, role {role['name']}", *_grouped(role["spec"], given)
    elif item["kind"] == "LeaderWorkerSet":
        yield owner, *_grouped(spec, {"name": name})
    else:
        yield owner, {"name": name, "ordinal": _last(spec)}, set()


def _grouped(spec: Mapping[str, Any], given: Mapping[str, str]) -> tuple[dict[str, str], set[str]]:
    template = spec["leaderWorkerTemplate"]
    traits = {"hashed"} if spec.get("groupIdentity") == "Hash" else {"ordinal"}
    if int(template.get("size", 1)) > 1:
        traits.add("workers")
    return {**given, "group": _last(spec)}, traits


def _last(spec: Mapping[str, Any]) -> str:
    """The number of the last replica."""
    return str(max(0, int(spec.get("replicas", 1)) - 1))


__all__ = ["CATEGORY", "Derived", "checks", "derived"]
