"""What watches a training process from inside: status file with heartbeat, progress display, stop signals.

The trainer reports phases and progress here and asks whether to stop; it knows nothing of files,
terminals or signals.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

import psutil

from workbench.runs.processes import Identity, descendants, memory_used
from workbench.runs.workspace import RUNNING, RunFolder, RunStatus, WorkspaceError, replace_text

log = logging.getLogger(__name__)
HEARTBEAT_SECONDS = 2.0
MEMORY_SECONDS = 10.0  # between two looks at the memory in use
LINE_SECONDS = 30.0  # between two progress lines where there is no terminal
REWARD_KEY = "turn_1/reward_mean"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # of getrusage


class StatusKeeper:
    """Owns a run's status.json while its process trains; a daemon thread writes it as heartbeat."""

    def __init__(self, run: RunFolder) -> None:
        before = run.read_status()
        now = time.time()
        self.run = run
        self._former = _text(run)
        self.status = RunStatus(
            state=RUNNING,
            phase="load",
            step=before.step,
            total=before.total,
            reward=before.reward,
            pid=os.getpid(),
            process_started=psutil.Process().create_time(),
            started=before.started or now,
            heartbeat=now,
        )
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def begin(self) -> None:
        """Write the first status; an unwritable folder is an OSError here, before any work is done."""
        self.run.write_status(self.status)
        self._thread.start()

    def update(self, **changes: Any) -> None:
        """Remember changes; the next heartbeat writes them."""
        with self._lock:
            self.status = replace(self.status, **changes)

    def note(self, **changes: Any) -> None:
        """Like update, but written now; a disk that refuses is logged."""
        self.update(**changes)
        self._write()

    def withdraw(self) -> None:
        """Stop the heartbeat and put back the status.json that was there before; a disk that refuses is logged."""
        self._stop()
        try:
            if self._former is None:
                self.run.status_file.unlink(missing_ok=True)
            else:
                replace_text(self.run.status_file, self._former)
        except OSError as error:
            log.warning("Cannot write %s: %s.", self.run.status_file, error.strerror)

    def finish(self, state: str, error: str | None = None) -> RunStatus:
        """Stop the heartbeat and write the final state, if need be over the old one. Never raises."""
        self._stop()
        self.update(state=state, phase="", error=error, ended=time.time(), heartbeat=time.time())
        if not self._write():
            with contextlib.suppress(OSError):  # reported by _write
                self.run.overwrite_status(self.status)
        return self.status

    def _stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            self.update(heartbeat=time.time())
            self._write()

    def _write(self) -> bool:
        try:
            with self._writing:  # one draft file per process
                self.run.write_status(self.status)
        except OSError as error:  # the training itself may still be able to save; it decides
            log.warning("Cannot write %s: %s.", self.run.status_file, error.strerror)
            return False
        return True


def _text(run: RunFolder) -> str | None:
    """What status.json holds, None when it cannot be read."""
    try:
        return run.status_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


class Display(Protocol):
    """Shows progress to a person."""

    def show(self, step: int, total: int, phase: str, reward: float | None) -> None:
        """`step` of `total` items are done."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class TerminalBar:
    """A progress bar with the time left, on a terminal."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self.bar = progress.Progress(
            progress.TextColumn("{task.description:>8}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[reward]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(elapsed_when_finished=False),
            console=Console(stderr=True),
            refresh_per_second=2,
        )
        self.task = self.bar.add_task("load", total=None, reward="")
        self.bar.start()

    def show(self, step: int, total: int, phase: str, reward: float | None) -> None:
        text = "" if reward is None else f"reward {reward:.3f}"
        self.bar.update(self.task, description=phase, completed=step, total=total or None, reward=text)

    def close(self) -> None:
        self.bar.stop()


class PlainLines:
    """A line now and then, for pipes and log files."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None  # step and time of the first report
        self.last_line = 0.0
        self.last_step = 0

    def show(self, step: int, total: int, phase: str, reward: float | None) -> None:
        now = time.monotonic()
        self.first = self.first or (step, now)
        due = step == total or now - self.last_line >= LINE_SECONDS
        if step <= max(self.first[0], self.last_step) or not due:
            return
        self.last_line, self.last_step = now, step
        rate = (now - self.first[1]) / (step - self.first[0])
        shown = "" if reward is None else f", reward {reward:.3f}"
        left = rate * (total - step)
        print(f"item {step}/{total} ({step / total:.0%}){shown}, {left:.0f} s left", file=sys.stderr, flush=True)

    def close(self) -> None: ...


def display_for_stderr() -> Display:
    """A bar on a terminal, plain lines elsewhere."""
    return TerminalBar() if sys.stderr.isatty() else PlainLines()


class StopSignals:
    """While entered: the first SIGINT, SIGTERM or SIGHUP asks for a stop, the second interrupts at once.

    file: where it exists, somebody asks for a stop that way, and the first signal is already the second asking.
    Only the main thread can receive signals; elsewhere nothing is installed.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._signalled = False
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """True when this training should save and leave."""
        return self._signalled or (self.file is not None and self.file.exists())

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # A signal that is ignored stays ignored: that is how nohup keeps a training alive.
            wanted = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._receive) for number in wanted}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self._signalled = True
        log.warning("Stopping after this item and saving a checkpoint; press Ctrl-C again to stop at once.")


class RunMonitor:
    """The trainer's Monitor: passes what it hears to the status file and the display."""

    def __init__(self, keeper: StatusKeeper, display: Display, stop: StopSignals) -> None:
        self.keeper = keeper
        self.display = display
        self.stop = stop
        self._look_at = 0.0  # when to look at the memory next

    def phase(self, name: str) -> None:
        self.keeper.update(phase=name)
        self._show()

    def progress(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        reward = metrics.get(REWARD_KEY, self.keeper.status.reward)
        self.keeper.update(step=step, total=total, reward=reward)
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + MEMORY_SECONDS
            self.keeper.update(memory=peak_memory(self.keeper.status.memory or {}))
        self._show()

    def stop_requested(self) -> bool:
        run = self.keeper.run
        if not run.spec_file.exists():  # saving would make a folder that is no run
            raise WorkspaceError(f"The folder of run {run.id} was deleted while it trained ({run.path}).")
        return self.stop.requested

    def _show(self) -> None:
        status = self.keeper.status
        self.display.show(status.step, status.total, status.phase, status.reward)


def peak_memory(before: Mapping[str, int]) -> dict[str, int]:
    """The most bytes used so far per device, `before` included. "cpu": this process's peak and its workers' present
    resident memory; "cuda:0" and so on: what torch reserved in this process."""
    workers = memory_used(descendants(Identity.own()))
    used = {"cpu": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT + workers}
    torch = sys.modules.get("torch")  # a process without models must not load it
    if torch is not None and torch.cuda.is_initialized():
        used |= {f"cuda:{i}": torch.cuda.max_memory_reserved(i) for i in range(torch.cuda.device_count())}
    return {device: max(before.get(device, 0), used.get(device, 0)) for device in {**before, **used}}
