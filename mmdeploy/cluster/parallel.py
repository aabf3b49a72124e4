"""Calls at the same time, on threads that nobody waits for once their answers are not wanted any more.

The threads of `concurrent.futures` are: a program that was told to end would hang as long as a server that does not
answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def begin(call: Callable[[], T]) -> Future[T]:
    """Start a call; ``result()`` waits for it, and raises what it raised."""
    answer: Future[T] = Future()
    Thread(target=_answer, args=(call, answer), daemon=True).start()
    return answer


def together(calls: Iterable[Callable[[], T]], most: int) -> list[T]:
    """Results in the order of the calls, ``most`` of which run at a time. The first exception in that order is raised,
    and what has not begun by then never does."""
    pairs: list[tuple[Callable[[], T], Future[T]]] = [(call, Future()) for call in calls]
    todo = deque(pairs)

    def work() -> None:
        while todo:
            try:
                call, answer = todo.popleft()
            except IndexError:  # another thread was faster
                return
            _answer(call, answer)

    for _ in pairs[:most]:
        begin(work)
    try:
        return [answer.result() for _, answer in pairs]
    finally:
        todo.clear()


def _answer(call: Callable[[], Any], answer: Future[Any]) -> None:
    try:
        answer.set_result(call())
    except BaseException as problem:
        answer.set_exception(problem)


__all__ = ["begin", "together"]
