"""The main program of a worker's process: build the worker, then answer calls until the socket closes.

Signals that a terminal or a supervisor sends to the whole group are the trainer's to act on: it saves
a checkpoint, for which it needs its workers alive.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

from workbench.models.workers import build_worker, unpacked

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PARENT_CHECK_SECONDS = 1.0


def main(descriptor: int) -> None:
    """Serve the socket that was inherited as this file descriptor."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked by whoever started this process
    threading.Thread(target=_end_with_trainer, args=(descriptor, os.getppid()), daemon=True).start()
    stream = socket.socket(fileno=descriptor).makefile("rwb")
    try:
        name, plan, threads = pickle.loads(receive(stream))
        torch.set_num_threads(threads)
        worker = _answer(stream, lambda: build_worker(unpacked(name, lambda: pickle.loads(plan))), keep=True)
        while worker is not None:
            method, args = pickle.loads(receive(stream))
            _answer(stream, lambda: getattr(worker, method)(*args))  # noqa: B023 - called at once
    except (EOFError, ConnectionError):
        return  # the trainer closed the socket, or is gone


def send(stream: Any, message: Any) -> None:
    """Write one message. Pickled twice, so that one whose content cannot be read is still read to its end."""
    stream.write(pickle.dumps(pickle.dumps(message)))
    stream.flush()


def receive(stream: Any) -> bytes:
    """The next message, still pickled; EOFError when the other side is gone."""
    packed: bytes = pickle.load(stream)
    return packed


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
    send(stream, (None if keep else value, error, said))
    return value


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note; one that cannot travel as a RuntimeError of the same words."""
    note = "In the worker's process:\n" + "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does when pickled, it cannot travel
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(note)
    return error


def _end_with_trainer(descriptor: int, parent: int) -> None:
    """A long computation does not look at the socket, and nobody needs its answer once the trainer is gone."""
    watch = select.poll()
    watch.register(descriptor, 0)  # a hang-up is always reported
    while not watch.poll(1000 * PARENT_CHECK_SECONDS):
        if os.getppid() != parent:  # killed, but a process that it forked holds the socket open
            break
    os._exit(1)
