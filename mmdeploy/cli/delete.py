"""``mmdeploy delete``: take a deployment away."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmdeploy.cli import naming
from mmdeploy.cli.performing import Blueprints, Context, Form, Kubeconfig, Output, Timeout, Verbose, Yes

if TYPE_CHECKING:
    from mmdeploy.apply.interrupts import Stop
    from mmdeploy.apply.removal import Choices, Removal
    from mmdeploy.apply.stages import Deadlines
    from mmdeploy.catalog import Catalog
    from mmdeploy.cli.performing import Show
    from mmdeploy.cluster.session import Session

EXAMPLES = """Examples:

mmdeploy delete deploy/

mmdeploy delete -n llm-d-multimodal-serving --name multimodal-serving

mmdeploy delete deploy/ -y --delete-namespace --timeout 10m
"""
TIMEOUT_SECONDS = 900.0
"""Limit where nobody says one: a router's pod may take 130 s to end (router.md §4.3), a model server's as long."""


def delete(
    bundle: Annotated[
        Path | None, typer.Argument(help="A bundle's directory, or a spec file; not needed.", metavar="[BUNDLE]")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="The namespace.  [default: the bundle's]",
            metavar="NAME",
            callback=naming.namespace,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="The deployment.  [default: the bundle's]", metavar="NAME", callback=naming.name),
    ] = None,
    yes: Yes = False,
    delete_namespace: Annotated[
        bool,
        typer.Option("--delete-namespace/--keep-namespace", help="Also the namespace, where mmdeploy made it."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be taken away.")] = False,
    timeout: Timeout = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = Form.text,
    verbose: Verbose = False,
    blueprints_dir: Blueprints = None,
) -> None:
    """Take a deployment away: what its inventory on the cluster lists and nothing else, in reverse order.

    CRDs and LeaderWorkerSet stay. Without BUNDLE the names say which; without a name, those that are there are listed.
    Where nothing is there, there is nothing to delete: that is no error.
    """
    from mmdeploy import intended as bundles
    from mmdeploy.apply.interrupts import Stop
    from mmdeploy.apply.removal import Choices
    from mmdeploy.apply.stages import Deadlines, duration_of
    from mmdeploy.cli import blueprints, performing
    from mmdeploy.cluster.access import Access

    limit = Deadlines(duration_of(timeout, "--timeout") if timeout is not None else TIMEOUT_SECONDS)
    if not dry_run:
        performing.must_be_answerable(yes)
    stop = Stop()
    with performing.beginning(output):
        catalog = blueprints.load(blueprints_dir)
        if bundle is not None:
            of_bundle = bundles.place(bundle, catalog)
            namespace, name = namespace or of_bundle[0], name or of_bundle[1]
        session = performing.connected(Access(kubeconfig, context), verbose, stop)
    where = namespace or session.where.namespace
    again = performing.command("delete", *performing.options({
        "-n": where, "--name": name, "--delete-namespace": delete_namespace, "--kubeconfig": kubeconfig,
        "--context": context,
    }))  # fmt: skip
    show = performing.Show(output, verbose=verbose, name=name or "", namespace=where)
    with show.whole():
        with show.untouched(again):
            choices = Choices(delete_namespace, dry_run, again)
            work = _looked(session, catalog, choices, stop, limit, show, (where, name, bundle))
            if work is None:
                return
            if not yes and not performing.agreed(f"Take this away from {session.where.context}?"):
                show.result("refused")
                raise typer.Exit(1)
        show.all(work.act(), stop)


def _looked(
    session: Session, catalog: Catalog, choices: Choices, stop: Stop, limit: Deadlines, show: Show,
    what: tuple[str, str | None, Path | None],
) -> Removal | None:  # fmt: skip
    """Show what would be taken away; None where that is all there is to do."""
    from mmdeploy.apply.removal import Removal, found

    where, name, bundle = what
    inventories = found(session, where, name)
    if name not in inventories:
        _nothing(show, sorted(inventories), where, name)
        if name:
            _lost(session, where, name, bundle)
        return None
    work = Removal(session, catalog, inventories, name, choices, stop, limit)
    show.all(work.look(), stop)
    if choices.dry_run:
        show.result("dry-run")
        return None
    return work


def _nothing(show: Show, there: Sequence[str], where: str, name: str | None) -> None:
    """Say that nothing is left to do: who cleans up twice is not wrong."""
    from mmdeploy.cli.performing import Form
    from mmdeploy.report import problems

    what = f"there is no deployment {name}" if name else "there is no deployment"
    others = f", only {', '.join(there)}" if there else ""
    print(problems.remark(f"nothing to delete: {what} in namespace {where}{others}"), file=sys.stderr)
    if show.form is not Form.text:
        show.one({"event": "finished", "changed": 0, "unchanged": 0, "seconds": 0.0, "next": []})


def _lost(session: Session, where: str, name: str, bundle: Path | None) -> None:
    """Say so where the router is there and the list of what was applied is not: then there is something to delete."""
    from mmdeploy.cli import performing
    from mmdeploy.cluster.releases import stored
    from mmdeploy.errors import MmdeployError
    from mmdeploy.report import problems

    with contextlib.suppress(MmdeployError):
        if stored(session, where, name) is not None:
            again = performing.command("apply", str(bundle) if bundle else "BUNDLE", "--adopt", "--no-wait")
            said = f"a Helm release {name} is there, and no list of what was applied with it"
            print(problems.remark(f"{said}: {again} makes one; then delete again"), file=sys.stderr)


__all__ = ["EXAMPLES", "delete"]
