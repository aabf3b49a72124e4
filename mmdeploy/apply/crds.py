"""Custom resource definitions: whether the cluster serves what a deployment needs, and installing what it does not.

One that is there is never changed silently: it is left as it is while it serves what is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mmdeploy.errors import ConflictError, NotFoundError, TimedOutError, UsageError
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.kinds import Kind

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

OPTION: Final = "--install-crds"
_KIND: Final = "CustomResourceDefinition"
_COLLECTION: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LARGEST: Final = 32 << 20
_FETCH_SECONDS: Final = 60


def missing(session: Session, kinds: Sequence[Kind]) -> list[Kind]:
    """The kinds that the API server does not serve in that version."""
    return [kind for kind in kinds if session.resource(*kind) is None]


def refusal(lacking: Sequence[Kind], intended: Intended, catalog: Catalog) -> NotFoundError:
    """What to do about kinds that are not served."""
    facts = Facts(catalog)
    said = ", ".join(f"{kind} ({version})" for version, kind in lacking)
    commands = []
    for version, _ in lacking:
        title, how = facts.bringing(version.partition("/")[0], intended.spec.get("versions", {}))
        commands += [f"{title}: {line}" for line in how] or [title]
    return NotFoundError(
        f"the cluster does not serve {said}",
        nearest=list(dict.fromkeys(commands)),
        next_step=f"an administrator installs them, or {OPTION} PATH|URL does it here",
    )


# ----------------------------------------------------------------------------------------------------------- installing


@dataclass(frozen=True)
class Definition:
    """One definition that somebody wants installed."""

    name: str
    """``inferencepools.inference.networking.k8s.io``."""
    item: Mapping[str, Any]

    @property
    def served(self) -> set[str]:
        """Versions that it serves."""
        return _served(self.item)

    @property
    def kinds(self) -> set[Kind]:
        """As objects name them."""
        spec = self.item["spec"]
        return {(f"{spec['group']}/{version}", spec["names"]["kind"]) for version in self.served}


def read(source: str) -> list[Definition]:
    """The definitions of a file, a directory or an address; whatever else is in there is left out.

    Raises `UsageError` for what cannot be read or holds none.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = []
    for name, text in _texts(source):
        try:
            items = list(yaml.load_all(text, loader))
        except yaml.YAMLError as problem:
            raise UsageError(f"is no YAML: {str(problem).splitlines()[0]}", origin=f"{OPTION} {name}") from None
        found += [Definition(item["metadata"]["name"], item) for item in items if _defines(item)]
    if not found:
        raise UsageError(f"holds no {_KIND}", origin=f"{OPTION} {source}")
    return found


def _defines(item: Any) -> bool:
    return isinstance(item, dict) and item.get("kind") == _KIND and isinstance(item.get("spec"), dict)


def _texts(source: str) -> Iterator[tuple[str, str]]:
    if source.startswith(("http://", "https://")):
        yield source, _fetched(source)
        return
    path = Path(source)
    files = sorted(file for file in path.rglob("*") if file.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            why = getattr(problem, "strerror", None) or "no text"
            raise UsageError(f"cannot be read: {why}", origin=f"{OPTION} {file}") from None


def _fetched(address: str) -> str:
    from urllib.request import urlopen

    try:
        with urlopen(address, timeout=_FETCH_SECONDS) as answer:
            data: bytes = answer.read(_LARGEST + 1)
    except (OSError, ValueError) as problem:  # no route, no such name, a status that says no, no address
        raise UsageError(f"cannot be fetched: {problem}", origin=f"{OPTION} {address}") from None
    if len(data) > _LARGEST:
        raise UsageError("is too large", origin=f"{OPTION} {address}")
    return data.decode("utf-8", "replace")


def install(session: Session, wanted: Definition, lacking: Sequence[Kind], *, dry_run: bool = False) -> str:
    """Install one; what was done: created, updated, or unchanged for one that is there and serves what is needed.

    Raises `ConflictError` for an update that would take away a version in which objects are stored, or move the kind
    in or out of namespaces.
    """
    live = session.find(f"{_COLLECTION}/{wanted.name}")
    if live is not None and not wanted.kinds.intersection(lacking):
        return "unchanged"
    if live is not None:
        stored = set((live.get("status") or {}).get("storedVersions") or ())
        kept = {version["name"] for version in wanted.item["spec"]["versions"]}
        lost = sorted(stored - kept)
        if lost or live["spec"]["scope"] != wanted.item["spec"]["scope"]:
            why = f"objects are stored in {', '.join(lost)}, which it no longer has" if lost else "its scope differs"
            raise ConflictError(
                f"{wanted.name} is there and cannot be replaced: {why}", origin=OPTION,
                next_step="migrate the stored objects first, as its project says",
            )  # fmt: skip
    session.apply(wanted.item, force=True, dry_run=dry_run)
    return "created" if live is None else "updated"


def _served(item: Mapping[str, Any]) -> set[str]:
    return {version["name"] for version in item["spec"]["versions"] if version.get("served")}


def await_served(session: Session, kinds: Sequence[Kind], pause: Any, seconds: float) -> None:
    """Return once the API server serves the kinds. ``pause`` sleeps. Raises `TimedOutError` after ``seconds``."""
    waited = 0.0
    while True:
        session.forget_kinds()
        lacking = missing(session, kinds)
        if not lacking:
            return
        if waited >= seconds:
            said = ", ".join(kind for _, kind in lacking)
            raise TimedOutError(f"the API server does not serve {said} {seconds:.0f} s after it was installed")
        pause(0.2)
        waited += 0.2


__all__ = ["OPTION", "Definition", "await_served", "install", "missing", "read", "refusal"]
