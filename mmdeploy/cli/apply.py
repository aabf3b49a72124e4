"""``mmdeploy apply``: put a deployment on a cluster."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmdeploy.cli.performing import Blueprints, Context, Form, Kubeconfig, Output, Timeout, Verbose, Yes

if TYPE_CHECKING:
    from mmdeploy.apply.engine import Apply, Choices
    from mmdeploy.catalog import Catalog
    from mmdeploy.cli.performing import Show
    from mmdeploy.intended import Intended

EXAMPLES = """Examples:

mmdeploy apply deploy/ --hf-token-from env:HF_TOKEN

mmdeploy apply deploy/ -y --timeout 90m -o jsonl

mmdeploy apply mmdeploy.yaml --dry-run server --router-chart ./llm-d-router-standalone.tgz
"""
WAIT_SECONDS = 3600.0
"""Limit of the stage wait where nobody says one: loading takes an hour at most (the guides' own words)."""


class DryRun(StrEnum):
    """What ``--dry-run`` takes."""

    client = "client"
    server = "server"


def apply(
    bundle: Annotated[
        Path, typer.Argument(help="A bundle's directory, or a spec file.", metavar="BUNDLE", show_default="here")
    ] = Path(),
    yes: Yes = False,
    token_from: Annotated[
        str | None,
        typer.Option(
            "--hf-token-from",
            help="The token: env:HF_TOKEN, file:PATH, or existing in its Secret.",
            metavar="WHERE",
        ),
    ] = None,
    router_chart: Annotated[
        str | None,
        typer.Option("--router-chart", help="The router's chart from here: a path or a mirror.", metavar="CHART"),
    ] = None,
    install_crds: Annotated[
        str | None,
        typer.Option("--install-crds", help="Install CRDs that are missing from here: a path or URL.", metavar="FROM"),
    ] = None,
    dry_run: Annotated[
        DryRun | None, typer.Option("--dry-run", help="client: only list. server: try everything, change nothing.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this stage; may be given again.", metavar="STAGE")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", help="Not this stage; may be given again.", metavar="STAGE")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it serves.")] = True,
    verify: Annotated[
        bool, typer.Option("--verify", help="Then prove that it does what it should, as mmdeploy verify does.")
    ] = False,
    timeout: Timeout = None,
    stage_timeout: Annotated[
        list[str] | None,
        typer.Option("--stage-timeout", help="Limit of one stage.  [default: wait=1h]", metavar="STAGE=DURATION"),
    ] = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="Take over objects that mmdeploy did not make.")] = False,
    recreate: Annotated[
        bool, typer.Option("--recreate", help="Delete and make anew what cannot be changed as it stands.")
    ] = False,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that others manage.")
    ] = False,
    autoscaled: Annotated[
        bool, typer.Option("--autoscaled", help="Nodes are added on demand: too few of them is no error.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = Form.text,
    verbose: Verbose = False,
    blueprints_dir: Blueprints = None,
) -> None:
    """Put a deployment on a cluster: check, show what would change, ask, do it, wait until it serves.

    Stages: preflight, crds, namespace, secret, router, model-servers, gateway, monitoring, wait, verify. Running it
    again goes on where it stopped. Ctrl-C stops at the next safe place; what was done is listed on the cluster.
    """
    from mmdeploy.apply.engine import Choices, listed
    from mmdeploy.apply.interrupts import Stop
    from mmdeploy.apply.secret import TokenSource
    from mmdeploy.apply.stages import Selection
    from mmdeploy.cli import blueprints, performing, reading
    from mmdeploy.cli.verifying_after import verified

    token = TokenSource.of(token_from) if token_from is not None else None
    selection = Selection.of(only or (), skip or (), _idle(wait, verify))
    limits = _limits(timeout, stage_timeout)
    if dry_run is None:
        performing.must_be_answerable(yes)
    with performing.beginning(output):
        catalog = blueprints.load(blueprints_dir)
        intended = reading.bundle(bundle, catalog)
    place = performing.options({"--kubeconfig": kubeconfig, "--context": context})
    again = performing.options({
        "--hf-token-from": token_from, "--router-chart": router_chart, "--install-crds": install_crds,
        "--only": selection.only, "--skip": selection.skip, "--timeout": timeout, "--stage-timeout": stage_timeout,
        "--verify": verify, "--no-wait": not wait, "--adopt": adopt, "--recreate": recreate,
        "--force-conflicts": force_conflicts, "--autoscaled": autoscaled, "-y": yes,
    })  # fmt: skip
    choices = Choices(
        chart=router_chart, token=token, definitions=install_crds, selection=selection, wait=wait,
        force=force_conflicts, adopt=adopt, recreate=recreate, dry_run=dry_run is not None, autoscaled=autoscaled,
        verify=partial(verified, bundle, kubeconfig, context, catalog) if verify else None,
        **_commands(bundle, place, again),
    )  # fmt: skip
    show = performing.Show(output, verbose=verbose, name=intended.name, namespace=intended.namespace)
    with show.whole():
        if dry_run is DryRun.client:
            show.result("dry-run")
            show.all(listed(intended, catalog, choices), Stop())
            return
        _perform(intended, catalog, choices, limits, show, yes, (kubeconfig, context, verbose))


def _idle(wait: bool, verify: bool) -> dict[str, str]:
    """Stages that do not run although nobody skips them, and why."""
    return ({} if wait else {"wait": "--no-wait"}) | ({} if verify else {"verify": "no --verify"})


def _limits(timeout: str | None, stage_timeout: list[str] | None) -> tuple[float | None, dict[str, float]]:
    """Seconds in all, and by stage. Raises `UsageError` for what is no duration."""
    from mmdeploy.apply.stages import duration_of, limits

    total = duration_of(timeout, "--timeout") if timeout is not None else None
    stages = limits(stage_timeout or ())
    if total is None:
        stages.setdefault("wait", WAIT_SECONDS)
    return total, stages


def _commands(bundle: Path, place: list[str], again: list[str]) -> dict[str, Any]:
    """What to run next, of `Choices`: to go on, to take it away, to go on looking, when it is done."""
    from mmdeploy.cli.performing import command

    named = str(bundle)
    return {
        "resume": command("apply", named, *place, *again),
        "remove": command("delete", named, *place),
        "watch": command("status", named, "--watch", *place),
        "next": tuple(command(word, named, *place) for word in ("status", "verify")),
    }


def _perform(
    intended: Intended, catalog: Catalog, choices: Choices, limits: tuple[float | None, dict[str, float]], show: Show,
    yes: bool, place: tuple[Path | None, str | None, bool],
) -> None:  # fmt: skip
    from mmdeploy.apply.engine import Apply
    from mmdeploy.apply.interrupts import Stop
    from mmdeploy.apply.router import chart_of
    from mmdeploy.apply.stages import Deadlines
    from mmdeploy.cli import performing
    from mmdeploy.cluster.access import Access
    from mmdeploy.cluster.helm import Helm

    kubeconfig, context, verbose = place
    access = Access(kubeconfig, context)
    if choices.selection.runs("preflight"):
        chart = chart_of(intended, catalog, choices.chart)
        Helm(access, intended.namespace).begin(intended.name, chart, intended.values)
    stop = Stop()
    with show.untouched(choices.resume):
        session = performing.connected(access, verbose, stop)
        work = Apply(session, intended, catalog, choices, stop, Deadlines(*limits))
        show.all(work.look(), stop)
        show.text(lambda: _plan_of(work))
        if choices.dry_run:
            show.result("dry-run")
        elif not yes and work.different and not performing.agreed(f"Apply this to {session.where.context}?"):
            show.result("refused")
            raise typer.Exit(1)
    show.all(work.act(), stop)


def _plan_of(work: Apply) -> str:
    from mmdeploy.apply.plan.plan import as_data
    from mmdeploy.report import differences

    return "\n" + differences.text(as_data(work.plan)) + "\n"


__all__ = ["EXAMPLES", "DryRun", "apply"]
