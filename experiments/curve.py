"""Draw a metric of one or several runs of one spec as a picture for an experiment's README, and print its tenths.

python experiments/curve.py OUT.png RUN [RUN ...] [--key turn_1/reward_mean]
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import typer

from workbench.tracking.trace import read_metrics


def main(
    out: Path, runs: list[Path], key: Annotated[str, typer.Option()] = "turn_1/reward_mean", smooth: int = 8
) -> None:
    figure, axes = plt.subplots(figsize=(7, 3.2), dpi=110)
    for run in runs:
        table = read_metrics(run / "trace.db", keys=[key])
        (line,) = axes.plot(
            table.step, table.value.rolling(smooth, min_periods=1).mean(), label=run.name.split("-2")[0]
        )
        axes.plot(table.step, table.value, color=line.get_color(), alpha=0.2, linewidth=0.8)
        size = len(table) // 10
        tenths = [float(table.value[i * size : (i + 1) * size].mean()) for i in range(10)]
        print(run.name, f"{len(table)} points, tenths:", " ".join(f"{value:.2f}" for value in tenths))
    axes.set_xlabel("env_step (joint rewards evaluated)")
    axes.set_ylabel(key)
    axes.set_title(f"{key}, mean of {smooth} log points (raw behind)", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out)


if __name__ == "__main__":
    typer.run(main)
