"""How a sweep advances, on a terminal as two progress bars, elsewhere as lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich import progress
from rich.console import Console
from rich.markup import escape

from workbench.runs.sweep import Watcher
from workbench.runs.sweep_spec import Member
from workbench.runs.workspace import FINISHED, RunFolder, RunStatus


class Lines:
    """A line when a run begins and when it ends."""

    def __init__(self, total: int, console: Console) -> None:
        self.total, self.console = total, console

    def begins(self, number: int, member: Member, run: RunFolder, how: str) -> None:
        self._print(f"{number}/{self.total} {member.key}: {how}, run {run.id}")

    def looks(self, status: RunStatus) -> None: ...

    def ends(self, number: int, member: Member, run: RunFolder, status: RunStatus) -> None:
        reward = "" if status.reward is None else f", reward {status.reward:.3f}"
        reason = f": {status.error}" if status.state != FINISHED and status.error else ""
        self._print(f"{number}/{self.total} {member.key}: {status.state}{reward}{reason}")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bars(Lines):
    """The same lines above a bar for the sweep and one for the present run."""

    def __init__(self, total: int, bars: progress.Progress) -> None:
        super().__init__(total, bars.console)
        self.bars = bars
        self.sweep = bars.add_task("sweep", total=total, note="")
        self.run = bars.add_task("run", total=None, note="", visible=False)

    def begins(self, number: int, member: Member, run: RunFolder, how: str) -> None:
        super().begins(number, member, run, how)
        self.bars.reset(self.run, total=None, description="run", note="", visible=True)
        self.bars.update(self.sweep, note=escape(member.key))

    def looks(self, status: RunStatus) -> None:
        reward = "" if status.reward is None else f"reward {status.reward:.3f}"
        phase = status.phase or status.state
        self.bars.update(self.run, description=phase, completed=status.step, total=status.total or None, note=reward)

    def ends(self, number: int, member: Member, run: RunFolder, status: RunStatus) -> None:
        super().ends(number, member, run, status)
        self.bars.update(self.run, visible=False)
        self.bars.update(self.sweep, advance=int(status.state == FINISHED))


@contextlib.contextmanager
def display(total: int) -> Iterator[Watcher]:
    """On stderr, so that stdout holds the results alone."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield Lines(total, console)
        return
    columns = (progress.TextColumn("{task.description:>8}"), progress.BarColumn(), progress.MofNCompleteColumn(),
               progress.TextColumn("{task.fields[note]}"), progress.TimeElapsedColumn())  # fmt: skip
    with progress.Progress(*columns, console=console, refresh_per_second=2) as bars:
        yield Bars(total, bars)
