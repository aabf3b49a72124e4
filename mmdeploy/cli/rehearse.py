"""``mmdeploy rehearse``."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mmdeploy.rehearse.programs import Programs
    from mmdeploy.rehearse.rehearsal import Rehearsal

EXAMPLES = """Examples:

mmdeploy rehearse deploy/ -- mmdeploy verify

mmdeploy rehearse deploy/ --traffic 5 -- mmdeploy verify --only text,image

mmdeploy rehearse --list-faults

In two terminals: rehearse deploy/ --write-targets targets.yaml, and verify --targets targets.yaml. To see what verify
makes of a fault: rehearse deploy/ --fault producer-local-only -- mmdeploy verify; it exits with 6.
"""


class Form(StrEnum):
    """Forms of ``-o`` for ``--list-faults``."""

    text = "text"
    json = "json"


def rehearse(
    bundle: Annotated[
        Path | None, typer.Argument(help="Directory of a bundle, or a spec file.", metavar="BUNDLE")
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Run this, with MMDEPLOY_TARGETS set, and stop when it ends.", metavar="-- COMMAND..."),
    ] = None,
    fault: Annotated[
        list[str] | None, typer.Option("--fault", help="Rehearse with this fault; may be given again.", metavar="NAME")
    ] = None,
    list_faults: Annotated[bool, typer.Option("--list-faults", help="List the faults, and stop.")] = False,
    write_targets: Annotated[
        Path | None, typer.Option("--write-targets", help="Write the targets here, not to stdout.", metavar="FILE")
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            help="First of the ports to take.  [default: free ones]",
            metavar="PORT",
            min=0,
            max=65535,
            show_default=False,
        ),
    ] = 0,
    first_token: Annotated[
        float, typer.Option("--first-token", help="Seconds until an engine's first token.", metavar="S", min=0)
    ] = 0.0,
    encode_time: Annotated[
        float, typer.Option("--encode-time", help="Seconds that encoding a picture takes.", metavar="S", min=0)
    ] = 0.0,
    lag: Annotated[
        float, typer.Option("--lag", help="Seconds between flushes of the engines' metrics.", metavar="S", min=0)
    ] = 0.0,
    traffic: Annotated[
        float, typer.Option("--traffic", help="Requests of others, a second.", metavar="RATE", min=0)
    ] = 0.0,
    debug_logs: Annotated[
        bool, typer.Option("--debug-logs", help="Engines log at DEBUG, and the targets say where.")
    ] = False,
    epp: Annotated[
        Path | None, typer.Option("--epp", help="Use this endpoint picker, not the stand-in.", metavar="PATH")
    ] = None,
    sidecar: Annotated[
        Path | None, typer.Option("--sidecar", help="With --epp: use this routing sidecar.", metavar="PATH")
    ] = None,
    envoy: Annotated[Path | None, typer.Option("--envoy", help="With --epp: this Envoy.", metavar="PATH")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Settles what is settled by lot.", metavar="N")] = 0,
    output: Annotated[Form, typer.Option("--output", "-o", help="Form of --list-faults.")] = Form.text,
    blueprints_dir: Annotated[
        Path | None,
        typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS"),
    ] = None,
) -> None:
    """Serve a bundle on this machine with simulated engines and a stand-in for the router, for `mmdeploy verify`.

    Nothing here runs a model, and nothing of llm-d. Prints the targets file and serves until Ctrl-C; with a COMMAND,
    until that ends, and exits as it did.
    """
    if list_faults:
        print(_faults(output), end="", flush=True)
        if output is Form.text:
            _remark()
        return
    from mmdeploy import intended
    from mmdeploy.cli import blueprints
    from mmdeploy.errors import UsageError
    from mmdeploy.rehearse.rehearsal import Rehearsal
    from mmdeploy.rehearse.settings import Timings, Traffic

    if bundle is None:
        raise UsageError(
            "nothing to rehearse",
            origin="BUNDLE",
            next_step="mmdeploy render -d DIR writes a bundle; give its directory",
        )
    catalog = blueprints.load(blueprints_dir)
    rehearsal = Rehearsal(
        intended.read(bundle, catalog),
        catalog,
        faults=fault or (),
        port=port,
        timings=Timings(first_token=first_token, encode=encode_time, lag=lag),
        traffic=Traffic(rate=traffic),
        programs=_programs(epp, sidecar, envoy),
        debug=debug_logs,
        seed=seed,
    )
    if command:
        raise typer.Exit(_run(rehearsal, command, write_targets, fault or ()))
    _serve(rehearsal, write_targets, fault or ())


def _programs(epp: Path | None, sidecar: Path | None, envoy: Path | None) -> Programs | None:
    """Raises `UsageError` for a picker without a proxy, and for either without the other."""
    from mmdeploy.errors import UsageError
    from mmdeploy.rehearse.programs import Programs

    if epp is not None and envoy is not None:
        return Programs(epp, envoy, sidecar)
    if epp is None and envoy is None and sidecar is None:
        return None
    raise UsageError(
        "the endpoint picker and Envoy work together",
        origin="--sidecar" if sidecar else "--epp" if epp else "--envoy",
        next_step="give both --epp PATH and --envoy PATH, or none of --epp, --sidecar and --envoy",
    )


def _serve(rehearsal: Rehearsal, file: Path | None, faults: Sequence[str]) -> None:
    from mmdeploy.rehearse import targets

    stops = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before threads start, so that none of them is hit
    with rehearsal:
        found = rehearsal.targets()
        _talk(rehearsal, found, faults)
        if file is not None:
            targets.write(file, found)
            print(f"targets   {file}; in another terminal: mmdeploy verify --targets {file}", file=sys.stderr)
        else:
            print(targets.text(found), end="", flush=True)
        print("Ctrl-C stops it", file=sys.stderr)
        signal.sigwait(stops)


def _run(rehearsal: Rehearsal, command: Sequence[str], file: Path | None, faults: Sequence[str]) -> int:
    """The command's exit code; 128 and the signal's number for one that a signal ended."""
    from mmdeploy.rehearse import commanded, targets

    with rehearsal, tempfile.TemporaryDirectory(prefix="mmdeploy-rehearsal-") as directory:
        found = rehearsal.targets()
        place = file or Path(directory) / "targets.yaml"
        targets.write(place, found)
        _talk(rehearsal, found, faults)
        return commanded.run(command, {**os.environ, "MMDEPLOY_TARGETS": str(place.resolve())})


def _talk(rehearsal: Rehearsal, found: dict[str, Any], faults: Sequence[str]) -> None:
    from mmdeploy.rehearse.faults import find

    roles = ", ".join(f"{len(pods)} {role}" for role, pods in found["roles"].items())
    simulated = "engines and router are simulated: no model runs here, and nothing of llm-d"
    if rehearsal.programs is not None:
        simulated = f"engines are simulated: no model runs here; the endpoint picker is {rehearsal.programs.epp}"
    lines = [
        f"rehearsal  {simulated}",
        f"pods       {roles}: {found['topology']}, {found['server']}, {found['model']}",
        f"entry      {found['entry']['url']}",
        *(f"fault      {name}: {find(name).done}" for name in faults),
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _remark() -> None:
    """What nobody should wait for."""
    from mmdeploy.rehearse.faults import FAULTS

    loaded = ", ".join(fault.name for fault in FAULTS.values() if fault.loaded)
    print(f"{loaded}: only under the load of others; verify cannot see it in an idle deployment", file=sys.stderr)


def _faults(output: Form) -> str:
    from mmdeploy.rehearse.faults import FAULTS
    from mmdeploy.report import documents, tables

    listed = [
        {
            "fault": fault.name,
            "done": fault.done,
            "fits": fault.fits,
            "circumstance": fault.circumstance,
            "loaded": fault.loaded,
        }
        for fault in FAULTS.values()
    ]
    if output is Form.json:
        return documents.as_json({"schemaVersion": 1, "kind": "Faults", "faults": listed})
    columns = {"fault": "fault", "done": "what was done", "fits": "fits"}
    return tables.table(columns, listed, droppable=("fits",))[0]
