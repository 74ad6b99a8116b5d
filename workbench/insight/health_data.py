"""What the alarms of a run look at: the earliest and the newest training nodes, a few metrics, the run's settings.

Bounded by constants, whatever the length of the trace. This module judges nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.insight.metric_names import parse
from workbench.insight.reading import query, query_integers
from workbench.runs.spec import RunSpec
from workbench.tracking import trace
from workbench.trainers import algorithm

WINDOW_NODES = 200  # nodes at each end: enough for shares to within some 5 %, few enough to read in 0.1 s
METRIC_POINTS = 1_000  # newest points per key; the oldest EARLY_POINTS besides
EARLY_POINTS = 50
WATCHED = ("agent_*/turn_*/entropy", "turn_*/reference_kl_mean")
COLUMNS = (
    "node_id",
    "agent",
    "k",
    "text",
    "tokens",
    "finished",
    "kl",
    "reward",
    "return",
    "value",
    "target",
    "td_error",
)


@dataclass(frozen=True)
class Settings:
    """What rules need to know of a run's spec; None = unknown, and the rules that ask for it stay silent."""

    max_new_tokens: int | None = None
    num_turns: int | None = None
    threshold: float | None = None
    advantage_mode: str | None = None  # None for actor-critics
    normalization: bool | None = None


@dataclass(frozen=True, eq=False)
class Window:
    """One look at a run. early and recent: completions with step, turn and item of at most WINDOW_NODES nodes each,
    never the same node; early is empty while the run is too short for two windows.

    nodes: the recent nodes. series: key -> its points (step, value) without NaN, oldest first.
    """

    settings: Settings
    early: pd.DataFrame
    recent: pd.DataFrame
    nodes: pd.DataFrame
    series: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    path: Path | None = None

    @property
    def steps(self) -> tuple[int, int]:
        """First and last env_step of the recent nodes."""
        return (0, 0) if self.nodes.empty else (int(self.nodes["step"].min()), int(self.nodes["step"].max()))


def settings_of(spec: RunSpec) -> Settings:
    """The spec's values, an unset one as the algorithm's default. Raises ValueError for a spec that cannot run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = algorithm(spec.algorithm).config.from_dict(spec.config)
    values: dict[str, Any] = vars(config)
    return Settings(
        max_new_tokens=config.max_new_tokens,
        num_turns=config.num_turns,
        threshold=config.early_termination_threshold,
        advantage_mode=values.get("advantage_mode"),
        normalization=config.advantage_normalization if "advantage_mode" in values else None,
    )


def read_window(path: str | Path, settings: Settings, size: int = WINDOW_NODES) -> Window:
    """The window of a trace. Raises TraceError."""
    newest = _train_ids(path, "DESC", 2 * size)
    recent = newest[-min(size, max(len(newest) // 2, 1)) :]
    oldest = _train_ids(path, "ASC", size)
    early = oldest[oldest < recent[0]] if len(recent) else oldest
    nodes = trace.read_nodes(path, node_ids=recent.tolist())
    return Window(
        settings,
        early=_completions(path, trace.read_nodes(path, node_ids=early.tolist())),
        recent=_completions(path, nodes),
        nodes=nodes,
        series={key: _points(path, key) for key in trace.read_metric_keys(path) if parse(key).pattern in WATCHED},
        path=Path(path),
    )


def _train_ids(path: str | Path, way: str, count: int) -> np.ndarray:
    """The first or last training nodes, in ascending order."""
    return np.sort(
        query_integers(
            path, f"SELECT node_id FROM nodes WHERE phase = 'train' ORDER BY node_id {way} LIMIT ?", (count,)
        )
    )


def _completions(path: str | Path, nodes: pd.DataFrame) -> pd.DataFrame:
    rows = trace.read_completions(path, node_ids=nodes["node_id"].tolist(), columns=COLUMNS)
    return rows.merge(nodes[["node_id", "step", "turn", "item"]], on="node_id")


def _points(path: str | Path, key: str) -> pd.DataFrame:
    ends = [
        query(path, f"SELECT rowid, step, value FROM metrics WHERE key = ? ORDER BY step {way} LIMIT ?", (key, count))
        for way, count in (("ASC", EARLY_POINTS), ("DESC", METRIC_POINTS))
    ]
    points = pd.concat(ends).drop_duplicates("rowid").sort_values("rowid")
    return points[["step", "value"]].astype({"value": "float64"}).dropna().reset_index(drop=True)


def nodes_near(path: Path, low: int, high: int, limit: int) -> tuple[int, ...]:
    """Training nodes with low < step <= high, the newest first."""
    sql = "SELECT node_id FROM nodes WHERE step > ? AND step <= ? AND phase = 'train' ORDER BY step DESC LIMIT ?"
    return tuple(query_integers(path, sql, (low, high, limit)).tolist())
