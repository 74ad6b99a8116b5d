"""What a run folder says of its supervisor, of a wish to stop, and of how the last process ended.

Three small files, each replaced as a whole: supervisor.json while a supervisor has the run, `stop` while someone wants
it stopped, exit.json after the end. This module starts and signals nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pydantic

from workbench.runs.processes import Identity

TRAIN, RESUME, ADOPT = "train", "resume", "adopt"
MODES = (TRAIN, RESUME, ADOPT)
SAVE, TERMINATE, KILL = "save", "terminate", "kill"
LEVELS = (SAVE, TERMINATE, KILL)
"""How hard to stop a run: save and leave after the present item, leave at once, or be killed."""


@dataclass(frozen=True)
class Supervision:
    """supervisor.json. supervisor: who has the run (for a moment its launcher). trainer: the training process once it
    was started. mode: train, resume, adopt. mark: what the trainer's processes carry in their environment. waits_for:
    what the queue says. leads_group: the trainer was started as the leader of a process group of its own. ready: the
    supervisor itself has written this, so it did start."""

    supervisor: Identity
    mode: str
    since: float
    trainer: Identity | None = None
    mark: str = ""
    devices: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    leads_group: bool = False
    ready: bool = False

    def dump(self) -> str:
        return SUPERVISION.dump_json(self, indent=2).decode()


@dataclass(frozen=True)
class Patience:
    """Seconds that each level waits before the next one takes over: to save, to leave after a signal."""

    save: float = 600.0  # the present item is finished first, and with large models that takes minutes
    terminate: float = 20.0


@dataclass(frozen=True)
class StopRequest:
    """The file `stop`. level: save, terminate or kill; asked: seconds since the epoch."""

    level: str = SAVE
    asked: float = 0.0
    patience: Patience = field(default_factory=Patience)

    def due(self, now: float) -> str:
        """The level to act on by now: the asked one first, the next ones when the patience is over."""
        elapsed = now - self.asked
        ends = {SAVE: self.patience.save, TERMINATE: self.patience.terminate}
        level = self.level
        while level in ends and elapsed >= ends[level]:
            elapsed -= ends[level]
            level = LEVELS[LEVELS.index(level) + 1]
        return level

    def dump(self) -> str:
        return STOP.dump_json(self).decode()


@dataclass(frozen=True)
class Exit:
    """exit.json: how a training process ended.

    code: its exit code, None when a signal ended it or when it was not this supervisor's child. signal: its number.
    reason: one sentence, None after a good end. peak_rss: bytes of the largest single process. log_tail: the last lines
    of the log. killed: how many processes it left behind, which were ended.
    """

    mode: str
    ended: float
    code: int | None = None
    signal: int | None = None
    reason: str | None = None
    peak_rss: int | None = None
    log_tail: tuple[str, ...] = ()
    killed: int = 0

    def dump(self) -> str:
        return EXIT.dump_json(self, indent=2).decode()


def read_supervision(file: Path) -> Supervision | None:
    """None when there is no such file, or nothing readable in it."""
    try:
        return SUPERVISION.validate_json(file.read_bytes())
    except (OSError, pydantic.ValidationError):
        return None


def read_stop(file: Path) -> StopRequest | None:
    """The wish to stop; an empty or unreadable file, such as `touch` makes, means save and leave."""
    try:
        text, asked = file.read_bytes(), file.stat().st_mtime
    except OSError:
        return None
    try:
        request = STOP.validate_json(text)
    except pydantic.ValidationError:
        return StopRequest(SAVE, asked)
    # A clock that was set back must not make the wait endless.
    return request if request.level in LEVELS and request.asked <= time.time() else StopRequest(SAVE, asked)


def read_exit(file: Path) -> Exit | None:
    """None when the run never ended under a supervisor, or the file is unreadable."""
    try:
        return EXIT.validate_json(file.read_bytes())
    except (OSError, pydantic.ValidationError):
        return None


SUPERVISION = pydantic.TypeAdapter(Supervision)
STOP = pydantic.TypeAdapter(StopRequest)
EXIT = pydantic.TypeAdapter(Exit)
