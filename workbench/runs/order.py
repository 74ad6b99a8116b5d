"""What a launcher tells a supervisor, on its command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.runs.locks import DeviceQueue, Need, Ticket, lock_folder
from workbench.runs.processes import Identity
from workbench.runs.supervision import MODES
from workbench.runs.workspace import RunFolder

TRAINER = "workbench.runs.trainer"


@dataclass(frozen=True)
class Order:
    """What to do, as the launcher said it. since: when the run was queued, in seconds since the epoch."""

    run: RunFolder
    mode: str
    mark: str
    since: float
    needs: tuple[Need, ...] = ()
    overrides: tuple[str, ...] = ()
    trainer: str = TRAINER

    def place(self, owner: Identity) -> DeviceQueue:
        """The run's place in the queue, in the name of a process."""
        folder = lock_folder(self.run.path.parents[1])
        return DeviceQueue(folder, self.needs, Ticket.of(self.run.id, self.since, self.needs, owner))

    def command(self) -> list[str]:
        """The command line of the supervisor that carries it out."""
        needs = [f"--need={need.device}={need.name}={need.slots}" for need in self.needs]
        changes = [f"--set={change}" for change in self.overrides]
        fixed = [f"--mark={self.mark}", f"--since={self.since!r}", f"--trainer={self.trainer}"]
        module = "workbench.runs.supervisor"
        return [sys.executable, "-u", "-m", module, str(self.run.path), self.mode, *fixed, *needs, *changes]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Order:
        """The inverse of `command`, from the run folder on."""
        parser = argparse.ArgumentParser(prog="workbench.runs.supervisor")
        parser.add_argument("run", type=lambda text: RunFolder(Path(text)))
        parser.add_argument("mode", choices=MODES)
        parser.add_argument("--mark", required=True)
        parser.add_argument("--since", type=float, required=True)
        parser.add_argument("--trainer", required=True)
        parser.add_argument("--need", dest="needs", action="append", default=[], type=_need)
        parser.add_argument("--set", dest="overrides", action="append", default=[])
        given = parser.parse_args(arguments)
        return cls(**{**vars(given), "needs": tuple(given.needs), "overrides": tuple(given.overrides)})


def _need(text: str) -> Need:
    device, name, slots = text.rsplit("=", 2)  # the device may be any text until the trainer checks it
    return Need(device, name, int(slots))
