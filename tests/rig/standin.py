"""What stands in for a controller: a thread that looks at everything now and then, and does what one would."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from tests.rig.api import Api


@dataclass
class StandIn(ABC):
    """One controller, in a thread of its own."""

    api: Api
    mode: str = "reporting"
    """``away``: it does nothing at all."""
    problems: list[str] = field(default_factory=list)
    """For the one who wonders why nothing moves."""
    every: float = 0.3
    """Seconds between two looks."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join(10)

    def _run(self) -> None:
        while not self._ended.wait(self.every):
            if self.mode == "away":
                continue
            try:
                self._look()
            except Exception as problem:  # an API server that is restarted is part of the tests
                self.problems.append(repr(problem))

    @abstractmethod
    def _look(self) -> None:
        """Look once, and act."""
