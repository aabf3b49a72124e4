"""``mmdeploy diff``: what apply would change on the cluster."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mmdeploy.apply.plan.plan import Plan
    from mmdeploy.cluster.helm import Chart
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

EXAMPLES = """Examples:

mmdeploy diff deploy/

mmdeploy diff mmdeploy.yaml --context production -o json

mmdeploy diff deploy/ --router-chart ./llm-d-router-standalone.tgz
"""


class Form(StrEnum):
    """Forms of ``-o``."""

    text = "text"
    json = "json"


def diff(
    bundle: Annotated[
        Path, typer.Argument(help="A bundle's directory, or a spec file.", metavar="BUNDLE", show_default="here")
    ] = Path(),
    kubeconfig: Annotated[Path | None, typer.Option("--kubeconfig", help="Another kubeconfig.", metavar="FILE")] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="Another context of the kubeconfig.", metavar="NAME")
    ] = None,
    router_chart: Annotated[
        str | None,
        typer.Option("--router-chart", help="The router's chart from here: a path or a mirror.", metavar="CHART"),
    ] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="What stdout gets.")] = Form.text,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also what does not differ, and each request on stderr.")
    ] = False,
    blueprints_dir: Annotated[
        Path | None, typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS")
    ] = None,
) -> None:
    """Show what apply would change, object by object; edits of the live objects are told apart from a new render.

    Exits with 4 where anything differs. Nothing is changed, and nothing secret is shown.
    """
    from mmdeploy.apply.plan.plan import as_data
    from mmdeploy.apply.router import chart_of
    from mmdeploy.cli import blueprints, reading
    from mmdeploy.cluster.access import Access
    from mmdeploy.cluster.session import Session
    from mmdeploy.report import differences, documents

    catalog = blueprints.load(blueprints_dir)
    intended = reading.bundle(bundle, catalog)
    chart = chart_of(intended, catalog, router_chart)
    trace = _traced if verbose else None
    session = Session.connect(Access(kubeconfig, context), trace)
    found = _planned(session, intended, chart)
    document = as_data(found)
    print(documents.as_json(document) if output is Form.json else differences.text(document, verbose=verbose), end="")
    if found.different:
        raise typer.Exit(4)


def _traced(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # in one piece: requests run in parallel


def _planned(session: Session, intended: Intended, chart: Chart) -> Plan:
    from mmdeploy.apply import inventory
    from mmdeploy.apply.namespaces import standing
    from mmdeploy.apply.plan.plan import with_namespace
    from mmdeploy.apply.plan.planning import plan

    namespace = standing(session, intended.namespace, intended.name)
    absent = namespace.state == "absent"
    others = {} if absent else inventory.all_in(session, intended.namespace)
    mine = others.pop(intended.name, None)
    found = plan(session, intended, mine, chart=chart, others=others.values(), namespace_exists=not absent)
    return with_namespace(found) if absent else found
