"""How good the critics of an actor-critic run are: TD errors over time, values against what really came.

Everything is computed from one bounded sample of whole rollouts (`read_td`); a page keeps it and asks the
functions below for its charts. Runs without a critic give an empty result with a reason, never an error.
This module knows nothing of models: a value is what the trace says it was when the completion was sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from workbench import estimators
from workbench.insight.sampling import spread
from workbench.tracking import trace

MAX_ROLLOUTS = 4_000  # whole rollouts of all turns; some 20,000 completions take 0.2 s
PROBE_NODES = 200  # nodes that are asked whether the run has a critic
MIN_WINDOW = 8  # completions from which a variance says something
NUMBERS = ("node_id", "agent", "k", "reward", "value", "target", "td_error")
WORTH = ("explained_variance", "value_mean", "target_mean", "realised_mean")
NO_CRITIC = {
    "en": "This run has no critic: REINFORCE algorithms compare completions with each other. Train MAAC or IAC to see "
    "TD errors.",
    "zh": "本次运行没有评论家：REINFORCE 类算法在同组回复之间作比较。请训练 MAAC 或 IAC 以查看 TD 误差。",
}
NO_DATA = {"en": "No training node has been written yet.", "zh": "还没有写入任何训练节点。"}


@dataclass(frozen=True, eq=False)
class TdRows:
    """One row per completion of the sampled rollouts, in environment order.

    frame: node_id, step, turn, agent, k, reward, value, target, td_error, realised. realised = what came in place
    of the critic's promise: immediate reward (KL penalty included) plus discount * the same of the next turn.
    nodes, total: training nodes read and in all. reason: why there is nothing, by language.
    """

    frame: pd.DataFrame
    nodes: int
    total: int
    reason: Mapping[str, str] | None = None

    @property
    def has_critic(self) -> bool:
        return self.reason is None


def read_td(path: str | Path, discount: float = 1.0, max_rollouts: int = MAX_ROLLOUTS) -> TdRows:
    """At most `max_rollouts` whole training rollouts, spread evenly over the run. Raises TraceError.

    discount: the run's own, from its spec.
    """
    roots = trace.read_node_ids(path, phase="train", roots=True)
    nodes = trace.read_node_ids(path, phase="train")
    if not len(nodes):
        return TdRows(_empty(), 0, 0, NO_DATA)
    probe = trace.read_completions(path, nodes[spread(len(nodes), PROBE_NODES)].tolist(), columns=("value",))
    if probe["value"].isna().all():
        return TdRows(_empty(), 0, len(nodes), NO_CRITIC)
    chosen = _whole_rollouts(nodes, roots, max_rollouts).tolist()
    places = trace.read_nodes(path, node_ids=chosen)[["node_id", "step", "turn", "parent_id"]]
    rows = trace.read_completions(path, node_ids=chosen, columns=NUMBERS).merge(places, on="node_id", sort=False)
    frame = rows.assign(realised=_realised(rows, discount)).dropna(subset=["value", "target"])
    columns = ["node_id", "step", "turn", *NUMBERS[1:], "realised"]
    return TdRows(frame[columns].reset_index(drop=True), len(chosen), len(nodes))


def _empty() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype="float64") for name in ("step", "turn", *NUMBERS, "realised")})


def _whole_rollouts(nodes: np.ndarray, roots: np.ndarray, limit: int) -> np.ndarray:
    """The nodes of evenly spread rollouts: a rollout is written at once, from its root to before the next root."""
    chosen = np.zeros(len(roots), dtype=bool)
    chosen[spread(len(roots), limit)] = True
    owner = np.searchsorted(roots, nodes, side="right") - 1
    return nodes[(owner >= 0) & chosen[owner]]


def _realised(rows: pd.DataFrame, discount: float) -> pd.Series:
    """[rows] G_t = target_t + discount * (G_{t+1} - V_{t+1}): the next turn's own G put in the place of its value.

    The last turn of a rollout never bootstraps, so there G is the target.
    """
    realised = rows["target"].copy()
    following = rows[rows["parent_id"].notna()].set_index(["parent_id", "agent"]).index
    place = pd.Series(np.flatnonzero(rows["parent_id"].notna()), index=following)
    place = place[~place.index.duplicated()]
    here = pd.MultiIndex.from_arrays([rows["node_id"], rows["agent"]])
    after = place.reindex(here).to_numpy()
    for turn in sorted(rows["turn"].unique(), reverse=True)[1:]:
        at = np.flatnonzero((rows["turn"] == turn).to_numpy() & ~np.isnan(after))
        child = after[at].astype(np.int64)
        gain = realised.to_numpy()[child] - rows["value"].to_numpy()[child]
        realised.iloc[at] += discount * gain
    return realised


# --- over time -----------------------------------------------------------------------------------


def heat_map(rows: TdRows, buckets: int = 40) -> pd.DataFrame:
    """Agent and turn against time: TD errors in `buckets` equal stretches of env_step.

    Columns agent, turn, bucket, step_from, step_to, td_error_mean, td_error_abs, count; empty stretches are left out.
    """
    return _over_time(rows.frame, _edges(rows.frame["step"], buckets))


def explained_variance(rows: TdRows, windows: int = 40) -> pd.DataFrame:
    """Explained variance anew in equal stretches of env_step, per agent and turn.

    Columns agent, turn, bucket, step_from, step_to, explained_variance, value_mean, target_mean, realised_mean, count;
    NaN where there are fewer than MIN_WINDOW completions or all targets are equal.
    """
    return _explained_over_time(rows.frame, _edges(rows.frame["step"], windows))


def _explained(group: pd.DataFrame) -> float:
    if len(group) < MIN_WINDOW:
        return float("nan")
    return estimators.explained_variance(group["value"].to_numpy(), group["target"].to_numpy())


def _edges(steps: pd.Series, buckets: int) -> np.ndarray:
    """[buckets + 1] equally far apart, from the first to the last step."""
    low, high = (0, 1) if steps.empty else (steps.min(), steps.max())
    return np.linspace(low, max(high, low + 1), buckets + 1)


def _bucket(steps: pd.Series, edges: np.ndarray) -> pd.Series:
    inner = np.searchsorted(edges[1:-1], steps.to_numpy(), side="right")
    return pd.Series(inner, index=steps.index, name="bucket")


def _over_time(frame: pd.DataFrame, edges: np.ndarray) -> pd.DataFrame:
    sized = frame.assign(size=frame["td_error"].abs())
    groups = sized.groupby(["agent", "turn", _bucket(frame["step"], edges)])
    table = groups.agg(td_error_mean=("td_error", "mean"), td_error_abs=("size", "mean"), count=("size", "size"))
    return _with_steps(table.reset_index(), edges)


def _explained_over_time(frame: pd.DataFrame, edges: np.ndarray) -> pd.DataFrame:
    groups = frame.groupby(["agent", "turn", _bucket(frame["step"], edges)])
    explained = pd.Series({place: _explained(group) for place, group in groups}, dtype="float64")
    table = groups.agg(
        value_mean=("value", "mean"), target_mean=("target", "mean"), realised_mean=("realised", "mean"),
        count=("value", "size"),
    )  # fmt: skip
    table.insert(0, "explained_variance", explained.to_numpy())
    return _with_steps(table.reset_index(), edges)


def _with_steps(table: pd.DataFrame, edges: np.ndarray) -> pd.DataFrame:
    at = table["bucket"].to_numpy(dtype=np.int64)
    table.insert(3, "step_from", edges[at])
    table.insert(4, "step_to", edges[at + 1])
    return table


# --- value against what came ---------------------------------------------------------------------


def calibration(rows: TdRows, bins: int = 10, per_turn: bool = False) -> pd.DataFrame:
    """Completions binned by the critic's value, equally many per bin: a calibrated critic has value = realised.

    Columns agent (and turn), bin, value_mean, target_mean, realised_mean, realised_std (population), count.
    Equal values share a bin, so there may be fewer.
    """
    by = ["agent", "turn"] if per_turn else ["agent"]
    frame = rows.frame
    binned = frame.groupby(by)["value"].transform(lambda values: _bins(values.to_numpy(), bins)).astype("int64")
    groups = frame.groupby([*by, binned.rename("bin")])
    table = groups.agg(
        value_mean=("value", "mean"),
        target_mean=("target", "mean"),
        realised_mean=("realised", "mean"),
        realised_std=("realised", lambda values: values.std(ddof=0)),
        count=("value", "size"),
    )
    return table.reset_index()


def _bins(values: np.ndarray, bins: int) -> np.ndarray:
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
    return np.searchsorted(edges[1:-1], values, side="right")


def calibration_error(table: pd.DataFrame) -> float:
    """Mean distance of value and realised return over the bins of `calibration`, weighted by their counts."""
    if table.empty:
        return float("nan")
    distance = (table["value_mean"] - table["realised_mean"]).abs()
    return float(np.average(distance, weights=table["count"]))


# --- one run beside another ----------------------------------------------------------------------


def beside(runs: Mapping[str, TdRows], buckets: int = 40) -> pd.DataFrame:
    """Several runs, such as MAAC and IAC, over the same stretches of env_step.

    The columns of `heat_map` with run in front and WORTH behind; runs without a critic are left out.
    """
    known = {name: rows.frame for name, rows in runs.items() if rows.has_critic} or {"": _empty()}
    edges = _edges(pd.concat([frame["step"] for frame in known.values()]), buckets)
    tables = []
    for name, frame in known.items():
        errors, values = _over_time(frame, edges), _explained_over_time(frame, edges)
        table = errors.assign(**{column: values[column] for column in WORTH})
        table.insert(0, "run", name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)
