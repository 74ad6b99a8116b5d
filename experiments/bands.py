"""Draw a sweep's metric with its range over seeds, and print each cell's area under the curve and end value.

The area is divided by the length of the curve, so that it is a mean reward. Only finished runs count.

python experiments/bands.py SWEEP.yaml OUT.png [--workspace .] [--key turn_1/reward_mean]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import typer

from workbench.insight.overlay import overlay
from workbench.insight.sweep import interval, value_of
from workbench.runs.sweep import SweepFolder
from workbench.runs.sweep_spec import Sweep, load_sweep
from workbench.runs.workspace import FINISHED, RunFolder, Workspace
from workbench.tracking.trace import read_metrics

GRID = 30  # stretches of env_step whose means are drawn
STYLES = ("-", "--", ":", "-.")  # lines that lie on each other must both be seen


def main(
    file: Path,
    out: Path,
    workspace: Annotated[Path, typer.Option("--workspace", "-w")] = Path("."),
    key: Annotated[str, typer.Option()] = "",
) -> None:
    sweep = load_sweep(file)
    cells = _cells(sweep, SweepFolder(Workspace(workspace), sweep).runs())
    metric = key or sweep.metric or "turn_1/reward_mean"
    _draw(cells, metric, out)
    last = min(_points(run, metric).step.max() for members in cells.values() for run in members)
    for cell, members in cells.items():
        points = [frame[frame.step <= last] for frame in (_points(run, metric) for run in members)]
        areas = [float(frame.value.mean()) for frame in points]
        ends = [value_of(frame, metric, None)[0] for frame in points]
        print(f"{cell}: n={len(members)}, env_step <= {last}; area {_shown(areas)}; last tenth {_shown(ends)}")


def _cells(sweep: Sweep, runs: dict[str, RunFolder]) -> dict[str, list[RunFolder]]:
    cells: dict[str, list[RunFolder]] = {}
    for member in sweep.members:
        if member.key in runs and runs[member.key].read_status().state == FINISHED:
            cells.setdefault(member.cell, []).append(runs[member.key])
    return cells


def _points(run: RunFolder, key: str) -> pd.DataFrame:
    return read_metrics(run.trace_file, keys=[key])


def _shown(values: Sequence[float]) -> str:
    mean, low, high = interval(values)
    return f"{mean:.3f} ({low:.3f} to {high:.3f}; {' '.join(f'{value:.3f}' for value in values)})"


def _draw(cells: dict[str, list[RunFolder]], key: str, out: Path) -> None:
    figure, axes = plt.subplots(figsize=(7.5, 3.6), dpi=110)
    for number, (cell, runs) in enumerate(cells.items()):
        band = overlay(runs, key, GRID).lines.groupby("step").value.agg(["mean", "min", "max"])
        (line,) = axes.plot(band.index, band["mean"], STYLES[number % len(STYLES)], label=cell)
        axes.fill_between(band.index, band["min"], band["max"], color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_xlabel("env_step (joint rewards evaluated)")
    axes.set_ylabel(key)
    count = max(map(len, cells.values()))
    axes.set_title(f"{key}: mean and range of {count} seeds", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out)


if __name__ == "__main__":
    typer.run(main)
