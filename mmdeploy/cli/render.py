"""``mmdeploy render``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mmdeploy.documents import KeyPath
    from mmdeploy.inputs import Inputs
    from mmdeploy.render.bundle import Bundle

EXAMPLES = """Examples:

mmdeploy render -t e-pd -a gpu -p gke -d epd

mmdeploy render -t e-p-d -p coreweave --set prefill.replicas=2 -o yaml

mmdeploy render -f epd/mmdeploy.yaml -d epd --check
"""


OPTIONS: Mapping[str, KeyPath] = {
    "--topology": ("topology",),
    "--accelerator": ("accelerator",),
    "--server": ("server",),
    "--provider": ("provider",),
    "--model": ("model",),
    "--release": ("release",),
    "--workload": ("workload",),
    "--name": ("name",),
    "--namespace": ("namespace",),
    "--mode": ("mode",),
    "--gateway-class": ("gateway", "gatewayClass"),
    "--routing": ("routing",),
    "--encoder-cache-affinity": ("encoderCacheAffinity",),
    "--ec-connector": ("ecConnector",),
    "--encoder-parallelism": ("encoderParallelism",),
    "--monitoring": ("monitoring",),
    "--tracing": ("tracing",),
    "--estimator": ("estimator",),
    "--allow-mismatch": ("allowMismatch",),
    "--processor-config": ("processorConfig",),
    "--mm-processor-kwargs": ("mmProcessorKwargs",),
}
"""Options of ``render`` that set a field of the spec, and the field."""


class Output(StrEnum):
    """Forms of ``-o``."""

    summary = "summary"
    yaml = "yaml"
    json = "json"


def _words(axis: str) -> Any:
    """Shell completion of an option from the catalog."""

    def complete(incomplete: str) -> list[str]:
        from mmdeploy.cli import blueprints

        catalog = blueprints.load()
        words = {
            "topology": catalog.topologies,
            "accelerator": catalog.accelerators,
            "server": ("vllm", "sglang"),
            "provider": catalog.providers,
            "model": catalog.models,
            "release": catalog.release_names,
            "workload": ("Deployment", "DisaggregatedSet"),
            "mode": ("standalone", "gateway"),
            "routing": ("approximate", "precise"),
            "ecConnector": ("ECCPUConnector", "ECMooncakeConnector", "ECExampleConnector"),
            "gatewayClass": ("none", "gke", "istio", "agentgateway"),
            "encoderParallelism": ("weights", "data"),
        }
        return [word for word in words[axis] if word.startswith(incomplete)]

    return complete


def _option(*names: str, help: str, axis: str | None = None, metavar: str = "WORD") -> Any:
    return typer.Option(*names, help=help, metavar=metavar, autocompletion=_words(axis) if axis else None)


def render(
    topology: Annotated[
        str | None, _option("--topology", "-t", help="aggregation, e-pd or e-p-d.", axis="topology")
    ] = None,
    accelerator: Annotated[
        str | None, _option("--accelerator", "-a", help="gpu, xpu or tpu/v7.", axis="accelerator")
    ] = None,
    server: Annotated[str | None, _option("--server", help="vllm or sglang.", axis="server")] = None,
    provider: Annotated[
        str | None, _option("--provider", "-p", help="base, gke or coreweave.", axis="provider")
    ] = None,
    model: Annotated[
        str | None, _option("--model", "-m", help="Served model, as Hugging Face names it.", axis="model")
    ] = None,
    release: Annotated[
        str | None, _option("--release", help="llm-d release: v0.8, v0.9 or main.", axis="release")
    ] = None,
    workload: Annotated[
        str | None, _option("--workload", help="Deployment or DisaggregatedSet.", axis="workload")
    ] = None,
    name: Annotated[str | None, _option("--name", help="Helm release of the router.", metavar="NAME")] = None,
    namespace: Annotated[
        str | None, _option("--namespace", "-n", help="Namespace of everything.", metavar="NAME")
    ] = None,
    mode: Annotated[str | None, _option("--mode", help="standalone, or gateway.", axis="mode")] = None,
    gateway_class: Annotated[
        str | None,
        _option("--gateway-class", help="none, gke, istio or agentgateway (mode gateway).", axis="gatewayClass"),
    ] = None,
    routing: Annotated[
        str | None, _option("--routing", help="approximate, or precise prefix cache.", axis="routing")
    ] = None,
    encoder_cache_affinity: Annotated[
        bool | None,
        typer.Option("--encoder-cache-affinity/--no-encoder-cache-affinity", help="Score pods by media seen."),
    ] = None,
    ec_connector: Annotated[
        str | None,
        _option(
            "--ec-connector", help="ECCPUConnector, ECMooncakeConnector or ECExampleConnector.", axis="ecConnector"
        ),
    ] = None,
    encoder_parallelism: Annotated[
        str | None,
        _option(
            "--encoder-parallelism",
            help="weights, or data: media items spread over the TP ranks.",
            axis="encoderParallelism",
        ),
    ] = None,
    monitoring: Annotated[
        bool | None, typer.Option("--monitoring/--no-monitoring", help="Prometheus monitors.")
    ] = None,
    tracing: Annotated[bool | None, typer.Option("--tracing/--no-tracing", help="OpenTelemetry traces.")] = None,
    estimator: Annotated[
        str | None,
        _option("--estimator", help="The router's estimate: block, as a file or inline.", metavar="FILE|YAML"),
    ] = None,
    allow_mismatch: Annotated[
        bool | None, typer.Option("--allow-mismatch", help="Render an estimator that does not fit the model.")
    ] = None,
    processor_config: Annotated[
        str | None, _option("--processor-config", help="The model's preprocessor_config.json.", metavar="FILE")
    ] = None,
    mm_processor_kwargs: Annotated[
        str | None, _option("--mm-processor-kwargs", help="Passed to every engine; changes prices.", metavar="JSON")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any field: --set encode.replicas=4.", metavar="PATH=VALUE")
    ] = None,
    file: Annotated[str | None, _option("--file", "-f", help="Spec file; - reads stdin.", metavar="FILE")] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", "-d", help="Write the bundle here.", metavar="DIR")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="What stdout gets.")] = Output.summary,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 4 with a diff if -d is not current.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that were edited by hand.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print every value and where it comes from.")] = False,
    from_env: Annotated[
        bool, typer.Option("--from-env", help="Take the llm-d guide's variables too (TOPOLOGY, MODEL, ...).")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No warnings.")] = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Every supported combination, into a tree under -d.")] = False,
    blueprints_dir: Annotated[
        Path | None,
        typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS"),
    ] = None,
) -> None:
    """Render a deployment: router values and model server manifests, refused where they cannot work."""
    from mmdeploy import inputs
    from mmdeploy.cli import blueprints
    from mmdeploy.errors import UsageError

    if check and directory is None:
        raise UsageError("--check compares with a directory", origin="--check", next_step="add -d DIR")
    if explain and (check or directory is not None):
        raise UsageError("--explain only prints", origin="--explain", next_step="leave -d and --check out")
    given = {
        "--topology": topology,
        "--accelerator": accelerator,
        "--server": server,
        "--provider": provider,
        "--model": model,
        "--release": release,
        "--workload": workload,
        "--name": name,
        "--namespace": namespace,
        "--mode": mode,
        "--gateway-class": gateway_class,
        "--routing": routing,
        "--encoder-cache-affinity": encoder_cache_affinity,
        "--ec-connector": ec_connector,
        "--encoder-parallelism": encoder_parallelism,
        "--monitoring": monitoring,
        "--tracing": tracing,
        "--estimator": estimator,
        "--allow-mismatch": allow_mismatch,
        "--processor-config": processor_config,
        "--mm-processor-kwargs": inputs.json_mapping(mm_processor_kwargs, "--mm-processor-kwargs"),
    }
    catalog = blueprints.load(blueprints_dir)
    options = {option: (OPTIONS[option], value) for option, value in given.items()}
    collected = inputs.collect(
        file=file, options=options, settings=settings or [], environ=os.environ, from_env=from_env
    )
    _say_sources(collected)
    if all_rows:
        _render_all(catalog, collected, directory, check, force)
        return
    from mmdeploy.render.bundle import render as render_bundle
    from mmdeploy.render.resolve import Resolver

    bundle = render_bundle(catalog, Resolver(catalog).resolve(collected.spec(), collected.origin_of))
    if not quiet:
        _say_warnings(bundle)
    if explain:
        _print_explanation(bundle, output)
        return
    from mmdeploy.cli.examined import examiner

    examiner(catalog)(bundle)
    spec_file = Path(file) if file not in (None, "-") else None
    if check and directory is not None:
        _print_check(bundle, directory, spec_file, output)
    else:
        _print_bundle(bundle, directory, spec_file, force, output)


def _say_sources(collected: Inputs) -> None:
    from mmdeploy.report import problems

    if collected.taken:
        print(f"from the environment: {' '.join(collected.taken)}", file=sys.stderr)
    for text in collected.unknown:
        print(problems.warning(text), file=sys.stderr)


def _say_warnings(bundle: Bundle) -> None:
    from mmdeploy.report import problems

    for text in bundle.deployment.warnings:
        print(problems.warning(text), file=sys.stderr)


def _print_explanation(bundle: Bundle, output: Output) -> None:
    from mmdeploy.report import documents, explained

    rows = [{"path": item.path, "value": item.value, "origin": item.origin} for item in bundle.deployment.explain()]
    if output is Output.json:
        print(documents.as_json({"schemaVersion": 1, "kind": "Explanation", "values": rows}), end="")
    else:
        print(explained.listing(rows), end="")


def _print_check(bundle: Bundle, directory: Path, spec_file: Path | None, output: Output) -> None:
    from mmdeploy.errors import DifferencesError
    from mmdeploy.render.disk import changes
    from mmdeploy.report import documents

    found = changes(bundle, directory, spec_file)
    if output is Output.json:
        rows = [{"path": change.path, "verb": change.verb, "edited": change.edited} for change in found]
        print(documents.as_json({"schemaVersion": 1, "kind": "Check", "current": not found, "changes": rows}), end="")
    else:
        for change in found:
            sys.stdout.write(change.diff())
    if found:
        force = " --force" if any(change.edited for change in found) else ""
        raise DifferencesError(
            f"{directory} is not current: {', '.join(change.path for change in found)}",
            next_step=f"mmdeploy render {_again()} -d {shlex.quote(str(directory))}{force}",
        )
    print(f"{directory} is current", file=sys.stderr)


def _again() -> str:
    """The person's own arguments, for a command to run next."""
    words = [word for word in sys.argv[2:] if word not in ("--check", "--force")]
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("-d", "--directory"):
            skip = True
        elif not word.startswith("--directory="):
            kept.append(shlex.quote(word))
    return " ".join(kept)


