"""Objects of somebody else under the names that the router's chart gives to its own: helm refuses to touch them, after
much else has been applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.collisions import CATEGORY, owner_of, release_of
from mmdeploy.preflight.reading import Reading, attempt
from mmdeploy.preflight.subject import Subject

if TYPE_CHECKING:
    from mmdeploy.intended import Object

_NAMESPACE: Final = "meta.helm.sh/release-namespace"


def foreign(subject: Subject, tried: Sequence[tuple[Object, Reading[Any]]]) -> Iterator[Check]:
    """One check for each object of the chart that is there and not its release's; nothing where --adopt takes it over.

    ``tried`` has the answers to the dry runs: that of an object which is there carries its resourceVersion and the
    marks that helm looks at.
    """
    if subject.options.adopt or not subject.namespace_exists:
        return
    known = _known(subject)
    for item, answer in tried:
        key = (str(item["kind"]), str(item["metadata"]["name"]))
        live = None if key in known else _live(subject, item, answer)
        if live is None or _is_of(live, subject.intended.name, subject.namespace):
            continue
        yield Check(
            CATEGORY, _title(item), "error", f"there is one already ({_owner(live, subject)}), and helm touches only "
            f"what is of its release {subject.intended.name}",
            "apply --adopt takes it over into the release; or choose another name (--set name=…)",
        )  # fmt: skip


def concerns(item: Object, checks: Sequence[Check]) -> bool:
    """Whether one of the checks of `foreign` is about the object."""
    return any(check.name == _title(item) for check in checks)


def _title(item: Object) -> str:
    return f"{item['kind']} {item['metadata']['name']} is free for the router's chart"


def _known(subject: Subject) -> set[tuple[str, str]]:
    """What need not be looked at: what the release has already, which helm does not ask again, and what has one name
    in every release, which has a check of its own."""
    release = subject.seen.release.value
    manifest = attempt(lambda: list(release.manifest) if release else []).value or []
    own = {(str(item.get("kind")), str((item.get("metadata") or {}).get("name"))) for item in manifest if item}
    return own | {(rule["kind"], rule["name"]) for rule in subject.facts["router"]["fixed"]}


def _live(subject: Subject, item: Object, answer: Reading[Any]) -> Mapping[str, Any] | None:
    """The object as it is; None where it is not, or nobody may know."""
    if answer.problem is None:
        found: Mapping[str, Any] = answer.value or {}
        return found if (found.get("metadata") or {}).get("resourceVersion") else None
    if item["kind"] == "Secret":  # looking at it would be reading it
        return None
    placed = {**item, "metadata": {**item["metadata"], "namespace": subject.namespace}}
    return attempt(lambda: subject.session.live(placed)).value


def _is_of(live: Mapping[str, Any], release: str, namespace: str) -> bool:
    notes = live["metadata"].get("annotations") or {}
    return release_of(live) == release and notes.get(_NAMESPACE) == namespace


def _owner(live: Mapping[str, Any], subject: Subject) -> str:
    """Whose it is. The dry run that asked is a manager too, until it is over."""
    owner = owner_of(live, besides=("mmdeploy",))
    namespace = (live["metadata"].get("annotations") or {}).get(_NAMESPACE)
    elsewhere = release_of(live) and namespace and namespace != subject.namespace
    return f"{owner} of namespace {namespace}" if elsewhere else owner


__all__ = ["concerns", "foreign"]
