"""Runs, episodes and checks as text for a terminal."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from workbench.config import TrainingConfig
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.types import Node, RolloutTree

if TYPE_CHECKING:
    from workbench.doctor import Check

COLOURS = {
    "queued": "blue",
    "running": "cyan",
    "finished": "green",
    "stopped": "yellow",
    "failed": "red",
    "lost": "red",
    "damaged": "red",
}
WIDTH_OF_A_PIPE = 200  # columns when nobody says how wide the output is


def console() -> Console:
    """Standard output; wide enough not to break ids when it is not a terminal."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=max(out.width, WIDTH_OF_A_PIPE))


def show_runs(workspace: Workspace) -> None:
    """A table of all runs; a damaged run is a row that says so."""
    found = workspace.runs()
    if not found:
        print(f"No runs in {workspace.root} yet; start one with: workbench train SPEC")
        return
    table = Table("run", "state", "algorithm", "task", "progress", "reward", "started", "note")
    for run in found:
        table.add_row(*_row(run))
    console().print(table)


def _row(run: RunFolder) -> list[str]:
    status = run.read_status()
    algorithm, task, problem = _what(run)
    colour = COLOURS.get(status.state, "default")
    return [
        escape(run.id),
        f"[{colour}]{status.state}[/]",
        escape(algorithm),
        escape(task),
        _progress(status),
        "" if status.reward is None else f"{status.reward:.3f}",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(status.started)) if status.started else "",
        escape(status.error or problem),
    ]


def _what(run: RunFolder) -> tuple[str, str, str]:
    """(algorithm, task, problem) of a run's spec, whatever state the file is in."""
    try:
        spec: RunSpec = run.spec()
    except (ValueError, OSError) as error:
        return "?", "?", " ".join(str(error).split())
    return spec.algorithm, spec.task.rsplit("/", 1)[-1], ""


def _progress(status: RunStatus) -> str:
    return f"{status.step}/{status.total} ({status.step / status.total:.0%})" if status.total else ""


def show_episodes(trees: Sequence[RolloutTree]) -> None:
    """Each episode turn by turn: every agent's prompt and text, then the reward."""
    out = console()
    for number, tree in enumerate(trees, start=1):
        if len(trees) > 1:
            out.rule(f"sample {number} of {len(trees)}")
        for node in tree.nodes:
            _show_node(out, node)


def _show_node(out: Console, node: Node) -> None:
    for agent, completions in enumerate(node.completions):
        completion = completions[0]
        cut = "" if completion.finished else " [dim](cut at max_new_tokens)[/]"
        out.print(f"[bold]turn {node.turn}, agent {agent}[/] is shown:", style="cyan")
        out.print(completion.prompt, markup=False)
        out.print(f"[bold]turn {node.turn}, agent {agent}[/] writes:{cut}", style="green")
        out.print(completion.text, markup=False)
    reward = node.rewards[0]
    out.print(f"[bold]reward {'none (unscored)' if reward is None else f'{reward:.4f}'}[/]")


def show_config(config: type[TrainingConfig]) -> None:
    """A row per field of a configuration, from the fields' own metadata."""
    table = Table("field", "default", "allowed", "meaning", title=(config.__doc__ or "").partition("\n")[0])
    for field in dataclasses.fields(config):
        table.add_row(field.name, escape(repr(field.default)), escape(_allowed(field.metadata)), field.metadata["help"])
    console().print(table)


def _allowed(rules: Mapping[str, Any]) -> str:
    if "choices" in rules:
        return ", ".join(map(str, rules["choices"]))
    signs = {"ge": ">=", "gt": ">", "le": "<="}
    return " and ".join(f"{sign} {rules[name]}" for name, sign in signs.items() if name in rules)


def show_checks(checks: Sequence[Check]) -> bool:
    """A line per check; True when none failed."""
    out = console()
    marks = {"ok": "[green]ok  [/]", "note": "[yellow]note[/]", "fail": "[red]FAIL[/]"}
    for check in checks:
        out.print(f"{marks[check.result]} {check.name}: {escape(check.detail)}")
    return all(check.result != "fail" for check in checks)
