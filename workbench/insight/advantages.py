"""The advantages of one node, what the other baselines would have given, and how advantages look over a whole run.

What-ifs use the functions that train (workbench.estimators, through insight.lab) on the returns the trace stored.
Whole-run statistics read all training nodes of a short trace and evenly spread ones of a long one, and say how many.
Where each number comes from is explained in insight.why.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.estimators import BASELINES
from workbench.insight.lab import baseline_table
from workbench.insight.sampling import MAX_NODES, sample_nodes, with_completions
from workbench.insight.tree import SIGNAL
from workbench.tracking import trace

FLIP_NODES = 1000  # the baselines take one group at a time, so fewer nodes than elsewhere
COMPLETION = ["k", "text", "tokens", "finished", "logprob", "reward", "kl", "return", "baseline", "advantage",
              "normalized", "value", "target", "td_error"]  # fmt: skip
BINS = ["agent", "turn", "left", "right", "count"]
USED = "used"


@dataclass(frozen=True)
class AgentGroup:
    """One agent at one node: the prompt it saw and its K completions, columns as in the trace, NaN where NULL."""

    agent: int
    prompt: str
    completions: pd.DataFrame


@dataclass(frozen=True)
class NodeDetail:
    """node: its row of trace.read_nodes. joints: node_id, joint, responses, reward, return."""

    node: pd.Series
    joints: pd.DataFrame
    agents: tuple[AgentGroup, ...]

    @property
    def has_critic(self) -> bool:
        """True: an actor-critic's node; `return` is then the TD target, `baseline` the value."""
        return any(group.completions["value"].notna().any() for group in self.agents)


def node_detail(path: str | Path, node_id: int) -> NodeDetail:
    """Everything the trace knows of one node. ValueError when there is no such node, TraceError for a bad file."""
    nodes = trace.read_nodes(path, node_ids=[node_id])
    if nodes.empty:
        raise ValueError(f"The trace has no node {node_id}; it may have been taken back by a resume.")
    completions = trace.read_completions(path, node_ids=[node_id])
    groups = [
        AgentGroup(int(str(agent)), str(rows["prompt"].iloc[0]), rows[COMPLETION].reset_index(drop=True))
        for agent, rows in completions.groupby("agent")
    ]
    return NodeDetail(nodes.iloc[0], trace.read_joints(path, node_ids=[node_id]), tuple(groups))


def what_if(detail: NodeDetail) -> pd.DataFrame:
    """What each baseline gives for the returns the node really had, and what was used.

    One row per agent, mode and completion: agent, mode, k, return, baseline, advantage, normalized. Mode "used" holds
    the stored numbers. Unscored completions are left out of the group, as in training, and their numbers are NaN.
    """
    frames = []
    for group in detail.agents:
        used = group.completions[["k", "return", "baseline", "advantage", "normalized"]].assign(mode=USED)
        frames += [used.assign(agent=group.agent), baseline_table(used["return"].tolist()).assign(agent=group.agent)]
    columns = ["agent", "mode", "k", "return", "baseline", "advantage", "normalized"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


@dataclass(frozen=True)
class OverRun:
    """A statistic over a run's training nodes. shown of total nodes were read; unscored: completions without number."""

    table: pd.DataFrame
    shown: int
    total: int
    unscored: int

    @property
    def exact(self) -> bool:
        return self.shown >= self.total


def histogram(path: str | Path, column: str = "advantage", bins: int = 40, limit: int = MAX_NODES) -> OverRun:
    """How often which advantage: one row per agent, turn and bin with agent, turn, left, right, count.

    column: "advantage", "normalized" or any other number of a completion. All groups share their `bins` bins, from the
    least to the greatest value, so no outlier is hidden; infinite values are left out.
    """
    sample = sample_nodes(path, limit=limit)
    rows = with_completions(path, sample, [column])
    known = rows[np.isfinite(rows[column])]
    edges = np.histogram_bin_edges(known[column], bins)
    tables = [
        pd.DataFrame({"agent": agent, "turn": turn, "left": edges[:-1], "right": edges[1:],
                      "count": np.histogram(group[column], edges)[0]})
        for (agent, turn), group in known.groupby(["agent", "turn"])
    ]  # fmt: skip
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=BINS)
    return OverRun(table, sample.shown, sample.total, int(rows[column].isna().sum()))


