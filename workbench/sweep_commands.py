"""`workbench sweep FILE`: run a grid of runs, go on with it, show where it stands, and print and save its results."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.reporting import DebugOption, reporting

if TYPE_CHECKING:
    import pandas as pd

    from workbench.insight.sweep import SweepResults
    from workbench.runs.sweep_spec import Sweep
    from workbench.runs.workspace import RunFolder

ENV_STEP, NONE = "env_step", "none"
CSV, JSON = ".csv", ".json"


def sweep(
    file: Annotated[Path, typer.Argument(help="YAML file of the sweep.")],
    status: Annotated[bool, typer.Option("--status", help="Show where the sweep stands and start nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again, too.")] = False,
    results: Annotated[
        Path | None, typer.Option("--results", help="Also write the results to this .json or .csv file.")
    ] = None,
    equal: Annotated[
        str, typer.Option("--equal", help="Cut all runs at the least last env_step (env_step), or none.")
    ] = ENV_STEP,
    workspace: Annotated[Path, typer.Option("--workspace", "-w", help="Folder that holds runs/ and mlflow.db.")] = Path(
        "."
    ),
    debug: DebugOption = False,
) -> None:
    """Run a grid of runs one after the other, or go on with it. Ctrl-C saves the present run; repeat to continue."""
    with reporting(debug):
        from workbench.runs.sweep_spec import load_sweep

        _check_options(results, equal)
        loaded = load_sweep(file)
        complete = True if status else _run(loaded, workspace, retry_failed)
        found, runs = _results(loaded, workspace, equal == ENV_STEP)
        if status:
            _show_runs(found, runs)
        _show(found)
        if results is not None:
            _write(results, loaded, found)
        if not complete:
            raise typer.Exit(1)


def _check_options(results: Path | None, equal: str) -> None:
    """Before hours of work, and not after them."""
    if equal not in (ENV_STEP, NONE):
        raise ValueError(f"--equal is {ENV_STEP} or {NONE}, got {equal!r}.")
    if results is not None and results.suffix not in (CSV, JSON):
        raise ValueError(f"--results needs a file that ends in {CSV} or {JSON}, got {str(results)!r}.")
    if results is not None and not results.absolute().parent.is_dir():
        raise ValueError(f"--results: there is no folder {results.absolute().parent}; create it first.")


def _run(loaded: Sweep, workspace: Path, retry_failed: bool) -> bool:
    from workbench.runs.sweep import has_work, run_sweep
    from workbench.runs.sweep_check import check
    from workbench.runs.workspace import Workspace
    from workbench.sweep_display import display

    for warning in dict.fromkeys(text for member in loaded.members for text in member.resolved.warnings):
        print(f"warning: {warning}", file=sys.stderr)
    if has_work(Workspace(workspace), loaded, retry_failed):
        check(loaded)
    try:
        with display(len(loaded.members)) as watcher:
            complete = run_sweep(Workspace(workspace), loaded, watcher, retry_failed)
    except KeyboardInterrupt:
        print(f"Stopped; continue with: workbench sweep {loaded.file}", file=sys.stderr)
        raise
    if not complete:
        print(f"Some runs are not finished; see: workbench sweep {loaded.file} --status", file=sys.stderr)
    return complete


def _results(loaded: Sweep, workspace: Path, equal: bool) -> tuple[SweepResults, Mapping[str, RunFolder]]:
    from workbench.insight.sweep import sweep_results
    from workbench.runs.sweep import SweepFolder
    from workbench.runs.workspace import Workspace

    runs = SweepFolder(Workspace(workspace), loaded).runs()
    return sweep_results(loaded, runs, equal), runs


# --- on the screen -------------------------------------------------------------------------------


def _show_runs(found: SweepResults, runs: Mapping[str, RunFolder]) -> None:
    """A line per run: what it is, how far it is, and what is wrong with it."""
    from rich.markup import escape
    from rich.table import Column, Table

    from workbench.terminal import COLOURS, console

    labels = _labels(found)
    progress = {run.id: run.read_status() for run in runs.values()}
    table = Table(*map(escape, labels), "seed", "state", "progress", Column("run", overflow="fold"), "note")
    for row in found.runs.to_dict("records"):
        state, known = row["state"], progress.get(row["run"])
        done = f"{known.step}/{known.total}" if known and known.total else ""
        shown = f"[{COLOURS.get(state, 'default')}]{state}[/]"
        cells = [escape(str(row[name])) for name in (*labels, "seed")]
        table.add_row(*cells, shown, done, escape(row["run"]), escape(row["problem"]))
    console().print(table)


def _show(found: SweepResults) -> None:
    """The table of cells, how its numbers came about, and what forbids to read it as a comparison."""
    from rich.markup import escape
    from rich.table import Table

    from workbench.terminal import console

    out = console()
    labels = _labels(found)
    per_cell = len(found.runs) // max(len(found.cells), 1)
    table = Table(*map(escape, labels), "mean", "95 % interval", "n", "env_step", "seconds",
                  title=escape(found.metric))  # fmt: skip
    for row in found.cells.to_dict("records"):
        table.add_row(*(escape(str(row[name])) for name in labels), *_numbers(row, per_cell))
    out.print(table)
    out.print(_caption(found), markup=False)
    for warning in found.warnings:
        out.print(f"warning: {warning}", markup=False, style="yellow")


def _labels(found: SweepResults) -> list[str]:
    """The columns that name a cell stand before its numbers."""
    return [str(name) for name in found.cells.columns[: list(found.cells.columns).index("n")]]


def _numbers(row: Mapping[Any, Any], per_cell: int) -> list[str]:
    def shown(value: float, form: str = ".4f") -> str:
        return "-" if math.isnan(value) else format(value, form)

    interval = "-" if math.isnan(row["low"]) else f"{shown(row['low'])} to {shown(row['high'])}"
    step = "-" if _missing(row["env_step"]) else str(row["env_step"])
    n = row["n"] if row["n"] == per_cell else f"{row['n']} of {per_cell}"
    return [shown(row["mean"]), interval, str(n), step, shown(row["wall_s"], ",.0f")]


def _missing(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value))


def _caption(found: SweepResults) -> str:
    cut = "all their points" if found.cut is None else f"points up to env_step {found.cut}, which every one reached"
    return f"Each finished run counts by the {found.rule}, of {cut}; n counts runs, one per seed."


# --- in a file -----------------------------------------------------------------------------------


def _write(file: Path, loaded: Sweep, found: SweepResults) -> None:
    """CSV: the cells. JSON: the runs, the cells, and how they came about; what is not known is null."""
    if file.suffix == CSV:
        text = found.cells.to_csv(index=False)
    else:
        data = {
            "sweep": loaded.name,
            "factor": loaded.factor,
            "metric": found.metric,
            "rule": found.rule,
            "cut_env_step": found.cut,
            "warnings": list(found.warnings),
            "cells": _records(found.cells),
            "runs": _records(found.runs),
        }
        text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")
    print(f"The results are in {file}.", file=sys.stderr)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows
