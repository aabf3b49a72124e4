"""Time whole processes against each other and print the ratios.

A ratio of two programs that ran in turns on the same machine means the same everywhere; seconds do not. Each row says
how many times the duration of ``reference`` a run of ``measured`` may take. To add a benchmark, add a ``Row``.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Command = tuple[str, ...]

PYTHON = sys.executable
MMDEPLOY = str(Path(sys.executable).with_name("mmdeploy"))

# In a command, "{bundle}" is a bundle rendered once beforehand, "{new}" a path that does not exist yet.
EXAMPLE: Command = (MMDEPLOY, "render", "-t", "e-pd", "-a", "gpu", "-p", "gke", "-d")
RENDER_ONE: Command = (*EXAMPLE, "{new}")
RENDER_ALL: Command = (MMDEPLOY, "render", "--all", "-d", "{new}")
KUSTOMIZE: Command = ("kubectl", "kustomize", "{bundle}/modelserver")


@dataclass(frozen=True)
class Row:
    """``measured`` may take at most ``target`` times as long as ``reference``."""

    what: str
    measured: Command
    reference: Command
    target: float


ROWS = (
    Row("render one bundle / kubectl kustomize of it", RENDER_ONE, KUSTOMIZE, 1.2),
    Row("render every bundle / kubectl kustomize of one", RENDER_ALL, KUSTOMIZE, 4.0),
    Row("mmdeploy --version / python -c pass", (MMDEPLOY, "--version"), (PYTHON, "-c", "pass"), 5.0),
)


class CommandError(Exception):
    """A command did not exit with 0, so its duration means nothing."""


def missing_program(row: Row) -> str | None:
    """Name the first program of the row that is not on this machine."""
    programs = (row.measured[0], row.reference[0])
    return next((program for program in programs if shutil.which(program) is None), None)


def run(command: Command) -> float:
    """Run a command to its end; seconds it took."""
    start = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise CommandError(f"exit status {done.returncode} from: {' '.join(command)}\n{said}")
    return seconds


def medians(commands: Sequence[Command], rounds: int, directory: Path) -> dict[Command, float]:
    """Median seconds of each command, the commands taking turns so that a slow moment hits them all."""
    seconds: dict[Command, list[float]] = {command: [] for command in commands}
    for round_number in range(-1, rounds):  # round -1 fills the caches and does not count
        for position, command in enumerate(seconds):
            new = directory / f"new-{round_number}-{position}"
            places = {"{bundle}": str(directory / "bundle"), "{new}": str(new)}
            took = run(tuple(fill(word, places) for word in command))
            shutil.rmtree(new, ignore_errors=True)
            if round_number >= 0:
                seconds[command].append(took)
    return {command: statistics.median(runs) for command, runs in seconds.items()}


def fill(word: str, places: dict[str, str]) -> str:
    """Put the real paths in place of "{bundle}" and "{new}"."""
    for place, path in places.items():
        word = word.replace(place, path)
    return word


def measure(rows: Sequence[Row], rounds: int, example: Command) -> dict[Row, float]:
    """Ratio of each row; all rows share one run, and a command in several rows is timed once."""
    commands = list(dict.fromkeys(command for row in rows for command in (row.measured, row.reference)))
    with tempfile.TemporaryDirectory(prefix="mmdeploy-bench-") as name:
        directory = Path(name)
        if any("{bundle}" in word for command in commands for word in command):
            run((*example, str(directory / "bundle")))
        took = medians(commands, rounds, directory)
    return {row: took[row.measured] / took[row.reference] for row in rows}


def table(rows: Sequence[Row], ratios: dict[Row, float]) -> str:
    """One line a row: what, ratio, target, and ok, over or skipped."""
    width = max(len(row.what) for row in rows)
    lines = [f"{'what':{width}}  {'ratio':>6}  {'target':>6}"]
    for row in rows:
        if row in ratios:
            ratio, verdict = f"{ratios[row]:.2f}", "ok" if ratios[row] <= row.target else "over"
        else:
            ratio, verdict = "-", f"skipped: {missing_program(row)} not found"
        lines.append(f"{row.what:{width}}  {ratio:>6}  {row.target:>6.2f}  {verdict}")
    return "\n".join(lines)


def main(argv: Sequence[str], rows: Sequence[Row] = ROWS, example: Command = EXAMPLE) -> int:
    """Measure, print, and say by the exit status whether all is well."""
    parser = argparse.ArgumentParser(description="Time mmdeploy against other programs; prints ratios.")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command (default: 7)")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a ratio is over its target")
    options = parser.parse_args(argv)

    present = [row for row in rows if missing_program(row) is None]
    try:
        ratios = measure(present, options.rounds, example)
    except CommandError as failure:
        print(f"benchmark stopped: {failure}", file=sys.stderr)
        return 1
    print(table(rows, ratios))
    over = any(ratio > row.target for row, ratio in ratios.items())
    return 1 if over and options.strict else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
