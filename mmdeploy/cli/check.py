"""``mmdeploy check``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mmdeploy.intended import Intended
    from mmdeploy.preflight.check import Options

EXAMPLES = """Examples:

mmdeploy check epd/

mmdeploy check --pre epd/

mmdeploy check epd/ --wait 10m -o json

mmdeploy check epd/ --print-rbac --for group:ml-team | kubectl apply -f -
"""


class Form(StrEnum):
    """Forms of ``-o``."""

    text = "text"
    json = "json"
    yaml = "yaml"


Blueprints = Annotated[
    Path | None, typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS")
]


def check(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory, or a spec file.", metavar="BUNDLE")] = Path(),
    pre: Annotated[
        bool, typer.Option("--pre", help="Before there is a namespace or a token: apply will create them.")
    ] = False,
    wait: Annotated[
        str | None, typer.Option("--wait", help="Try again until nothing is wrong: 30s, 10m.", metavar="DURATION")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    output: Annotated[Form, typer.Option("--output", "-o", help="What stdout gets.")] = Form.text,
    router_chart: Annotated[
        str | None,
        typer.Option("--router-chart", help="Also try what this chart makes: a path, or oci://…", metavar="CHART"),
    ] = None,
    hf_token_from: Annotated[
        str | None,
        typer.Option("--hf-token-from", help="Try this token on the model's files.", metavar="env:NAME|file:PATH"),
    ] = None,
    autoscaled: Annotated[
        bool, typer.Option("--autoscaled", help="Nodes are added on demand: too few of them is no error.")
    ] = False,
    print_rbac: Annotated[
        bool, typer.Option("--print-rbac", help="Print the rights that apply takes, without a cluster.")
    ] = False,
    who: Annotated[
        str | None,
        typer.Option("--for", help="Whom to grant them.", metavar="USER|group:NAME|serviceaccount:NAMESPACE:NAME"),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Another kubeconfig.", metavar="FILE", show_default=False)
    ] = None,
    context: Annotated[str | None, typer.Option("--context", help="Another of its contexts.", metavar="NAME")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say each request on stderr.")] = False,
    blueprints_dir: Blueprints = None,
) -> None:
    """Look whether a cluster has what a bundle needs; nothing on it changes. Exit 1 when something is wrong."""
    from mmdeploy.cli import blueprints, reading
    from mmdeploy.errors import UsageError
    from mmdeploy.preflight.check import Options

    catalog = blueprints.load(blueprints_dir)
    wanted = reading.bundle(bundle, catalog)
    if print_rbac:
        _print_rights(wanted, catalog, who, output)
        return
    if who is not None or output is Form.yaml:
        raise UsageError("belongs to --print-rbac", origin="--for" if who is not None else "-o yaml")
    options = Options(
        catalog,
        creates=frozenset({"namespace", "secret"} if pre else ()),
        chart=_chart(router_chart, wanted, catalog),
        token=_token(hf_token_from),
        autoscaled=autoscaled,
    )
    seconds = _seconds(wait)
    session = _Connecting(kubeconfig, context, verbose)
    code = _Checking(session, wanted, options, strict, output).until(seconds)
    if code:
        raise typer.Exit(code)


def _print_rights(wanted: Intended, catalog: Any, who: str | None, output: Form) -> None:
    from mmdeploy.preflight import rbac
    from mmdeploy.preflight.facts import Facts
    from mmdeploy.preflight.rights import rights
    from mmdeploy.report import checks, documents, problems

    if who is None:
        said = f"{rbac.PLACEHOLDER} stands for whom the rights are for: --for NAME, group:NAME or "
        print(problems.remark(f"{said}serviceaccount:NAMESPACE:NAME puts them in"), file=sys.stderr)
    found = rbac.manifests(rights(wanted, Facts(catalog)), wanted.name, wanted.namespace, who)
    if output is Form.json:
        print(documents.as_json({"apiVersion": "v1", "kind": "List", "items": found}), end="")
        return
    print(f"# Rights to put {wanted.name} on a cluster, written by mmdeploy check --print-rbac.")
    print(f"# Namespace {wanted.namespace} must exist first: kubectl create namespace {wanted.namespace}")
    print(checks.manifests(found), end="")


def _chart(said: str | None, wanted: Intended, catalog: Any) -> Any:
    """The chart that somebody named. Raises `UsageError` for a path at which there is none."""
    from mmdeploy.apply.router import chart_of

    return None if said is None else chart_of(wanted, catalog, said)


def _token(said: str | None) -> str | None:
    """The token from where a person said. Raises `UsageError`; no message holds it."""
    from mmdeploy.apply.secret import TokenSource
    from mmdeploy.errors import UsageError

    if said is None:
        return None
    if said.partition(":")[0] not in ("env", "file"):
        raise UsageError(
            "says neither env:NAME nor file:PATH; a token itself would be seen by everybody on this machine",
            origin="--hf-token-from", nearest=["env:HF_TOKEN", "file:PATH"],
            next_step="--hf-token-from env:HF_TOKEN",
        )  # fmt: skip
    return TokenSource.of(said).read()


def _seconds(said: str | None) -> float | None:
    """A duration in seconds. Raises `UsageError`."""
    from mmdeploy.apply.stages import duration_of

    return None if said is None else duration_of(said, "--wait")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # in one piece: requests run in parallel


class _Connecting:
    """A session, once there is one: with ``--wait`` a cluster may come up later."""

    def __init__(self, kubeconfig: Path | None, context: str | None, verbose: bool) -> None:
        self.kubeconfig, self.context, self.verbose = kubeconfig, context, verbose

    def __call__(self) -> Any:
        from mmdeploy.cluster.access import Access
        from mmdeploy.cluster.session import Session

        trace = _say if self.verbose else None
        return Session.connect(Access(self.kubeconfig, self.context), trace)


class _Checking:
    """Runs of all checks, until they pass or time is over."""

    def __init__(self, connect: _Connecting, wanted: Intended, options: Options, strict: bool, form: Form) -> None:
        self.connect, self.wanted, self.options, self.strict, self.form = connect, wanted, options, strict, form
        self.found: list[Mapping[str, Any]] = []
        self.unreachable = False

    def until(self, seconds: float | None) -> int:
        """The exit code. Without a time, lines are printed as they come."""
        import time

        from mmdeploy.report import checks, documents, problems

        end = None if seconds is None else time.monotonic() + seconds
        while True:
            self._once(live=end is None and self.form is Form.text)
            left = 0.0 if end is None else end - time.monotonic()
            if self.good or left <= 0:
                break
            wrong = [item["description"] for item in self.found if item["result"] != "ok" and self._counts(item)]
            said = f"waiting for: {'; '.join(wrong[:3])}" + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            print(problems.remark(said), file=sys.stderr)
            time.sleep(min(_PAUSE_SECONDS, left))
        if self.form is Form.json:
            about = {"bundle": self.wanted.origin, "name": self.wanted.name, "namespace": self.wanted.namespace}
            print(documents.as_json(checks.document(self.found, self.good, about)), end="")
        else:
            if end is not None:
                print("\n".join(checks.lines(self.found)))
            print(f"\n{checks.verdict(self.found, self.strict)}")
        if self.good:
            return 0
        return 5 if self.unreachable else 124 if end is not None else 1

    @property
    def good(self) -> bool:
        """Whether nothing counts against it."""
        return not any(self._counts(item) for item in self.found)

    def _counts(self, item: Mapping[str, Any]) -> bool:
        return item["result"] == "error" or (self.strict and item["result"] == "warning")

    def _once(self, live: bool) -> None:
        from mmdeploy.report import checks

        self.found = []
        for line in checks.lines(self._noted()):
            if live:
                print(line, flush=True)

    def _noted(self) -> Iterator[Mapping[str, Any]]:
        """Each check as data; no connection is a check that fails."""
        from mmdeploy.errors import ClusterError
        from mmdeploy.preflight.check import Check
        from mmdeploy.preflight.run import run

        self.unreachable = False
        try:
            session = self.connect()
            session.once("GET", "/version")  # once: a person who mistyped an address should not wait for retries
            for each in run(session, self.wanted, self.options):
                yield self._note(each)
        except ClusterError as problem:
            self.unreachable = True
            hint = problem.next_step or ""
            if problem.nearest:
                hint = f"contexts: {', '.join(problem.nearest)}. {hint}"
            yield self._note(Check("kubernetes-api", "the API server answers", "error", problem.found, hint))

    def _note(self, each: Any) -> Mapping[str, Any]:
        item = {"category": each.category, **each.as_data()}
        self.found.append(item)
        return item


_PAUSE_SECONDS = 2.0
"""Between two tries of ``--wait``."""
