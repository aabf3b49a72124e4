"""``mmdeploy verify``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmdeploy.cli import verify_options as options
from mmdeploy.cli.debugging import DebugOption, debugging
from mmdeploy.cli.performing import Yes
from mmdeploy.cli.verify_attempts import Attempts, Budget
from mmdeploy.cli.verify_verdicts import Form, Shown
from mmdeploy.cli.verifying import Context, Kubeconfig, MetricsToken, Name, Namespace, PrintRights, Via, Who

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cli.verifying import OnCluster, Subject
    from mmdeploy.verify.run import Outcome
    from mmdeploy.verify.targets import Targets

EXAMPLES = """Examples:

mmdeploy verify epd

mmdeploy verify --namespace llm-d --name multimodal-serving --via port-forward

mmdeploy verify epd --print-rbac --for group:ml-team | kubectl apply -f -

mmdeploy verify --targets targets.yaml

mmdeploy verify epd --targets targets.yaml --only stages,embeddings --repeat 3

mmdeploy verify --targets targets.yaml --save evidence.json -o json

mmdeploy verify --evidence evidence.json
"""
Find = Callable[[Callable[[str], None]], "Subject"]


def verify(
    ctx: typer.Context,
    bundle: Annotated[
        Path | None,
        typer.Argument(help="The bundle that was deployed.  [default: the targets' own]", metavar="BUNDLE"),
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option("--targets", help="Addresses of the deployment.", metavar="FILE", envvar="MMDEPLOY_TARGETS"),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only these claims: stages,kv.", metavar="CLAIM")
    ] = None,
    skip: Annotated[list[str] | None, typer.Option("--skip", help="Not these claims.", metavar="CLAIM")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Served model.  [default: the targets']", metavar="NAME")
    ] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", help="What one request may take: 90s, 5m.", metavar="DURATION")
    ] = "60s",
    hold: Annotated[
        str | None,
        typer.Option("--hold", help="Also keep one answer coming this long: does anything cut it?", metavar="DURATION"),
    ] = None,
    wait: Annotated[
        str | None, typer.Option("--wait", help="Try again until all is proved, this long at most.", metavar="DURATION")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="What is not observable counts as a failure.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", help="Rounds of each request.", min=1, max=100, metavar="N")] = 1,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            help="Requests that may be sent, --wait included.  [default: 39 a round and attempt]",
            min=1,
            metavar="N",
        ),
    ] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="What stdout gets.")] = Form.table,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="The evidence of what is proved, too.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the evidence here; it holds no secrets.", metavar="FILE")
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", help="Judge what --save wrote; sends nothing.", metavar="FILE")
    ] = None,
    print_commands: Annotated[
        bool, typer.Option("--print-commands", help="Print the same requests for a shell; sends nothing.")
    ] = False,
    namespace: Namespace = None,
    name: Name = None,
    via: Via = None,
    metrics_token: MetricsToken = None,
    debug_logs: DebugOption = False,
    yes: Yes = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    print_rbac: PrintRights = False,
    who: Who = None,
    blueprints_dir: Annotated[
        Path | None,
        typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS"),
    ] = None,
) -> None:
    """Prove with requests and counters that a deployment does what it was deployed to do.

    Claims: roles, text, image, affinity, stages, spread, embeddings, kv, pricing, entry.
    """
    from mmdeploy.cli import blueprints, saving
    from mmdeploy.cli.verifying import OnCluster
    from mmdeploy.verify import run

    options.refuse_idle(ctx)
    shown = Shown(output, strict, verbose)
    catalog = blueprints.load(blueprints_dir)
    claims = run.chosen(options.words("--only", only), options.words("--skip", skip))
    if evidence is not None:
        shown.conclude(saving.judged_again(catalog, evidence, claims, bool(only)))
        return
    cluster = OnCluster(kubeconfig, context, namespace, name, via, metrics_token, bundle, model, verbose)
    cluster.check()
    if print_rbac:
        print(cluster.rights(catalog, who, debug_logs, document=output is Form.json), end="")
        return
    usual = run.BUDGET * repeat + (hold is not None)
    allowed = Budget(budget if budget is not None else usual, whole=budget is not None)
    find = _finder(catalog, targets, bundle, model, cluster, ready=not print_commands)
    if print_commands:
        print(_commands(find, claims, repeat, allowed, cluster))
        return
    settings = run.Settings(options.of_request("--timeout", timeout), hold=options.hold(hold, claims))
    patience = options.seconds("--wait", wait) if wait is not None else None
    if save is not None:
        saving.check(save)
    with debugging(debug_logs, yes, catalog, None if targets is not None else cluster, claims, find):
        outcome, late = Attempts(find, claims, repeat, allowed, settings, patience).run()
    if save is not None:
        _save(save, outcome, shown)
    shown.conclude(outcome, late=late)


def _save(path: Path, outcome: Outcome, shown: Shown) -> None:
    """Raises `UsageError` where it cannot be written; what was asked for, and paid for, is shown all the same."""
    from mmdeploy.cli import saving
    from mmdeploy.errors import UsageError

    try:
        saving.save(path, outcome)
    except UsageError:
        shown.show(outcome)
        raise


def _finder(
    catalog: Catalog, file: Path | None, bundle: Path | None, model: str | None, cluster: OnCluster, *, ready: bool
) -> Find:  # fmt: skip
    """What finds the deployment, as it stands when it is called: listed in a file, or on a cluster."""
    from mmdeploy.cli.verifying import Subject
    from mmdeploy.verify import logs
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.transport import HttpTransport

    if file is not None:
        found, transport = _targets(catalog, file, bundle, model, ready), HttpTransport()
        return lambda tell: Subject(Facts(catalog, found), transport, logs=logs.reader(found, transport))
    session = cluster.connected()
    cluster.end_well()
    return lambda tell: cluster.subject(session, catalog, tell)


def _targets(catalog: Catalog, file: Path, bundle: Path | None, model: str | None, ready: bool) -> Targets:
    from dataclasses import replace

    from mmdeploy.verify import targets_file
    from mmdeploy.verify.targets import with_configuration

    found = with_configuration(targets_file.read(file, catalog, ready), catalog, bundle)
    return replace(found, model=model) if model else found


def _commands(find: Find, claims: tuple[str, ...], repeat: int, budget: Budget, cluster: OnCluster) -> str:
    from mmdeploy.verify import commands, run
    from mmdeploy.verify.cluster.spelling import speller

    subject = find(lambda text: None)
    subject.close()
    plan = run.plan(subject.facts, claims, repeat)
    return "\n".join(commands.lines(subject.facts, plan, budget.requests, spell=speller(cluster.kubectl())))
