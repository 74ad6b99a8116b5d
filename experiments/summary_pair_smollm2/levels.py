"""What the joint responses of a run measured and which levels of the writing reward they earned, per post.

python experiments/summary_pair_smollm2/levels.py RUN
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import typer

from workbench.tasks.summary_pair import SUMMARY_REWARD
from workbench.tracking.trace import read_completions, read_nodes


def main(run: Path) -> None:
    trace = run / "trace.db"
    nodes = read_nodes(trace, phase="train").set_index("node_id")
    texts = read_completions(trace, phase="train", columns=("node_id", "agent", "k", "text", "finished"))
    pairs = texts.pivot(index=["node_id", "k"], columns="agent", values="text")  # aligned: k with k
    table = pd.DataFrame([_measures(first, second) for first, second in zip(pairs[0], pairs[1])])
    table.insert(0, "item", nodes.loc[pairs.index.get_level_values("node_id"), "item"].to_numpy())
    print(table.groupby("item").mean().round(2).to_string(), "\n")
    half = table["item"] >= (table["item"].max() + 1) / 2
    print(table.drop(columns="item").groupby(half.map({False: "first half", True: "second half"})).mean().round(2).T)
    print("cut at the limit:", (1 - texts.groupby("agent")["finished"].mean()).round(2).to_dict())


def _measures(first: str, second: str) -> dict[str, float]:
    score = SUMMARY_REWARD.score(first, second)
    levels = {f"level {number}": level or 0.0 for number, level in enumerate(score.levels, start=1)}
    passed = {f"past {number}": float(score.levels[number] is not None) for number in range(1, len(score.levels))}
    words = {"words 1": float(score.words[0]), "words 2": float(score.words[1])}
    return {**words, "length ratio": score.length_ratio or 0.0, **levels, **passed, "reward": score.reward}


if __name__ == "__main__":
    typer.run(main)
