"""Calls in several child processes at once, all of which end by a deadline.

    with Crew() as crew:
        crew.deadline = time.monotonic() + 30
        futures = [crew.submit(schedule, c) for c in candidates]

Its children are workers of ``cleave.runtime.watchdog``: one that crashes or does not end costs its call, not the
others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

from cleave.errors import CleaveError
from cleave.runtime.watchdog import Outcome, Worker

NO_TIME = "no time was left"


class LostError(CleaveError):
    """A call that was not answered; ``is_late``: because of the deadline."""

    def __init__(self, message: str, *, is_late: bool) -> None:
        super().__init__(message)
        self.is_late = is_late


class Crew:
    """Children are started when they are needed, at most one a core."""

    def __init__(self, processes: int | None = None) -> None:
        self.deadline = float("inf")
        self._threads = ThreadPoolExecutor(processes or os.cpu_count() or 1)
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        self._workers: list[Worker] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        """End every child, whatever it is doing."""
        self.deadline = 0.0
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.end()
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.stop()

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """The future raises LostError where there is no answer."""
        return self._threads.submit(self._answered, fn, args)

    def _answered(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise LostError(NO_TIME, is_late=True)
        worker = self._idle_one()
        try:
            answer = worker.run(function, *arguments, seconds=left)
        finally:
            self._idle.put(worker)
        match answer.outcome:
            case Outcome.OK:
                return answer.value
            case Outcome.TIMEOUT:
                raise LostError(NO_TIME, is_late=True)
            case _:
                raise LostError(f"{answer.outcome.value}: {answer.message}", is_late=False)

    def _idle_one(self) -> Worker:
        try:
            return self._idle.get_nowait()
        except Empty:
            made = Worker()
            self._workers.append(made)
            return made