def _print_bundle(bundle: Bundle, directory: Path | None, spec_file: Path | None, force: bool, output: Output) -> None:
    from mmdeploy.render.bundle import manifests
    from mmdeploy.render.disk import write
    from mmdeploy.render.summary import summary
    from mmdeploy.report import documents, rendered

    written = None
    if directory is not None:
        done = write(bundle, directory, force, spec_file)
        changes = [{"path": change.path, "verb": change.verb} for change in done]
        written = {"directory": str(directory), "changes": changes}
    if output is Output.yaml:
        print(manifests(bundle.deployment), end="")
        return
    document = summary(bundle)
    if output is Output.json:
        print(documents.as_json({**document, "written": written}), end="")
        return
    print(rendered.page(document, written, _next_commands(directory)), end="")


def _next_commands(directory: Path | None) -> list[tuple[str, str]]:
    """``(remark, command)``: a command stands alone on its line, to be copied."""
    if directory is None:
        return [("nothing was written; this writes the files:", f"mmdeploy render {_again()} -d DIR")]
    return [("the helm and kubectl commands, filled in:", f"less {shlex.quote(str(directory))}/README.md")]


def _render_all(catalog: Any, collected: Inputs, directory: Path | None, check: bool, force: bool) -> None:
    from mmdeploy.cli.examined import examiner
    from mmdeploy.errors import DifferencesError, UsageError
    from mmdeploy.render.overlays import render_all

    if directory is None:
        raise UsageError("--all writes a tree of bundles", origin="--all", next_step="add -d DIR")
    changed = render_all(
        catalog,
        collected.spec(),
        directory,
        collected.origin_of,
        check=check,
        force=force,
        examine=examiner(catalog),
    )
    for path in changed:
        print(path)
    if check and changed:
        raise DifferencesError(
            f"{len(changed)} files under {directory} are not current",
            next_step=f"mmdeploy render {_again()} -d {shlex.quote(str(directory))} --force",
        )
    print(f"{directory}: {len(changed)} files {'differ' if check else 'changed'}", file=sys.stderr)
