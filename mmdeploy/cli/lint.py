"""``mmdeploy lint`` and ``mmdeploy explain``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmdeploy.cli import naming

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.lint.judgement import Live
    from mmdeploy.lint.settings import Settings

LINT_EXAMPLES = """Examples:

mmdeploy lint router/values.yaml modelserver/

helm template epd CHART -f values.yaml | mmdeploy lint - modelserver/ --fail-on warning

mmdeploy lint deploy/ -o sarif > findings.sarif

mmdeploy lint --live -n llm-d-multimodal-serving

mmdeploy lint --live deploy/
"""
EXPLAIN_EXAMPLES = """Examples:

mmdeploy explain

mmdeploy explain MMD601

mmdeploy explain MMD4
"""


class Form(StrEnum):
    """Forms of ``-o``; the same words as `mmdeploy.lint.settings.FORMS`."""

    text = "text"
    json = "json"
    sarif = "sarif"
    junit = "junit"
    github = "github"
    short = "short"


class Threshold(StrEnum):
    """What ``--fail-on`` takes; the same words as `mmdeploy.lint.settings.THRESHOLDS`."""

    error = "error"
    warning = "warning"
    info = "info"
    never = "never"


class ExplainForm(StrEnum):
    """Forms of ``explain -o``."""

    text = "text"
    json = "json"


Blueprints = Annotated[
    Path | None, typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS")
]


def lint(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files, directories and kustomizations; - reads stdin.", metavar="PATH")
    ] = None,
    as_release: Annotated[
        str | None, typer.Option("--as-release", help="Judge as this release: v0.8, v0.9 or main.", metavar="WORD")
    ] = None,
    output: Annotated[Form | None, typer.Option("--output", "-o", help="What stdout gets.  [default: text]")] = None,
    fail_on: Annotated[
        Threshold | None, typer.Option("--fail-on", help="Exit with 3 from this level on.  [default: error]")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", help="Only these codes or groups: MMD4, MMD305.", metavar="CODE")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", help="Not these codes or groups.", metavar="CODE")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Pass over the findings that this file lists.", metavar="FILE")
    ] = None,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="List what is found in the baseline file.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Judge what is on the cluster; with PATHs, as if they were applied.")
    ] = False,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", help="With --live: the namespace.", metavar="NAME", callback=naming.namespace
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="With --live: another kubeconfig.", metavar="FILE")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="With --live: another context.", metavar="NAME")
    ] = None,
    blueprints_dir: Blueprints = None,
) -> None:
    """Find what is wrong in a deployment: all PATHs are judged together, values against manifests."""
    from mmdeploy.cli import blueprints
    from mmdeploy.errors import UsageError
    from mmdeploy.lint import judgement, settings

    if not live and (said_live := [name for name, value in (
        ("--namespace", namespace), ("--kubeconfig", kubeconfig), ("--context", context)) if value]):  # fmt: skip
        raise UsageError("only means something with --live", origin=said_live[0], next_step="add --live")
    if not paths and not live:
        raise UsageError("nothing to look at", origin="PATH", next_step="mmdeploy lint router/values.yaml modelserver/")
    said: dict[str, Any] = {
        "as_release": as_release,
        "output": output and output.value,
        "fail_on": fail_on and fail_on.value,
        "select": tuple(select or ()),
        "ignore": tuple(ignore or ()),
        "baseline": baseline,
    }
    chosen = replace(settings.load(Path()), **{name: value for name, value in said.items() if value})
    catalog = blueprints.load(blueprints_dir)
    reader = _live_reader(namespace, kubeconfig, context, beside_files=bool(paths)) if live else None
    document = judgement.judge(catalog, paths or [], chosen, write_baseline=write_baseline, live=reader)
    print(_formed(document, chosen, catalog), end="")
    if document["failed"]:
        raise typer.Exit(3)
    if document["broken"]:
        raise typer.Exit(1)  # a rule that stopped with a bug has judged nothing: that is no pass


def _live_reader(namespace: str | None, kubeconfig: Path | None, context: str | None, *, beside_files: bool) -> Live:
    """Reads the cluster when the files are read: they may say which namespace."""
    from mmdeploy.apply.plan import liveobjects
    from mmdeploy.cluster.access import Access
    from mmdeploy.cluster.session import Session
    from mmdeploy.errors import NotFoundError, UsageError
    from mmdeploy.words import counted

    def read(named: Sequence[str]) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
        if namespace is None and len(named) > 1:
            raise UsageError(
                f"the files are for several namespaces: {', '.join(named)}", origin="--live", nearest=named,
                next_step="choose one with --namespace",
            )  # fmt: skip
        session = Session.connect(Access(kubeconfig, context))
        place = namespace or (named[0] if named else session.where.namespace)
        try:
            found = liveobjects.read(session, place)
        except NotFoundError as problem:
            if not beside_files:
                raise
            return (), [f"{problem.found}: the files are judged alone"]  # as before the first apply
        objects = counted(len(found.objects), "live object")
        notes = [f"{objects} of namespace {found.namespace} in context {session.where.context}"]
        if found.unread:
            notes.append(f"may not be read, so not judged: {', '.join(dict.fromkeys(found.unread))}")
        return found.objects, notes

    return read


def _formed(document: dict[str, Any], chosen: Settings, catalog: Catalog) -> str:
    from mmdeploy.report import documents, findings, junit

    if chosen.output == "sarif":
        from mmdeploy import __version__
        from mmdeploy.lint.codes import codes
        from mmdeploy.report import sarif

        return sarif.log(document, [code.as_data() for code in codes(catalog.blueprints).values()], __version__)
    forms = {
        "json": documents.as_json,
        "junit": junit.suites,
        "github": findings.github,
        "short": findings.short,
    }
    return forms.get(chosen.output or "text", findings.text)(document)


def explain(
    code: Annotated[
        str | None, typer.Argument(help="A code, such as MMD601, or a group of codes: MMD6.", metavar="CODE")
    ] = None,
    output: Annotated[ExplainForm, typer.Option("--output", "-o", help="What stdout gets.")] = ExplainForm.text,
    directory: Annotated[
        Path | None, typer.Option("--directory", "-d", help="Write the pages of all codes here.", metavar="DIR")
    ] = None,
    blueprints_dir: Blueprints = None,
) -> None:
    """Explain a finding's code: why it matters, a bad and a good example, how to silence it. Without CODE, list all."""
    from mmdeploy.cli import blueprints
    from mmdeploy.lint import codes
    from mmdeploy.lint.findings import GROUPS
    from mmdeploy.report import codes as pages
    from mmdeploy.report import documents, tables

    place = blueprints.load(blueprints_dir).blueprints
    if directory is not None:
        for name, page in pages.pages(GROUPS, [item.as_data() for item in codes.codes(place).values()]).items():
            (directory / name).write_text(page, encoding="utf-8")
        return
    group = codes.find_group(place, code) if code else list(codes.codes(place).values())
    found = group or [codes.find(place, code or "")]
    if output is ExplainForm.json:
        listed = [item.as_data() for item in found]
        print(documents.as_json({"schemaVersion": 1, "kind": "Codes", "codes": listed}), end="")
    elif not group:
        print(pages.explained(found[0].as_data()), end="")
    else:
        columns = {name: name for name in ("code", "level", "title")}
        print(tables.table(columns, [item.as_data() for item in found])[0], end="")
