"""Programs that run beside the tests and never longer than they do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

_TIED = Path(__file__).with_name("tied.py")


@dataclass
class Program:
    """One program, its log, and its end."""

    name: str
    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # The kernel ends it with the thread that started it, which had better not be a passing one.
        assert threading.current_thread() is threading.main_thread()
        # A session of its own keeps the terminal's Ctrl-C away from it: the tests end first, then this.
        command = [sys.executable, "-I", "-S", str(_TIED), str(os.getpid()), *self.command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def stop(self, patience: float = 5) -> None:
        """Ask it to end, then make it."""
        if self._process is None:
            return
        for how, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10)):
            if self.running:
                os.killpg(self._process.pid, how)
            try:
                self._process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        self._process = None

    def size(self) -> int:
        """Length of the log so far."""
        return self.log.stat().st_size if self.log.exists() else 0

    def complaints(self, since: int = 0, most: int = 15) -> list[str]:
        """Last lines of the log that are warnings, errors or no log lines at all."""
        with self.log.open("rb") as log:
            log.seek(since)
            lines = log.read().decode(errors="replace").splitlines()
        return [line[:400] for line in lines if line and not _chatter(line)][-most:]


def _chatter(line: str) -> bool:
    """Lines of level INFO and below, as klog, etcd and kwok write them, and connections that were not needed longer."""
    return line[:1] == "I" or '"level":"info"' in line.lower() or "] [core] [Channel #" in line


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on: taken all at once, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
