"""A handle is the address of one worker: `submit` names a method and returns a future.

LocalHandle answers in this process. A worker in another process or on another machine needs only
another handle: methods take and return plain data.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol


class Handle(Protocol):
    """Sends calls to one worker, which runs them one after the other in the order they were sent."""

    def submit(self, method: str, *args: Any) -> Future[Any]:
        """Start `worker.method(*args)`; the future holds its result or its exception."""


class LocalHandle:
    """A worker in this process, called at once."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def submit(self, method: str, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(getattr(self.worker, method)(*args))
        except Exception as error:  # noqa: BLE001 - raised by result(), as it is for a worker elsewhere
            future.set_exception(error)
        return future
