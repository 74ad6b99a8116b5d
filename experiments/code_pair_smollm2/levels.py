"""Which levels of the code reward the joint responses of a run reached, per epoch, as shares of all of them.

python experiments/code_pair_smollm2/levels.py RUN
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import typer
from short_problems import TASK

from workbench.tasks.code_pair import CodePair
from workbench.tasks.code_reward import Assessment
from workbench.tracking.trace import read_completions, read_nodes


def main(run: Path) -> None:
    trace = run / "trace.db"
    nodes = read_nodes(trace, phase="train").set_index("node_id")
    texts = read_completions(trace, phase="train", columns=("node_id", "agent", "k", "text", "finished"))
    pairs = texts.pivot(index=["node_id", "k"], columns="agent", values="text")  # aligned: k with k
    owners = nodes.loc[pairs.index.get_level_values("node_id")]
    items = [TASK.train_items()[index] for index in owners["item"]]
    found = CodePair().assess(list(zip(pairs[0], pairs[1])), items)
    table = pd.DataFrame([_levels(assessment) for assessment in found])
    table["epoch"] = owners["epoch"].to_numpy()
    table["entry point"] = [item["entry_point"] for item in items]
    for by in ("epoch", "entry point"):
        print(table.groupby(by, sort=False).mean(numeric_only=True).round(2).to_string(), "\n")
    print(f"{len(table)} joint responses; cut at the limit: {1 - texts['finished'].mean():.2f} of the texts")


def _levels(assessment: Assessment) -> dict[str, float]:
    found, verdict = assessment.structure, assessment.verdict
    passed = verdict.fraction if verdict else 0.0
    return {
        "aux returns": found.aux_returns,
        "main returns": found.main_returns,
        "compile": verdict is not None,
        "tests passed": passed,
        "all passed": passed == 1.0,
        "aux called": found.aux_defined and found.calls_aux,
        "reward": assessment.reward,
    }


if __name__ == "__main__":
    typer.run(main)
