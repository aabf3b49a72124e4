"""A command that runs while a rehearsal does, and ends with it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from types import FrameType

from mmdeploy.errors import UsageError

GRACE_SECONDS = 5.0
"""What a command gets between SIGTERM and SIGKILL."""
STOPS = (signal.SIGTERM, signal.SIGHUP)


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command's exit code; 128 and the signal's number where a signal ended it, or us: then it is ended, too.

    Raises `UsageError` for one that cannot be run. Only the main thread may call this.
    """
    stopped: list[int] = []
    processes: list[subprocess.Popen[bytes]] = []

    def end() -> None:
        for process in processes:
            process.kill()

    kill = threading.Timer(GRACE_SECONDS, end)
    kill.daemon = True

    def stop(number: int, frame: FrameType | None) -> None:
        if not stopped:
            kill.start()
        stopped.append(number)
        for process in processes:
            process.terminate()

    before = {number: signal.getsignal(number) for number in STOPS}
    heard = [number for number in STOPS if before[number] is not signal.SIG_IGN]  # nohup has it ignored
    for number in heard:
        signal.signal(number, stop)
    try:
        processes.append(_started(command, environment))
        if stopped:
            processes[0].terminate()
        code = processes[0].wait()
    finally:
        for process in processes:
            _ended(process)
        kill.cancel()
        for number in heard:
            signal.signal(number, before[number])
    return 128 + stopped[0] if stopped else code if code >= 0 else 128 - code


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=environment)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise UsageError(f"cannot run {command[0]}: {why}", origin="COMMAND") from None


def _ended(process: subprocess.Popen[bytes]) -> None:
    """On Ctrl-C, which a command on the same terminal has got as well, it may still be at its last words."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        process.kill()
        process.wait()
