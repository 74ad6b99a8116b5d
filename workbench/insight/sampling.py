"""Bounded reading: a whole-run statistic looks at all nodes of a short trace and at evenly spread ones of a long one.

Whoever shows such a statistic says "showing x of y", see `NodeSample`. This module knows no statistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.tracking.trace import read_completions, read_node_ids, read_nodes

MAX_NODES = 2000
"""Nodes that a statistic over a whole run reads at most: some 16,000 completions, a fraction of a second."""

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class NodeSample:
    """Nodes that stand for all `total` nodes that were asked for. exact: they are all of them."""

    nodes: pd.DataFrame  # the columns of trace.read_nodes, in the order of ids
    total: int

    @property
    def shown(self) -> int:
        return len(self.nodes)

    @property
    def exact(self) -> bool:
        return self.shown >= self.total

    @property
    def ids(self) -> list[int]:
        ids: list[int] = self.nodes["node_id"].tolist()
        return ids


def sample_nodes(
    path: str | Path, phase: str | None = "train", turn: int | None = None, roots: bool = False,
    after: int = -1, limit: int = MAX_NODES,
) -> NodeSample:  # fmt: skip
    """At most `limit` nodes, spread evenly over those of a phase (None = both), a turn (None = all), or the roots.

    after: only ids greater than it. The same trace gives the same sample. Raises TraceError.
    """
    ids = read_node_ids(path, phase=phase, turn=turn, roots=roots, after=after)
    chosen = ids[spread(len(ids), limit)]
    return NodeSample(read_nodes(path, node_ids=chosen.tolist()), len(ids))


def with_completions(path: str | Path, sample: NodeSample, columns: Sequence[str]) -> pd.DataFrame:
    """Completions of the sampled nodes: node_id, agent, k and `columns`, and the step and turn of their node."""
    wanted = list(dict.fromkeys(("node_id", "agent", "k", *columns)))
    frame = read_completions(path, node_ids=sample.ids, columns=wanted)
    return frame.merge(sample.nodes[["node_id", "step", "turn"]], on="node_id", how="inner")


def spread(count: int, limit: int) -> np.ndarray:
    """At most `limit` increasing positions in range(count): one in each of `limit` equal slices, all if they fit.

    Trees repeat the same pattern of turns, so a fixed distance could meet the same turn each time; the place within
    a slice therefore moves by the golden ratio, which no period matches.
    """
    if count <= limit:
        return np.arange(count)
    edges = np.arange(limit + 1) * count // limit
    places = (np.arange(limit) * GOLDEN) % 1.0
    return edges[:-1] + (places * np.diff(edges)).astype(np.int64)
