"""A handle is the address of one worker: `submit` names a method and returns a future.

LocalHandle answers in this process; workbench.parallel.processes has the one for another process.
Methods take and return plain data, so a trainer cannot tell the difference.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Handle(Protocol):
    """Sends calls to one worker, which runs them one after the other in the order they were sent."""

    def submit(self, method: str, *args: Any) -> Future[Any]:
        """Start `worker.method(*args)`; the future holds its result or its exception."""

    def model(self) -> PreTrainedModel:
        """The worker's model with its present weights: itself, or a copy where it lives elsewhere."""

    def close(self) -> None:
        """End the worker; safe to call again."""


class WorkerDiedError(RuntimeError):
    """A worker's process ended on its own; the message names worker, device, cause and its last lines."""


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

    def model(self) -> PreTrainedModel:
        model: PreTrainedModel = self.worker.model
        return model

    def close(self) -> None:
        """Nothing to end: the worker goes with its last user."""