def signal_over_time(path: str | Path, buckets: int = 50, limit: int = MAX_NODES) -> OverRun:
    """Share of groups without signal: one row per bucket of the run and agent.

    Columns: bucket, agent, step_from, step_to (env_step), groups, zero (all |advantage| below 1e-9), unscored (no
    advantage at all), share (zero of the scored ones, NaN without any). Buckets hold equally many nodes.
    """
    sample = sample_nodes(path, limit=limit)
    rows = with_completions(path, sample, ["advantage"])
    order = pd.Series(np.arange(sample.shown) * buckets // max(1, sample.shown), index=sample.ids, dtype="int64")
    largest = rows["advantage"].abs().groupby([rows["node_id"], rows["agent"], rows["step"]]).max().reset_index()
    groups = pd.DataFrame({
        "bucket": largest["node_id"].map(order), "agent": largest["agent"], "step": largest["step"], "groups": 1,
        "zero": (largest["advantage"] <= SIGNAL).astype(int), "unscored": largest["advantage"].isna().astype(int),
    })  # fmt: skip
    table = groups.groupby(["bucket", "agent"], as_index=False).agg(
        step_from=("step", "min"),
        step_to=("step", "max"),
        groups=("groups", "sum"),
        zero=("zero", "sum"),
        unscored=("unscored", "sum"),
    )
    scored = (table["groups"] - table["unscored"]).astype(float)
    table["share"] = table["zero"] / scored.where(scored > 0)
    return OverRun(table, sample.shown, sample.total, int(rows["advantage"].isna().sum()))


def sign_flips(path: str | Path, limit: int = FLIP_NODES) -> OverRun:
    """How often two baselines disagree about a completion: pushed up, down, or left alone.

    One row per pair: first, second, completions, opposite (one pushes up, the other down), one_zero (only one of them
    moves it), share (of both kinds, NaN without completions). Recomputed from the stored returns, before normalisation;
    groups with fewer than two scored completions are left out.
    """
    sample = sample_nodes(path, limit=limit)
    rows = with_completions(path, sample, ["return"])
    known = rows[np.isfinite(rows["return"])]
    signs = _signs(known)
    table = pd.DataFrame([_compare(signs, first, second) for first, second in combinations(BASELINES, 2)])
    return OverRun(table, sample.shown, sample.total, int(rows["return"].isna().sum()))


def _signs(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Mode -> sign of every completion's advantage, in {-1, 0, 1}."""
    borders = np.flatnonzero(np.diff(rows["node_id"]) | np.diff(rows["agent"])) + 1
    groups = [group for group in np.split(rows["return"].to_numpy(), borders) if len(group) > 1]
    signs = {}
    for mode, baseline in BASELINES.items():
        advantages = [group - baseline(group) for group in groups]
        flat = np.concatenate(advantages) if advantages else np.empty(0)
        signs[mode] = np.where(np.abs(flat) > SIGNAL, np.sign(flat), 0)
    return signs


def _compare(signs: dict[str, np.ndarray], first: str, second: str) -> dict[str, object]:
    products, total = signs[first] * signs[second], len(signs[first])
    opposite = int((products < 0).sum())
    one_zero = int(((products == 0) & (signs[first] != signs[second])).sum())
    share = (opposite + one_zero) / total if total else float("nan")
    counts = {"completions": total, "opposite": opposite, "one_zero": one_zero}
    return {"first": first, "second": second, **counts, "share": share}
