"""The queue: a run waits for the locks of its devices, first come, first served.

Locks are flock()s on small files, which the kernel lets go when their last holder dies, so that none is ever stale. A
trainer inherits its supervisor's: a device counts as taken as long as either lives. Tickets say who waits since when; a
ticket whose process is gone is passed over and removed. The files lie in a folder per machine, since devices belong to
one; a folder on a network drive that cannot lock is an OSError, not a silent race.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pydantic

from workbench.runs.processes import Identity

LOCKS_VARIABLE = "WORKBENCH_LOCKS"
"""Environment variable: one folder of locks for several workspaces that share a machine's devices."""


@dataclass(frozen=True)
class Need:
    """One device that a run needs. name: what the file is called; slots: how many runs may share the device."""

    device: str
    name: str
    slots: int = 1


@dataclass(frozen=True)
class Ticket:
    """A waiting run. since: seconds since the epoch; names: the locks it needs."""

    run: str
    since: float
    names: tuple[str, ...]
    owner: Identity

    @classmethod
    def of(cls, run: str, since: float, needs: Sequence[Need], owner: Identity) -> Ticket:
        return cls(run, since, tuple(need.name for need in needs), owner)


class Claim:
    """The locks a run holds, one open file per device; children that inherit the files hold them, too."""

    def __init__(self, files: Sequence[int]) -> None:
        self.files = tuple(files)

    def release(self) -> None:
        """Let go, as far as this process is concerned."""
        for file in self.files:
            os.close(file)
        self.files = ()


def lock_folder(root: Path) -> Path:
    """Where this machine's locks of the workspace in `root` are."""
    folder = Path(os.environ.get(LOCKS_VARIABLE) or root / "locks").expanduser()
    return folder / (re.sub(r"[^\w.-]", "-", platform.node()) or "machine")


@contextlib.contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """One process (or thread) at a time; the others wait. OSError when the file's folder is gone."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def try_lock(file: Path) -> int | None:
    """The locked open file, None when somebody else has it; close it to let go."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        os.close(handle)
        raise


class DeviceQueue:
    """One run's place in the queue for its devices. In a `with` block the place is given up at the end.

    A launcher joins in the name of the supervisor that it starts, so that runs wait in the order in which they were
    launched.
    """

    def __init__(self, folder: Path, needs: Sequence[Need], ticket: Ticket) -> None:
        self.folder, self.needs, self.ticket = folder, tuple(needs), ticket
        self.waits_for: tuple[str, ...] = ()
        """Why the last try failed, for people: "cuda:0 (run x)"."""

    def join(self) -> None:
        """Take the place; doing so again changes nothing."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        draft.write_bytes(TICKET.dump_json(self.ticket))
        draft.rename(self._file)

    def leave(self) -> None:
        """Give the place up."""
        self._file.unlink(missing_ok=True)

    def __enter__(self) -> DeviceQueue:
        self.join()
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    @property
    def _file(self) -> Path:
        return self.folder / "queue" / f"{self.ticket.since:017.6f}-{self.ticket.run}.json"

    def try_take(self) -> Claim | None:
        """All devices at once, or none of them: nobody holds one while waiting for another."""
        with exclusive(self.folder / "queue.lock"):
            older = waiting(self.folder)
            older = older[: next((i for i, ticket in enumerate(older) if ticket.run == self.ticket.run), len(older))]
            files: list[int] = []
            refused = []
            for need in self.needs:
                file = self._take_one(need, sum(need.name in ticket.names for ticket in older))
                files += [] if file is None else [file]
                refused += [f"{need.device}{self._holders(need, older)}"] if file is None else []
            self.waits_for = tuple(refused)
            claim = Claim(files)
            if refused:
                claim.release()
                return None
            for file in files:
                os.truncate(file, 0)
                os.pwrite(file, self.ticket.run.encode(), 0)
            return claim

    def _take_one(self, need: Need, ahead: int) -> int | None:
        """A free slot that is not spoken for by the `ahead` runs that came before."""
        free = [file for slot in range(need.slots) if (file := try_lock(self._slot(need, slot))) is not None]
        chosen = free[-1] if len(free) > ahead else None
        for file in free:
            if file != chosen:
                os.close(file)
        return chosen

    def _slot(self, need: Need, slot: int) -> Path:
        return self.folder / f"{need.name}.{slot}.lock"

    def _holders(self, need: Need, older: Sequence[Ticket]) -> str:
        """Who stands before this run, as far as the files say."""
        ahead = [ticket.run for ticket in older if need.name in ticket.names]
        slots = [self._slot(need, slot) for slot in range(need.slots)]
        names = [slot.read_text(encoding="utf-8", errors="replace") for slot in slots] + ahead
        return f" ({', '.join(dict.fromkeys(filter(None, names)))})"


def waiting(folder: Path) -> list[Ticket]:
    """Who waits, the longest first. Tickets of processes that are gone are removed."""
    found = []
    for file in sorted((folder / "queue").glob("*.json")):
        try:
            ticket = TICKET.validate_json(file.read_bytes())
        except FileNotFoundError:
            continue
        except pydantic.ValidationError:
            file.unlink(missing_ok=True)
            continue
        if ticket.owner.alive():
            found.append(ticket)
        else:
            file.unlink(missing_ok=True)
    return found


TICKET = pydantic.TypeAdapter(Ticket)
