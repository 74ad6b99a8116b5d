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
import warnings
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch

from workbench.models.workers import WorkerPlan
from workbench.parallel.handles import WorkerDiedError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

GRACE_SECONDS = 5.0  # for a worker to end after its socket closed, before it is killed
LAST_BYTES = 2000  # of a dead worker's output in its error
LAST_LINES = 5


class ProcessHandle:
    """A worker in a process of its own, with `threads` CPU threads. Starting returns at once; see `ready`."""

    def __init__(self, plan: WorkerPlan, threads: int) -> None:
        self.name, self.device = plan.name, plan.device
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the worker lives
        self.process, ours = _start(self.output)
        self.stream = ours.makefile("rwb")
        self._close = weakref.finalize(self, _end, self.process, ours)
        self._calls = ThreadPoolExecutor(1, thread_name_prefix=plan.name)
        self._started = self._calls.submit(self._begin, plan, threads)

    def ready(self) -> None:
        """Wait until the model is loaded; raises what loading it raised."""
        self._started.result()

    def submit(self, method: str, *args: Any) -> Future[Any]:
        return self._calls.submit(self._call, method, args)

    def model(self) -> PreTrainedModel:
        """A copy on the CPU."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.pt"
            self.submit("write_model", file).result()
            model: PreTrainedModel = torch.load(file, map_location="cpu", weights_only=False)
        return model

    def close(self) -> None:
        self._close()
        self._calls.shutdown(wait=True)

    # --- in the handle's own thread -----------------------------------------------------------

    def _begin(self, plan: WorkerPlan, threads: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            if not isinstance(plan.source, (str, Path)):
                file = Path(folder) / "source.pt"
                torch.save(plan.source, file)
                plan = dataclasses.replace(plan, source=file)
            self._exchange((plan, threads))

    def _call(self, method: str, args: tuple[Any, ...]) -> Any:
        return self._exchange((method, args))

    def _exchange(self, message: Any) -> Any:
        """Send, wait for the answer, warn what the worker warned, return or raise."""
        try:
            self.stream.write(pickle.dumps(message))
            self.stream.flush()
            value, error, said = pickle.load(self.stream)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            raise WorkerDiedError(self._obituary()) from None
        for text in said:
            warnings.warn(f"{self.name}: {text}", stacklevel=2)
        if error is not None:
            raise error
        return value

    def _obituary(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_SECONDS)
        said = _last_lines(self.output)
        return f"{self.name} on {self.device} died: {exit_cause(self.process.poll())}; its last lines: {said}."


def start_processes(plans: Sequence[WorkerPlan]) -> list[ProcessHandle]:
    """One process per plan, loading side by side; the CPU threads of this process are shared out among them."""
    threads = max(1, torch.get_num_threads() // len(plans))
    handles = [ProcessHandle(plan, threads) for plan in plans]
    try:
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
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _start(output: IO[bytes]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "workbench.parallel.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # What can be imported here, such as a custom model class beside the user's script, can be there.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
    return process, ours


def _end(process: subprocess.Popen[bytes], ours: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the worker is gone already
        ours.shutdown(socket.SHUT_RDWR)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_lines(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - LAST_BYTES))
    lines = output.read().decode(errors="replace").splitlines()
    return " | ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:]) or "none"
