"""``mmdeploy verify`` on a cluster: which deployment is meant, and the rights that it takes."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmdeploy.cli import naming

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended
    from mmdeploy.verify.cluster.deployment import Recorded
    from mmdeploy.verify.evidence import Observation
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.transport import Transport

Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", help="Another kubeconfig.", metavar="FILE")]
Context = Annotated[str | None, typer.Option("--context", help="Another context of the kubeconfig.", metavar="NAME")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Where it is.  [default: the bundle's, or the context's own]",
        metavar="NAMESPACE",
        callback=naming.namespace,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="The router's release.  [default: the bundle's, or the only one]",
        metavar="NAME",
        callback=naming.name,
    ),
]
Via = Annotated[
    str | None,
    typer.Option(
        "--via",
        help="How requests get there: proxy, port-forward, pod, or the entry point's URL.  "
        "[default: the first that works]",
        metavar="proxy|port-forward|pod|URL",
    ),
]
MetricsToken = Annotated[
    str | None,
    typer.Option(
        "--metrics-token", help="Bearer token for the picker's metrics; not by proxy.", metavar="env:NAME|file:PATH"
    ),
]
PrintRights = Annotated[bool, typer.Option("--print-rbac", help="Print the rights that it takes, without a cluster.")]
Who = Annotated[
    str | None,
    typer.Option("--for", help="Whom --print-rbac grants them.", metavar="USER|group:NAME|serviceaccount:NS:NAME"),
]


@dataclass(frozen=True)
class Subject:
    """What is verified, and how it is reached."""

    facts: Facts
    transport: Transport
    observations: Iterable[Observation] = ()
    barred: Mapping[str, str] = field(default_factory=dict)
    logs: Callable[[str], Sequence[str]] | None = None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class OnCluster:
    """The options that say which deployment on which cluster."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    name: str | None
    via: str | None
    token: str | None
    bundle: Path | None
    model: str | None
    verbose: bool = False

    def check(self) -> None:
        """Raise `UsageError` for words that mean nothing."""
        from mmdeploy.errors import UsageError
        from mmdeploy.verify.cluster.rights import WAYS
        from mmdeploy.verify.targets import VARIABLE
        from mmdeploy.words import nearest

        if self.via is not None and self.via not in WAYS and not self.via.startswith(("http://", "https://")):
            choices = [*WAYS, "http://ADDRESS"]
            raise UsageError(
                f"{self.via!r} leads nowhere", origin="--via", nearest=nearest(self.via, choices) or choices
            )
        if self.token is not None and self.token.partition(":")[0] not in ("env", "file"):
            raise UsageError(
                "a token does not stand on the command line", origin="--metrics-token",
                nearest=["env:NAME", "file:PATH"],
            )  # fmt: skip
        kind, _, name = (self.token or "").partition(":")
        if self.token is not None and (not name or (kind == "env" and not re.fullmatch(VARIABLE, name))):
            raise UsageError(
                f"{name!r} is no name of a {'variable' if kind == 'env' else 'file'}", origin="--metrics-token",
                nearest=["env:NAME", "file:PATH"], next_step="a variable: letters, digits and _, and no digit first",
            )  # fmt: skip

    def connected(self) -> Session:
        """A session. Raises `ClusterError`."""
        from mmdeploy.cli.performing import traced
        from mmdeploy.cluster.access import Access
        from mmdeploy.cluster.session import Session

        return Session.connect(Access(self.kubeconfig, self.context), traced if self.verbose else None)

    @staticmethod
    def end_well() -> None:
        """Take SIGTERM for Ctrl-C: a pod that sends requests is taken away on any ending that a program can notice."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    def subject(self, session: Session, catalog: Catalog, tell: Callable[[str], None]) -> Subject:
        """The deployment as it stands now. Raises as `mmdeploy.verify.cluster.deployment.reach`."""
        from mmdeploy.verify.cluster.deployment import Asked, reach

        meant = self._bundle(catalog)
        namespace = self.namespace or (meant.namespace if meant else session.where.namespace)
        asked = Asked(namespace, self.name, self.via, self.model, self.token or "", meant)
        reached = reach(session, catalog, asked, tell, recorded(session, namespace))
        for item in reached.found.observations:
            if "claim" not in item.numbers:
                tell(f"{item.about}: {item.detail}")
        return Subject(
            reached.facts,
            reached.way.transport,
            reached.found.observations,
            reached.way.barred,
            reached.logs,
            reached.close,
        )

    def rights(self, catalog: Catalog, who: str | None, debug: bool, *, document: bool) -> str:
        """The rights, as YAML for an administrator, or as one JSON ``document``; ``debug``: those of --debug-logs, too.
        Raises `UsageError`."""
        from mmdeploy.report import checks, documents
        from mmdeploy.verify.cluster import rights

        meant = self._bundle(catalog)
        defaults = catalog.defaults_document.value
        name = self.name or (meant.name if meant else str(defaults["name"]))
        namespace = self.namespace or (meant.namespace if meant else str(defaults["namespace"]))
        ways = [self.via] if self.via in rights.WAYS else [rights.PROXY]
        found = rights.manifests(catalog, name, namespace, ways, who, debug)
        if document:
            return documents.as_json({"apiVersion": "v1", "kind": "List", "items": found})
        more = " with --debug-logs" if debug else ""
        said = f"# Rights to verify {name} by {ways[0]}{more}, written by mmdeploy verify --print-rbac.\n"
        return said + checks.manifests(found)

    def kubectl(self) -> list[str]:
        """The options that lead kubectl to the same cluster."""
        options = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        return [*options, *(["--context", self.context] if self.context else [])]

    def _bundle(self, catalog: Catalog) -> Intended | None:
        from mmdeploy import intended

        return None if self.bundle is None else intended.read(self.bundle, catalog)


def recorded(session: Session, namespace: str) -> Recorded:
    """What apply left on the cluster about a deployment: its spec, and its objects as they were applied."""

    def find(name: str) -> Intended | None:
        from mmdeploy.apply import inventory
        from mmdeploy.intended import Intended

        found = inventory.load(session, namespace, name)
        if found is None or not found.spec:
            return None
        return Intended(f"ConfigMap {found.configmap}", found.spec, {}, {"modelserver": list(found.content.values())})

    return find
