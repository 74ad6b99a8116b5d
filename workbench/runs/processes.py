"""Which process is which: a pid together with its start time, and the processes that belong to a run.

A pid alone is used again by other programs, and a dead child that nobody waited for still "exists". Nothing here
signals a process that was not identified by its start time or by a mark that only a run's own processes carry.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import pydantic

CLOCK_TOLERANCE = 2.0  # seconds between two readings of one process's start time
FIRST_PID = 2  # 0 and negative numbers mean groups to kill(), 1 is the machine's own
MARK = "WORKBENCH_RUN_MARK"
"""Environment variable that a trainer's processes inherit; its value is new for each start of a run."""
POLL_SECONDS = 0.05
Pid = Annotated[int, pydantic.Field(ge=FIRST_PID, le=2**31 - 1)]


@dataclass(frozen=True)
class Identity:
    """A process: its pid, its start in seconds since the epoch, and the boot of the machine it ran in ("" = any)."""

    pid: Pid
    started: float
    boot: str = ""

    @classmethod
    def of(cls, pid: int) -> Identity:
        """Raises psutil.NoSuchProcess for a pid that nobody has."""
        return cls(pid, psutil.Process(pid).create_time(), boot_id())

    @classmethod
    def own(cls) -> Identity:
        """This very process."""
        return cls.of(os.getpid())

    def process(self) -> psutil.Process | None:
        """The living process, None when it is gone, a zombie, or its pid belongs to another one by now."""
        if self.pid < FIRST_PID or (self.boot and self.boot != boot_id()):
            return None
        try:
            process = psutil.Process(self.pid)
            same = self.started_at(process.create_time())
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None

    def started_at(self, when: float) -> bool:
        """True when a reading of the start time means this process: two readings may differ a little."""
        return abs(when - self.started) < CLOCK_TOLERANCE

    def alive(self) -> bool:
        return self.process() is not None

    def send(self, number: signal.Signals) -> bool:
        """Signal it if it lives; False when there was nobody to signal."""
        process = self.process()
        if process is None or self.pid == os.getpid():
            return False
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
            return True
        return False


@functools.cache
def boot_id() -> str:
    """Names the machine's present boot, "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def descendants(root: Identity) -> list[Identity]:
    """The living children of a process, their children and so on."""
    process = root.process()
    if process is None:
        return []
    with contextlib.suppress(psutil.Error):
        return _living(process.children(recursive=True))
    return []


def marked(mark: str) -> list[Identity]:
    """The living processes that inherited a run's mark, whoever their parent is now. Reads every process's environment
    that this user may read."""
    if not mark:
        return []
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return _living(found)


def family(root: Identity | None, mark: str) -> list[Identity]:
    """Everything that belongs to a trainer: itself, its descendants, and what carries its mark."""
    own = [root, *descendants(root)] if root is not None and root.alive() else []
    return list({member.pid: member for member in [*own, *marked(mark)]}.values())


def signal_group(leader: Identity, number: signal.Signals) -> None:
    """Signal the process group that `leader` leads, while it lives or is a zombie nobody has reaped: until then the
    group's number cannot pass to anyone else. A process that leads no group is signalled alone."""
    with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
        if leader.pid < FIRST_PID or not leader.started_at(psutil.Process(leader.pid).create_time()):
            return
        if os.getpgid(leader.pid) == leader.pid != os.getpgid(0):
            os.killpg(leader.pid, number)
        else:
            leader.send(number)


def end_all(members: Iterable[Identity], grace: float) -> list[Identity]:
    """Wait `grace` seconds for the members to leave by themselves, then kill them; returns those that had to be."""
    waiting = wait_for(members, grace)
    for member in waiting:
        member.send(signal.SIGKILL)
    wait_for(waiting, grace=10.0)  # a kill is not instant: the kernel frees gigabytes first
    return waiting


def wait_for(members: Iterable[Identity], grace: float) -> list[Identity]:
    """Those that still live after at most `grace` seconds."""
    waiting = [member for member in members if member.alive()]
    deadline = time.monotonic() + grace
    while waiting and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        waiting = [member for member in waiting if member.alive()]
    return waiting


def memory_used(members: Collection[Identity]) -> int:
    """Resident bytes of the living members together; memory they share counts several times."""
    total = 0
    for member in members:
        process = member.process()
        if process is not None:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def _living(processes: Iterable[psutil.Process]) -> list[Identity]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(Identity(process.pid, process.create_time(), boot_id()))
    return found
