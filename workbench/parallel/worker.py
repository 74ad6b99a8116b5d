"""The main program of a worker's process: build the worker, then answer calls until the socket closes.

Signals that a terminal or a supervisor sends to the whole group are the trainer's to act on: it saves
a checkpoint, for which it needs its workers alive.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

from workbench.models.workers import build_worker

PARENT_CHECK_SECONDS = 1.0


def main(descriptor: int) -> None:
    """Serve the socket that was inherited as this file descriptor."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    stream = socket.socket(fileno=descriptor).makefile("rwb")
    try:
        plan, threads = pickle.load(stream)
        torch.set_num_threads(threads)
        worker = _answer(stream, lambda: build_worker(plan), keep=True)
        while worker is not None:
            method, args = pickle.load(stream)
            _answer(stream, lambda: getattr(worker, method)(*args))  # noqa: B023 - called at once
    except (EOFError, OSError):
        return  # the trainer closed the socket, or is gone


def _answer(stream: Any, call: Callable[[], Any], keep: bool = False) -> Any:
    """Send (value, error, warnings) of the call; keep: the value stays here and None is sent."""
    value, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            value = call()
        except Exception as raised:  # noqa: BLE001 - raised again where the call came from
            error = _portable(raised)
    said = [str(w.message) for w in caught if w.category is UserWarning]
    stream.write(pickle.dumps((None if keep else value, error, said)))
    stream.flush()
    return value


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note; one that cannot travel as a RuntimeError of the same words."""
    error.add_note("In the worker's process:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does when pickled, it cannot travel
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end_with_parent(parent: int) -> None:
    """A trainer that was killed cannot say goodbye, and a long computation does not look at the socket."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
