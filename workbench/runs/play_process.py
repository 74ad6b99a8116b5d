"""Playing a run's team in a process of its own: `python -m workbench.runs.player FOLDER`.

A play is a folder `play/<id>` of the run. The app writes request.json and process.json there, the process answers with
record.json, each replaced as a whole, so that a reader who comes later or twice sees the same. The process ends with
its app, at its time limit, and when it is cancelled; what it had played by then stays. The app side imports no torch.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pydantic

from workbench.runs.environment import GPU_ORDER, QUIET
from workbench.runs.memory_plan import OPTIMIZER, PROGRAM, WEIGHTS, MemoryPlan
from workbench.runs.processes import MARK, Identity, end_all, family
from workbench.runs.workspace import RunFolder, replace_text

FOLDER = "play"
KEPT = 5  # plays of a run
MAX_SAMPLES = 16
MAX_PROMPT = 20_000  # characters
SECONDS = 600.0
"""Time limit of a play; the models load twice in it."""
START, TRAINED, UNTRAINED, END = "start", "trained", "untrained", "end"
STAGES = (START, TRAINED, UNTRAINED, END)
RUNNING, DONE, FAILED = "running", "done", "failed"
CANCELLED = "Cancelled."
VANISHED = (
    "The playing process was ended from outside, perhaps because memory ran out; play fewer samples, or wait until no "
    "training runs."
)


@dataclass(frozen=True)
class PlayRequest:
    """What to play: number `item` of the evaluation items (the training items if the task has none), or a prompt.

    checkpoint: its step, None = the final model (see `build.build_trained`). trained: False plays the initial team
    alone, for a run that has no weights yet.
    """

    item: Annotated[int, pydantic.Field(ge=0)] = 0
    prompt: Annotated[str, pydantic.StringConstraints(min_length=1, max_length=MAX_PROMPT)] | None = None
    samples: Annotated[int, pydantic.Field(ge=1, le=MAX_SAMPLES)] = 1
    checkpoint: int | None = None
    trained: bool = True
    seconds: Annotated[float, pydantic.Field(gt=0)] = SECONDS


@dataclass(frozen=True)
class PlayedText:
    """What one agent was shown and wrote. tokens: written, the terminator included; finished: it ended by itself."""

    prompt: str
    text: str
    tokens: int
    finished: bool


@dataclass(frozen=True)
class PlayedTurn:
    """texts: one per agent. reward: the agents' mean, None = unscored; agent_rewards: one per agent. enough: the reward
    is above the threshold at which an episode ends in training (here it goes on)."""

    turn: int
    texts: tuple[PlayedText, ...]
    reward: float | None
    agent_rewards: tuple[float | None, ...]
    enough: bool = False


Episode = tuple[PlayedTurn, ...]


@dataclass(frozen=True)
class PlayRecord:
    """record.json. stage: what the process is at, one of STAGES. trained, untrained: the episodes so far, one per
    sample, None before they are played. started, ended: seconds since the epoch. error: one sentence."""

    stage: str = START
    started: float = 0.0
    ended: float | None = None
    trained: tuple[Episode, ...] | None = None
    untrained: tuple[Episode, ...] | None = None
    error: str | None = None


@dataclass(frozen=True)
class Play:
    """A play as a reader sees it. state: running, done or failed; record.error says why it failed."""

    folder: Path
    request: PlayRequest
    state: str
    record: PlayRecord

    @property
    def id(self) -> str:
        return self.folder.name


@dataclass(frozen=True)
class Order:
    """request.json. parent: the app's process."""

    request: PlayRequest
    parent: Identity
    mark: str


# --- in the app -----------------------------------------------------------------------------------


def start_play(run: RunFolder, request: PlayRequest) -> Play:
    """Start playing and return at once. Ends a play of this run that is still going, and forgets old ones.

    Raises pydantic.ValidationError (a ValueError) for a request out of bounds, and OSError when the disk refuses.
    """
    REQUEST.validate_python(vars(request))
    for play in plays(run):
        cancel(play)
    for play in plays(run)[KEPT - 1 :]:
        shutil.rmtree(play.folder, ignore_errors=True)
    folder = run.path / FOLDER / f"{time.time_ns():020d}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    order = Order(request, Identity.own(), f"play:{folder}:{secrets.token_hex(8)}")
    replace_text(folder / "request.json", ORDER.dump_json(order).decode())
    try:
        _spawn(folder, order.mark)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    started = _read(folder)
    assert started is not None, "request.json was just written"
    return started


