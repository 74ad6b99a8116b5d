"""Workers in processes of their own, one per model, each on its device.

A worker's process is a fresh Python (nothing is forked, so CUDA is safe and a script needs no
`__main__` guard) that reads calls from a socket and ends when the socket closes. Token ids, texts
and numbers travel; a model that was loaded by the user goes once, as a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import torch

from workbench.models.loading import ModelError
from workbench.models.workers import WorkerPlan
from workbench.parallel.handles import WorkerDiedError
from workbench.parallel.worker import SIGNALS, receive, send

if TYPE_CHECKING:
    from transformers import PreTrainedModel

GRACE_SECONDS = 5.0  # for the system to clear away a process that is ending
LAST_BYTES = 2000  # of a dead worker's output in its error
LAST_LINES = 5
SIGNAL_NAMES = {number.value: number.name for number in signal.Signals}
PROGRAM = """
import sys
there = sys.argv[2:]
sys.path += there  # at the end: a random.py beside the user's script must not stand in for Python's own
from workbench.parallel.worker import main
sys.path[:] = there  # what can be imported there, such as a custom model class, can be here
main(int(sys.argv[1]))
"""
"""What a worker's process runs. Arguments: its end of the socket, then the trainer's sys.path."""

Call: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class ProcessHandle:
    """A worker in a process of its own, with `threads` CPU threads. Starting returns at once; see `ready`."""

    def __init__(self, plan: WorkerPlan, threads: int) -> None:
        self.name, self.device = plan.name, plan.device
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the worker lives
        self.process, ours = _start(self.output)
        self.stream = ours.makefile("rwb")
        self._end = weakref.finalize(self, _end, self.process)
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        weakref.finalize(self, self._calls.put, None).atexit = False
        threading.Thread(target=_run, args=(self._calls,), name=plan.name, daemon=True).start()
        self._started = self._later(self._begin, plan, threads)

    def ready(self) -> None:
        """Wait until the model is loaded; raises what loading it raised."""
        self._started.result()

    def submit(self, method: str, *args: Any) -> Future[Any]:
        # The worker stays in the folder in which it was started.
        return self._later(self._exchange, method, tuple(a.absolute() if isinstance(a, Path) else a for a in args))

    def model(self) -> PreTrainedModel:
        """A copy on the CPU."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.pt"
            self.submit("write_model", file).result()
            model: PreTrainedModel = torch.load(file, map_location="cpu", weights_only=False)
        return model

    def close(self) -> None:
        self._end()

    def _later(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, function, args))
        return future

    # --- in the handle's own thread -----------------------------------------------------------

    def _begin(self, plan: WorkerPlan, threads: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                if not isinstance(plan.source, (str, Path)):
                    file = Path(folder) / "source.pt"
                    torch.save(plan.source, file)
                    plan = dataclasses.replace(plan, source=file)
                packed = pickle.dumps(plan)
            except (pickle.PicklingError, AttributeError, TypeError) as error:  # all of them mean: not picklable
                raise ModelError(
                    f"{self.name} cannot be sent to a process of its own ({error}); use parallel_training='none'."
                ) from error
            self._exchange(self.name, packed, threads)

    def _exchange(self, *message: Any) -> Any:
        """Send, wait for the answer, warn what the worker warned, return or raise."""
        try:
            send(self.stream, message)
            answer = receive(self.stream)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self._loss() from None
        value, error, said = pickle.loads(answer)
        for text in said:
            warnings.warn(f"{self.name}: {text}", stacklevel=2)
        if error is not None:
            raise error
        return value

    def _loss(self) -> RuntimeError:
        """Why there is no answer."""
        if not self._end.alive:
            return RuntimeError(f"The process of {self.name} was closed; build another trainer.")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_SECONDS)
        said = _last_lines(self.output)
        return WorkerDiedError(
            f"{self.name} on {self.device} died: {exit_cause(self.process.poll())}; its last lines: {said}."
        )


def _run(calls: SimpleQueue[Call | None]) -> None:
    """One call after the other. Not an executor's thread, which a program that ends would wait for."""
    while call := calls.get():
        future, function, args = call
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - raised by result()
            future.set_exception(error)
        del call, future, function, args  # they keep the handle alive


def start_processes(plans: Sequence[WorkerPlan]) -> list[ProcessHandle]:
    """One process per plan, loading side by side; the CPU threads of this process are shared out among them."""
    threads = max(1, torch.get_num_threads() // len(plans))
    handles: list[ProcessHandle] = []
    try:
        for plan in plans:
            handles.append(ProcessHandle(plan, threads))
        for handle in handles:
            handle.ready()
    except BaseException:
        for handle in handles:
            handle.close()
        raise
    return handles


def exit_cause(code: int | None) -> str:
    """What a process's exit code means, in words."""
    if code is None:
        return "it stopped answering"
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, by someone or by the system for lack of memory"
    return f"killed by {SIGNAL_NAMES.get(-code, f'signal {-code}')}" if code < 0 else f"exit code {code}"


def _start(output: IO[bytes]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    path = [entry or os.getcwd() for entry in sys.path]
    with theirs, _held_back_signals():
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno()), *path],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return process, ours


@contextlib.contextmanager
def _held_back_signals() -> Iterator[None]:
    """A process inherits what is blocked: Ctrl-C must not end a worker that has not come to ignoring it yet."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nobody needs what it may be computing or loading, and all that it keeps is its trainer's to save before."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)


def _last_lines(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - LAST_BYTES))
    lines = output.read().decode(errors="replace").splitlines()
    return " | ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:]) or "none"
