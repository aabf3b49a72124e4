"""Time whole processes against each other and print the ratios.

A ratio of two programs that ran in turns on the same machine means the same everywhere; seconds do not. Each row says
how many times the duration of ``reference`` a run of ``measured`` may take, and some also how much memory. To add a
benchmark, add a ``Row``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Command = tuple[str, ...]

PYTHON = sys.executable
MMDEPLOY = str(Path(sys.executable).with_name("mmdeploy"))

# In a command, "{bundle}" is a bundle rendered once beforehand, "{traffic}" a file with a million picture sizes, a JSON
# object a line, "{stream}" a YAML stream of 2,000 objects, and "{new}" a path that does not exist yet.
EXAMPLE: Command = (MMDEPLOY, "render", "-t", "e-pd", "-a", "gpu", "-p", "gke", "-d")
RENDER_ONE: Command = (*EXAMPLE, "{new}")
RENDER_ALL: Command = (MMDEPLOY, "render", "--all", "-d", "{new}")
KUSTOMIZE: Command = ("kubectl", "kustomize", "{bundle}/modelserver")
MODEL = "Qwen/Qwen3-VL-32B-Instruct"
ESTIMATE: Command = (MMDEPLOY, "estimate", "-m", MODEL, "--image", "1280x720")
TRAFFIC: Command = (MMDEPLOY, "estimate", "-m", MODEL, "--requests", "{traffic}")
PARSE_JSON = "import json, sys\nfor line in open(sys.argv[1]): json.loads(line)"
TRAFFIC_LINES = 1_000_000
LINT: Command = (MMDEPLOY, "lint", "{bundle}")
LINT_STREAM: Command = (MMDEPLOY, "lint", "{stream}", "--fail-on", "never")
PARSE_YAML = "import sys, yaml\nfor _ in yaml.load_all(open(sys.argv[1]), Loader=yaml.CSafeLoader): pass"
STREAM_OBJECTS = 2_000


@dataclass(frozen=True)
class Row:
    """``measured`` may take at most ``target`` times as long as ``reference``."""

    what: str
    measured: Command
    reference: Command
    target: float
    memory_mb: int | None = None
    """Megabytes that ``measured`` may use at its peak."""
    rounds: int = 100
    """Rounds at most, for commands that take seconds."""


ROWS = (
    Row("render one bundle / kubectl kustomize of it", RENDER_ONE, KUSTOMIZE, 1.2),
    Row("render every bundle / kubectl kustomize of one", RENDER_ALL, KUSTOMIZE, 4.0),
    Row("mmdeploy --version / python -c pass", (MMDEPLOY, "--version"), (PYTHON, "-c", "pass"), 5.0),
    Row("estimate one image / kubectl kustomize of one bundle", ESTIMATE, KUSTOMIZE, 1.2),
    Row(
        "estimate a million sizes / parse them with json",
        TRAFFIC,
        (PYTHON, "-c", PARSE_JSON, "{traffic}"),
        2.5,
        memory_mb=100,
        rounds=3,
    ),
    Row("lint one bundle / kubectl kustomize of it", LINT, KUSTOMIZE, 1.5),
    Row(
        "lint 2,000 mixed objects / parse them with PyYAML's C loader",
        LINT_STREAM,
        (PYTHON, "-c", PARSE_YAML, "{stream}"),
        3.0,
    ),
)


class CommandError(Exception):
    """A command did not exit with 0, so its duration means nothing."""


def missing_program(row: Row) -> str | None:
    """Name the first program of the row that is not on this machine."""
    programs = (row.measured[0], row.reference[0])
    return next((program for program in programs if shutil.which(program) is None), None)


@dataclass(frozen=True)
class Run:
    """What one run took."""

    seconds: float
    peak_mb: float


def run(command: Command) -> Run:
    """Run a command to its end. Python may keep its bytecode, as it does on a user's machine."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            said.seek(0)
            words = said.read().decode(errors="replace").strip()
            raise CommandError(f"exit status {process.returncode} from: {' '.join(command)}\n{words}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB on Linux
    return Run(seconds, usage.ru_maxrss * unit / 1e6)


def medians(commands: Mapping[Command, int], rounds: int, directory: Path) -> dict[Command, Run]:
    """Median seconds and highest peak of each command, which take turns so that a slow moment hits them all.

    ``commands`` maps a command to its rounds at most.
    """
    runs: dict[Command, list[Run]] = {command: [] for command in commands}
    for round_number in range(-1, rounds):  # round -1 fills the caches and does not count
        for position, (command, most) in enumerate(commands.items()):
            if round_number >= most:
                continue
            new = directory / f"new-{round_number}-{position}"
            places = {
                "{bundle}": str(directory / "bundle"),
                "{traffic}": str(directory / "traffic.jsonl"),
                "{stream}": str(directory / "stream.yaml"),
                "{new}": str(new),
            }
            took = run(tuple(fill(word, places) for word in command))
            shutil.rmtree(new, ignore_errors=True)
            if round_number >= 0:
                runs[command].append(took)
    return {
        command: Run(statistics.median(each.seconds for each in took), max(each.peak_mb for each in took))
        for command, took in runs.items()
    }


def write_traffic(path: Path) -> None:
    """A million sizes, nearly all different: repeated ones would be quicker."""
    draw = random.Random(1)
    with path.open("w") as file:
        for _ in range(TRAFFIC_LINES):
            size = {"width": draw.randint(32, 4096), "height": draw.randint(32, 4096)}
            how = {"via": draw.choice(("inline", "url")), "format": draw.choice(("png", "jpeg", "webp"))}
            file.write(json.dumps(size | how) + "\n")


_OTHERS = (
    """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: other
  labels: {app: other, app.kubernetes.io/managed-by: Helm}
data:
  LOG_LEVEL: info
  DATABASE_HOST: db.example.com
  DATABASE_PORT: "5432"
  nginx.conf: |
    server {
      listen 8080;
      location / { proxy_pass http://127.0.0.1:3000; }
    }
""",
    """\
apiVersion: v1
kind: Service
metadata:
  name: other
  labels:
    app: other
    app.kubernetes.io/managed-by: Helm
  annotations:
    prometheus.io/scrape: "true"
spec:
  type: ClusterIP
  selector:
    app: other
  ports:
  - name: http
    port: 80
    targetPort: 8080
    protocol: TCP
  - name: metrics
    port: 9090
    targetPort: 9090
    protocol: TCP
""",
    """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: other
  labels:
    app: other
    app.kubernetes.io/managed-by: Helm
  annotations:
    deployment.kubernetes.io/revision: "3"
spec:
  replicas: 2
  revisionHistoryLimit: 10
  selector:
    matchLabels:
      app: other
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 25%
      maxUnavailable: 25%
  template:
    metadata:
      labels:
        app: other
        version: v1.2.3
    spec:
      serviceAccountName: other
      terminationGracePeriodSeconds: 30
      containers:
      - name: web
        image: example.com/web:v1.2.3
        imagePullPolicy: IfNotPresent
        args:
        - --verbose
        - --listen=:8080
        env:
        - name: LOG_LEVEL
          value: info
        - name: DATABASE_PASSWORD
          valueFrom:
            secretKeyRef:
              name: database
              key: password
        ports:
        - name: http
          containerPort: 8080
          protocol: TCP
        readinessProbe:
          httpGet:
            path: /healthz
            port: http
          periodSeconds: 10
          timeoutSeconds: 5
        resources:
          limits:
            cpu: 500m
            memory: 512Mi
          requests:
            cpu: 100m
            memory: 256Mi
        volumeMounts:
        - name: config
          mountPath: /etc/web
      volumes:
      - name: config
        configMap:
          name: other
""",
)


def write_stream(path: Path, bundle: Path) -> None:
    """Objects of many owners in one file, as `kubectl get -A -o yaml` gives them: one in twenty is a bundle's."""
    ours = [file.read_text() for file in sorted(bundle.glob("modelserver/*.yaml")) if "ustomization" not in file.name]
    with path.open("w") as file:
        for at in range(STREAM_OBJECTS):
            text = _OTHERS[at % len(_OTHERS)] if at % 20 else ours[at // 20 % len(ours)]
            tenant = at // 20 // len(ours)
            file.write("---\n" + text.replace("  name: ", f"  namespace: tenant-{tenant}\n  name: n{at}-", 1))


def fill(word: str, places: dict[str, str]) -> str:
    """Put the real paths in place of "{bundle}" and its like."""
    for place, path in places.items():
        word = word.replace(place, path)
    return word


@dataclass(frozen=True)
class Measured:
    """What a row came to."""

    ratio: float
    peak_mb: float


def measure(rows: Sequence[Row], rounds: int, example: Command) -> dict[Row, Measured]:
    """What each row comes to; all rows share one run, and a command in several rows is timed once."""
    commands: dict[Command, int] = {}
    for row in rows:
        for command in (row.measured, row.reference):
            commands[command] = max(commands.get(command, 0), row.rounds)
    with tempfile.TemporaryDirectory(prefix="mmdeploy-bench-") as name:
        directory = Path(name)
        words = {word for command in commands for word in command}
        if any("{bundle}" in word or "{stream}" in word for word in words):
            run((*example, str(directory / "bundle")))
        if any("{traffic}" in word for word in words):
            write_traffic(directory / "traffic.jsonl")
        if any("{stream}" in word for word in words):
            write_stream(directory / "stream.yaml", directory / "bundle")
        took = medians(commands, rounds, directory)
    return {
        row: Measured(took[row.measured].seconds / took[row.reference].seconds, took[row.measured].peak_mb)
        for row in rows
    }


def problems(row: Row, measured: Measured) -> list[str]:
    """What is over its target."""
    found = ["over"] if measured.ratio > row.target else []
    if row.memory_mb is not None and measured.peak_mb > row.memory_mb:
        found.append(f"{measured.peak_mb:.0f} MB instead of {row.memory_mb}")
    return found


def table(rows: Sequence[Row], results: dict[Row, Measured]) -> str:
    """One line a row: what, ratio, target, and ok, over or skipped."""
    width = max(len(row.what) for row in rows)
    lines = [f"{'what':{width}}  {'ratio':>6}  {'target':>6}"]
    for row in rows:
        if row in results:
            measured = results[row]
            ratio, verdict = f"{measured.ratio:.2f}", ", ".join(problems(row, measured)) or "ok"
            if row.memory_mb is not None and verdict == "ok":
                verdict += f", {measured.peak_mb:.0f} of {row.memory_mb} MB"
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
        results = measure(present, options.rounds, example)
    except CommandError as failure:
        print(f"benchmark stopped: {failure}", file=sys.stderr)
        return 1
    print(table(rows, results))
    over = any(problems(row, measured) for row, measured in results.items())
    return 1 if over and options.strict else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
