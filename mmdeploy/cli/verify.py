"""``mmdeploy verify``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmdeploy.cli.debugging import DebugOption, debugging
from mmdeploy.cli.performing import Yes
from mmdeploy.cli.verifying import Context, Kubeconfig, MetricsToken, Name, Namespace, PrintRights, Via, Who

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cli.verifying import OnCluster, Subject
    from mmdeploy.verify.run import Outcome, Plan, Settings, Spent
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
AGAIN_SECONDS = 5.0
"""Between two attempts under ``--wait``."""
LONGEST_SECONDS = 86400.0
"""Of ``--timeout``."""


@dataclass(frozen=True)
class Budget:
    """Requests that may be sent."""

    requests: int
    whole: bool
    """For all attempts together; else for each."""

    def left(self, spent: Spent) -> int:
        """For the next attempt."""
        return self.requests - spent.requests if self.whole else self.requests


class Form(StrEnum):
    """Forms of ``-o``."""

    table = "table"
    json = "json"
    junit = "junit"
    markdown = "markdown"


def verify(
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
    from mmdeploy.errors import UsageError
    from mmdeploy.verify import run

    catalog = blueprints.load(blueprints_dir)
    claims = run.chosen(_words("--only", only), _words("--skip", skip))
    if evidence is not None:
        _alone("--evidence", {"BUNDLE": bundle, "--print-commands": print_commands, "--print-rbac": print_rbac,
                              "--debug-logs": debug_logs, "--save": save, "--wait": wait, "--model": model,
                              "--budget": budget, "--namespace": namespace, "--name": name, "--via": via,
                              "--metrics-token": metrics_token, "--kubeconfig": kubeconfig, "--context": context,
                              "--for": who, "--repeat": repeat > 1})  # fmt: skip
        _conclude(saving.judged_again(catalog, evidence, claims, bool(only)), output, strict, verbose)
        return
    from mmdeploy.cli.verifying import OnCluster

    cluster = OnCluster(kubeconfig, context, namespace, name, via, metrics_token, bundle, model, verbose)
    cluster.check()
    if print_rbac:
        print(cluster.rights(catalog, who, debug_logs, document=output is Form.json), end="")
        return
    if who is not None:
        raise UsageError("belongs to --print-rbac", origin="--for")
    if targets is not None and metrics_token is not None:
        raise UsageError(
            f"is for a cluster; the pickers are listed in {targets}",
            origin="--metrics-token",
            next_step=f"name it there, at the picker: token: {metrics_token}",
        )
    allowed = budget if budget is not None else run.BUDGET * repeat
    find = _finder(catalog, targets, bundle, model, cluster, ready=not print_commands)
    if print_commands:
        subject = find(lambda text: None)
        subject.close()
        print(_commands(subject, run.plan(subject.facts, claims, repeat), allowed, cluster))
        return
    settings = run.Settings(timeout=_timeout(timeout))
    patience = _seconds("--wait", wait) if wait is not None else None
    if save is not None:
        saving.check(save)
    with debugging(debug_logs, yes, catalog, None if targets is not None else cluster, claims, find):
        outcome, late = _attempts(find, claims, repeat, Budget(allowed, whole=budget is not None), settings, patience)
    try:
        if save is not None:
            saving.save(save, outcome)
    except UsageError:
        _show(run.document(outcome, strict), output, strict, verbose)  # what was asked for, and paid for, all the same
        raise
    _conclude(outcome, output, strict, verbose, late=late)


def _alone(option: str, others: Mapping[str, object]) -> None:
    """Raises `UsageError` for an option that has no effect beside ``option``."""
    from mmdeploy.errors import UsageError

    for name, value in others.items():
        if value:
            raise UsageError(f"has no effect with {option}", origin=name, next_step=f"leave {name} or {option} out")


def _words(option: str, said: list[str] | None) -> tuple[str, ...]:
    """Raises `UsageError` for an option that is given and says nothing: it would mean all."""
    from mmdeploy.errors import UsageError

    found = tuple(word.strip() for item in said or () for word in item.split(",") if word.strip())
    if said and not found:
        raise UsageError("names no claim", origin=option, next_step=f"{option} stages,kv")
    return found


def _finder(
    catalog: Catalog, file: Path | None, bundle: Path | None, model: str | None, cluster: OnCluster, *, ready: bool
) -> Callable[[Callable[[str], None]], Subject]:  # fmt: skip
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


def _commands(subject: Subject, plan: Plan, budget: int, cluster: OnCluster) -> str:
    from mmdeploy.verify import commands
    from mmdeploy.verify.cluster.spelling import speller

    return "\n".join(commands.lines(subject.facts, plan, budget, spell=speller(cluster.kubectl())))


def _seconds(option: str, said: str) -> float:
    from mmdeploy.errors import UsageError
    from mmdeploy.quantities import seconds

    try:
        return seconds(said)
    except ValueError:
        raise UsageError(f"{said!r} is no duration", origin=option, nearest=["30s", "5m", "1h"]) from None


def _timeout(said: str) -> float:
    """Raises `UsageError` for none, and for more than a day: no request takes that."""
    from mmdeploy.errors import UsageError

    found = _seconds("--timeout", said)
    if not 0 < found <= LONGEST_SECONDS:
        raise UsageError(f"{said} is no time for a request", origin="--timeout", nearest=["30s", "5m", "24h"])
    return found


def _announce(plan: Plan, targets: Targets, budget: int) -> None:
    """What it may spend, before it starts."""
    most, pages = min(plan.requests, budget), sum(1 for _ in targets.pages())
    print(
        f"verify sends up to {most} small request{'s' * (most != 1)} (--budget {budget}) and reads {pages} "
        f"metrics page{'s' * (pages != 1)}",
        file=sys.stderr,
    )


def _attempts(
    find: Callable[[Callable[[str], None]], Subject], claims: tuple[str, ...], repeat: int, budget: Budget,
    settings: Settings, patience: float | None,
) -> tuple[Outcome, bool]:  # fmt: skip
    """The last attempt, and whether time, or the budget, ran out before all was proved."""
    from dataclasses import replace

    from mmdeploy.errors import UsageError
    from mmdeploy.verify.run import Spent

    spent = Spent()
    clock = settings.clock
    deadline = None if patience is None else clock.now() + patience
    tell, done = _teller()
    while True:
        try:
            left = budget.left(spent)
            outcome = _attempt(find(_line), claims, repeat, left, replace(settings, spent=spent), tell)
            spent = outcome.before + Spent.of(outcome.evidence)
        except UsageError:
            raise  # time mends none of these
        except Exception:
            if deadline is None or clock.now() + AGAIN_SECONDS > deadline:
                raise
            outcome = None
        finally:
            done()
        if outcome is not None and (deadline is None or not (outcome.contradicted or outcome.unseen)):
            return outcome, False
        if outcome is not None and deadline is not None and clock.now() + AGAIN_SECONDS > deadline:
            return outcome, True
        if outcome is not None and budget.left(spent) < sum(item["requests"] for item in outcome.evidence.plan):
            done()
            _line(f"not all is proved yet, and {budget.left(spent)} of --budget {budget.requests} are left: too few")
            return outcome, True
        tell("not all is proved yet; trying again")
        clock.sleep(AGAIN_SECONDS)


def _attempt(
    subject: Subject, claims: tuple[str, ...], repeat: int, budget: int, settings: Settings, tell: Callable[[str], None]
) -> Outcome:  # fmt: skip
    from dataclasses import replace

    from mmdeploy.verify import run

    facts = subject.facts
    try:
        plan = run.plan(facts, claims, repeat)
        _announce(plan, facts.targets, budget)
        evidence = run.collect(
            facts, plan, subject.transport, budget, replace(settings, logs=subject.logs), tell, subject.observations,
            subject.barred,
        )  # fmt: skip
    finally:
        subject.close()
    return replace(run.judge(facts, evidence, plan.claims), before=settings.spent)


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _teller() -> tuple[Callable[[str], None], Callable[[], None]]:
    """Progress on stderr: one line that changes on a terminal, lines elsewhere; and what clears it."""
    if not sys.stderr.isatty():
        return (lambda text: print(text, file=sys.stderr, flush=True)), (lambda: None)
    from mmdeploy.report.terminal import style, width

    def tell(text: str) -> None:
        shown = f"  {text}"[: max(10, width(sys.stderr) - 1)]
        print("\r\x1b[K" + style(shown, "dim", sys.stderr), end="", file=sys.stderr, flush=True)

    def done() -> None:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return tell, done


def _show(document: Mapping[str, Any], output: Form, strict: bool, verbose: bool) -> None:
    from mmdeploy.report import documents, verdicts

    shown = {
        Form.table: lambda: verdicts.table(document, verbose),
        Form.json: lambda: documents.as_json(document),
        Form.junit: lambda: verdicts.suites(document, strict),
        Form.markdown: lambda: verdicts.markdown(document),
    }
    print(shown[output](), end="", flush=True)
    if not document["verdicts"]:
        told = "; ".join(f"{item['claim']}: {item['reason']}" for item in document["notApplicable"])
        print(f"nothing was judged, as no claim that was asked for applies: {told}", file=sys.stderr)


def _conclude(outcome: Outcome, output: Form, strict: bool, verbose: bool, *, late: bool = False) -> None:
    """Print the verdicts and end with their exit code."""
    from mmdeploy.verify import run

    document = run.document(outcome, strict)
    _show(document, output, strict, verbose)
    if late:
        raise typer.Exit(124)
    if document["failed"]:
        raise typer.Exit(6)
