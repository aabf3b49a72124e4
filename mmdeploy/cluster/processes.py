"""Processes of this machine: which one wrote something, and whether what it started is still at work.

A process that is killed cannot end what it started: a helm goes on by itself. It carries a mark in its environment by
which it is found. Only where the system has ``/proc``; elsewhere nothing is known of a process, and time tells.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MARK: Final = "MMDEPLOY_WORK"
"""Variable of a program that changes something for mmdeploy: whose work it is."""
_PROC: Final = Path("/proc")


def process(pid: int) -> str:
    """What tells one process on one machine from all others, also from a later one with its number; empty where the
    system does not say."""
    with contextlib.suppress(OSError, IndexError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.readlink(_PROC / "self/ns/pid")
        begun = (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return f"{boot} {space} {pid} {begun[19]} {'' if begun[0] != 'Z' else 'ended'}".strip()
    return ""


def gone(said: str) -> bool:
    """Whether a process, as `process` named it, ran on this machine and is gone."""
    parts = said.split()
    mine = process(os.getpid()).split()
    if len(parts) != 4 or len(mine) != 4 or parts[:2] != mine[:2] or not parts[2].isdigit():
        return False
    return process(int(parts[2])) != said


def mark(work: str) -> dict[str, str]:
    """The variables that a program gets which changes ``work`` for this process."""
    return {MARK: f"{process(os.getpid())}|{work}"}


def left_behind(work: str) -> list[int]:
    """Programs of this machine that still change ``work`` for a mmdeploy that is gone; only this person's, or
    everybody's for root."""
    return sorted(pid for pid, said in _marks() if said[1] == work and gone(said[0]))


def _marks() -> Iterator[tuple[int, tuple[str, str]]]:
    start = f"{MARK}=".encode()
    with contextlib.suppress(OSError):
        for place in os.scandir(_PROC):
            if not place.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                data = (_PROC / place.name / "environ").read_bytes()
                for part in data.split(b"\0") if start in data else ():
                    if part.startswith(start):
                        holder, _, work = part[len(start) :].decode("utf-8", "replace").partition("|")
                        yield int(place.name), (holder, work)


__all__ = ["gone", "left_behind", "mark", "process"]
