"""``mmdeploy delete``: take a deployment away."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmdeploy.cli.performing import Blueprints, Context, Form, Kubeconfig, Output, Timeout, Verbose, Yes

if TYPE_CHECKING:
    from mmdeploy.cli.performing import Show

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
        str | None, typer.Option("--namespace", "-n", help="The namespace.  [default: the bundle's]", metavar="NAME")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The deployment.  [default: the bundle's]", metavar="NAME")
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
    from mmdeploy.apply.interrupts import Stop
    from mmdeploy.apply.removal import Choices, Removal, found
    from mmdeploy.apply.stages import Deadlines, duration_of
    from mmdeploy.cli import blueprints, performing
    from mmdeploy.cluster.access import Access

    total = duration_of(timeout, "--timeout") if timeout else TIMEOUT_SECONDS
    if not dry_run:
        performing.must_be_answerable(yes)
    stop = Stop()
    with performing.beginning(output):
        catalog = blueprints.load(blueprints_dir)
        if bundle is not None:
            from mmdeploy import intended as bundles

            of_bundle = bundles.place(bundle, catalog)
            namespace, name = namespace or of_bundle[0], name or of_bundle[1]
        session = performing.connected(Access(kubeconfig, context), verbose, stop)
    where = namespace or session.where.namespace
    again = performing.command(
        "delete", "-n", where, "--name", name, "--delete-namespace" if delete_namespace else "",
        *performing.words("--kubeconfig", [str(kubeconfig)] if kubeconfig else []),
        *performing.words("--context", [context] if context else []),
    )  # fmt: skip
    show = performing.Show(output, verbose=verbose, name=name or "", namespace=where)
    with show.whole():
        with show.untouched(again):
            inventories = found(session, where, name)
            if name not in inventories:
                _nothing(show, sorted(inventories), where, name)
                return
            work = Removal(
                session, catalog, inventories, name, Choices(delete_namespace, dry_run, again), stop, Deadlines(total)
            )
            show.all(work.look(), stop)
            if dry_run:
                show.result("dry-run")
                return
            if not yes and not performing.agreed(f"Take this away from {session.where.context}?"):
                show.result("refused")
                raise typer.Exit(1)
        show.all(work.act(), stop)


def _nothing(show: Show, there: Sequence[str], where: str, name: str | None) -> None:
    """Say that nothing is left to do: who cleans up twice is not wrong."""
    from mmdeploy.cli.performing import Form
    from mmdeploy.report import problems

    what = f"there is no deployment {name}" if name else "there is no deployment"
    others = f", only {', '.join(there)}" if there else ""
    print(problems.remark(f"nothing to delete: {what} in namespace {where}{others}"), file=sys.stderr)
    if show.form is not Form.text:
        show.one({"event": "finished", "changed": 0, "unchanged": 0, "seconds": 0.0, "next": []})


__all__ = ["EXAMPLES", "delete"]
