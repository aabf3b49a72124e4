"""A program called helm that is none, or is broken: one error each, with what to do; real programs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mmdeploy.cluster import helm as module
from mmdeploy.cluster.access import Access
from mmdeploy.cluster.complaints import failure
from mmdeploy.cluster.helm import Chart, Helm, heeding
from mmdeploy.errors import DeployError, ForbiddenError, MmdeployError, StoppedError, TimedOutError, UsageError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory of PATH besides the system's own, where helm is put."""
    found = tmp_path / "bin"
    found.mkdir()
    monkeypatch.setenv("PATH", f"{found}:/usr/bin:/bin")
    return found


def program(place: Path, text: str, mode: int = 0o755) -> Helm:
    file = place / "helm"
    file.write_text(text)
    file.chmod(mode)
    return Helm(Access(), "serving")


def script(place: Path, *lines: str) -> Helm:
    return program(place, "\n".join(["#!/bin/sh", *lines, ""]))


@pytest.mark.parametrize(
    ("text", "mode", "found"),
    [
        ("not a program", 0o644, "the helm of PATH cannot be run: Permission denied"),
        ("not a program", 0o755, "the helm of PATH cannot be run: Exec format error"),
        ("#!/no/such/shell\n", 0o755, "helm is not here, and the router is a Helm release"),
        ("#!/bin/sh\nhead -c 2000 /dev/zero | tr '\\0' '\\377'\n", 0o755, "helm version answers"),
    ],
    ids=["not executable", "no program", "no interpreter", "not UTF-8"],
)
def test_what_cannot_be_run_is_a_mistake_of_usage(place: Path, text: str, mode: int, found: str) -> None:
    with pytest.raises(UsageError, match="^" + found) as caught:
        program(place, text, mode).version()
    assert "install helm 3.12 or newer, or 4" in (caught.value.next_step or "")


def test_a_directory_is_no_program(place: Path) -> None:
    (place / "helm").mkdir()
    with pytest.raises(UsageError, match="cannot be run: Permission denied"):
        Helm(Access(), "serving").version()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("exit 77", "helm template ended with exit code 77 and said nothing"),
        ("kill -SEGV $$", "helm template was ended by SIGSEGV"),
        ("echo all is well", "helm template chart does not print objects of Kubernetes: 'all is well' is no object"),
        ("printf '\\377\\376'", "helm template chart does not print objects of Kubernetes: "),
        ("echo 'a: [b'", "helm template chart does not print objects of Kubernetes: "),
        ("echo 'kind: Service'", "helm template chart does not print objects of Kubernetes: "),
    ],
)
def test_a_template_that_is_none(place: Path, line: str, found: str) -> None:
    with pytest.raises(DeployError) as caught:
        script(place, "cat > /dev/null", line).template("mm", Chart("chart"), {})
    assert caught.value.found.startswith(found)
    assert "helm version shows" in (caught.value.next_step or "")


# ----------------------------------------------------------------------------------------------------- helms that hang


def gone(pid: str) -> bool:
    """Whether it has ended, or does within seconds: the kernel takes its time over one that was killed."""
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("problem", [StoppedError("interrupted"), TimedOutError("time ran out")])
def test_a_question_ends_when_somebody_stops_or_time_runs_out(
    place: Path, tmp_path: Path, problem: MmdeployError
) -> None:
    pids = tmp_path / "pids"
    helm = script(place, f"sleep 60 & echo $$ $! > {pids}", "wait")
    ended = threading.Event()
    threading.Timer(0.5, ended.set).start()

    def check() -> None:
        if ended.is_set():
            raise problem

    begun = time.monotonic()
    with heeding(check), pytest.raises(type(problem)) as caught:
        helm.version()
    assert caught.value is problem
    assert time.monotonic() - begun < 10
    assert all(gone(pid) for pid in pids.read_text().split()), "and what it started ends with it"


def test_a_question_has_a_limit_of_its_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_SECONDS", 0.3)
    with pytest.raises(TimedOutError, match="helm version did not finish"):
        script(place, "sleep 60 & wait").version()


def test_a_change_is_asked_to_end_with_all_that_it_started(place: Path, tmp_path: Path) -> None:
    """A wrapper that starts the real helm, as version managers install: both get to unlock the release."""
    said = tmp_path / "said"
    wrapped = f"trap 'echo ended >> {said}; exit 1' TERM; sleep 60 & wait"
    helm = script(place, f'sh -c "{wrapped}" & trap "wait; exit 1" TERM; wait')
    with pytest.raises(TimedOutError):
        helm.upgrade("mm", Chart("chart"), {}, seconds=0.5)
    assert said.read_text() == "ended\n"


def test_a_question_ends_with_mmdeploy(place: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script(place, f"sleep 60 & echo $$ $! > {pids}", "wait")
    code = (
        "import time; from pathlib import Path\n"
        "from mmdeploy.cluster.access import Access; from mmdeploy.cluster.helm import Chart, Helm\n"
        "Helm(Access(), 'serving').begin('mm', Chart('chart'), {})\n"
        f"while not Path({str(pids)!r}).exists() or not Path({str(pids)!r}).read_text(): time.sleep(0.05)\n"
        "time.sleep(0.2)\nraise SystemExit(130)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False, timeout=60)
    assert done.returncode == 130
    assert all(gone(pid) for pid in pids.read_text().split())


# ---------------------------------------------------------------------------------------------------- what a helm says

# helm 4.3.1, values `router: [1]`.
CHAIN = """\
Error: llm-d-router-standalone/templates/rights.yaml:6:14
  executing "llm-d-router-standalone/templates/rights.yaml" at <include "labels" .>:
    error calling include:
llm-d-router-standalone/templates/_names.tpl:6:29
  executing "labels" at <.Values.router.inferencePool.create>:
    can't evaluate field inferencePool in type interface {}

Use --debug flag to render out invalid YAML
"""


def test_the_reason_of_a_chart_stands_lines_below() -> None:
    found = failure("template", CHAIN).found
    assert found.startswith("helm template: llm-d-router-standalone/templates/rights.yaml:6:14 executing")
    assert found.endswith("can't evaluate field inferencePool in type interface {}")


# helm 4.3.1 and 3.22.0, uninstall --debug without the right to delete; shortened in the middle.
_REFUSED = (
    'services "mm-epp" is forbidden: User "ada" cannot delete resource "services" in API group "" in the namespace '
    '"serving"'
)
_SECOND = 'deployments.apps "mm-epp" is forbidden: User "ada" cannot delete resource "deployments" in API group "apps"'
_LIST = f"[{_REFUSED} {_SECOND}]"
UNINSTALLS = {
    "helm 4": "level=DEBUG msg=\"uninstall: Failed to delete release\" error=\"" + _LIST.replace('"', '\\"') + '"\n'
    "Error: failed to delete release: mm\n",
    "helm 3": f"uninstall.go:125: 2026-01-02 03:04:05 +0000 UTC m=+0.1 [debug] uninstall: Failed to delete release: "
    f"{_LIST}\nError: failed to delete release: mm\nhelm.go:92: 2026-01-02 [debug] failed to delete release: mm\n"
    "helm.sh/helm/v3/pkg/action.(*Uninstall).Run\n",
}  # fmt: skip


@pytest.mark.parametrize("stderr", UNINSTALLS.values(), ids=UNINSTALLS)
def test_an_uninstall_without_a_right_names_it(stderr: str) -> None:
    problem = failure("uninstall", stderr)
    assert isinstance(problem, ForbiddenError)
    assert problem.exit_code == 5
    assert problem.found == f"helm uninstall: failed to delete release: mm: {_REFUSED}"