def plays(run: RunFolder) -> list[Play]:
    """The run's plays, newest first; folders that hold none are passed over."""
    folder = run.path / FOLDER
    if not folder.is_dir():
        return []
    found = (_read(path) for path in sorted(folder.iterdir(), reverse=True))
    return [play for play in found if play is not None]


def read_play(run: RunFolder, play_id: str) -> Play | None:
    """One play by its id, which is a name and not a path; None when there is no such play (any more)."""
    return next((play for play in plays(run) if play.id == play_id), None)


def cancel(play: Play) -> None:
    """End a play that is still going, with all that it started; what it had played stays. Waits for its end."""
    if play.state != RUNNING:
        return
    process, order = _process(play.folder), read_order(play.folder)
    end_all(family(process, order.mark if order is not None else ""), 0.0)
    left = _record(play.folder)
    if left.stage != END:
        write_record(play.folder, replace(left, stage=END, ended=time.time(), error=CANCELLED))


def _spawn(folder: Path, mark: str) -> None:
    environment = {**QUIET, **GPU_ORDER, **os.environ, MARK: mark}
    command = [sys.executable, "-u", "-m", "workbench.runs.player", str(folder)]
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
        )
    identity = Identity.of(process.pid)  # a child that is gone already is a zombie until it is waited for
    threading.Thread(target=process.wait, name=f"reaper of {process.pid}", daemon=True).start()
    replace_text(folder / "process.json", IDENTITY.dump_json(identity).decode())


def _read(folder: Path) -> Play | None:
    order = read_order(folder)
    if order is None:
        return None
    process = _process(folder)
    alive = process is not None and process.alive()
    record = _record(folder)  # after looking at the process, which writes it last of all
    if record.stage == END:
        return Play(folder, order.request, FAILED if record.error else DONE, record)
    if alive or (process is None and order.parent.alive()):
        return Play(folder, order.request, RUNNING, record)
    return Play(folder, order.request, FAILED, replace(record, stage=END, error=VANISHED))


def read_order(folder: Path) -> Order | None:
    """What a play's folder asks for; None when that cannot be read."""
    try:
        return ORDER.validate_json((folder / "request.json").read_bytes())
    except (OSError, pydantic.ValidationError):
        return None


def _process(folder: Path) -> Identity | None:
    try:
        return IDENTITY.validate_json((folder / "process.json").read_bytes())
    except (OSError, pydantic.ValidationError):
        return None


def _record(folder: Path) -> PlayRecord:
    try:
        return RECORD.validate_json((folder / "record.json").read_bytes())
    except FileNotFoundError:
        return PlayRecord()
    except (OSError, pydantic.ValidationError) as error:
        problem = f"record.json cannot be read ({' '.join(str(error).split())})."
        return PlayRecord(stage=END, error=problem)


def write_record(folder: Path, record: PlayRecord) -> None:
    """Replace record.json as a whole."""
    replace_text(folder / "record.json", RECORD.dump_json(record).decode())


# --- memory ---------------------------------------------------------------------------------------


def shortage(plan: MemoryPlan, restored: bool, busy: Sequence[str] = ()) -> str | None:
    """Why playing certainly does not fit, one sentence; None when it may. Counts what cannot be less: the program and
    the weights, and of a checkpoint (restored) the optimizers' states. busy: runs that train now."""
    kinds = (WEIGHTS, PROGRAM, OPTIMIZER) if restored else (WEIGHTS, PROGRAM)
    for device in plan.devices:
        needed = sum(part.bytes for part in device.parts if part.kind in kinds)
        if device.free is not None and needed > device.free:
            who = f" while {', '.join(busy)} trains; wait for its end, or stop it" if busy else "; free some first"
            return (
                f"Playing needs at least {needed / 2**30:.1f} GiB on {device.device}, where "
                f"{device.free / 2**30:.1f} GiB is free{who}."
            )
    return None


REQUEST = pydantic.TypeAdapter(PlayRequest)
ORDER = pydantic.TypeAdapter(Order)
IDENTITY = pydantic.TypeAdapter(Identity)
RECORD = pydantic.TypeAdapter(PlayRecord)
