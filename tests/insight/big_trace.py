"""Traces as long as a long run's, written in seconds: REINFORCE with two turns, or an actor-critic chain.

The numbers are random but obey the definitions (returns, mean baseline, normalisation, TD targets), some joint
responses are unscored, the share of groups without signal grows, and every 50th tree is an evaluation.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.tracking.trace import COMPLETION_COLUMNS, JOINT_COLUMNS, METRIC_COLUMNS, NODE_COLUMNS, QUOTED
from workbench.tracking.trace_writer import TraceWriter

WORDS = ("the", "river", "ran", "past", "an", "old", "mill", "where", "two", "children", "kept", "a", "red", "boat")
KEYS = ("loss", "grad_norm", "entropy", "completion_tokens", "truncated_fraction", "advantage_std")
EVAL_EVERY = 50


@dataclass(frozen=True)
class Layout:
    """ids, turns, parents [N] of `trees` equal trees; joints per node J."""

    trees: int
    size: int  # nodes of one tree
    joints: int

    @property
    def nodes(self) -> int:
        return self.trees * self.size

    def grid(self) -> np.ndarray:
        """Node ids [trees, size], the root first."""
        return np.arange(self.nodes).reshape(self.trees, self.size)


def reinforce_trace(path: Path, nodes: int = 100_000, agents: int = 2, generations: int = 4) -> Path:
    """Aligned, two turns: five nodes in a row are a root and its children, or, every fourth time, five roots that
    were terminated at turn 1."""
    layout = Layout(-(-nodes // (1 + generations)), 1 + generations, generations)
    rng = np.random.default_rng(0)
    grid, shape = layout.grid(), (layout.trees, layout.size, generations)
    rewards = rng.normal(0.5, 0.4, shape).round(3)
    dull = rng.random(shape[:2]) < np.linspace(0.05, 0.6, layout.trees)[:, None]
    rewards[dull] = 0.25
    rewards[rng.random(shape) < 0.01] = np.nan
    stopped = np.arange(layout.trees) % 4 == 3
    returns = rewards.copy()
    with np.errstate(all="ignore"):
        returns[~stopped, 0] += _nanmean(rewards[~stopped, 1:])
        centred = returns - _nanmean(returns)[..., None]
        normalized = centred / np.maximum(np.sqrt(_nanmean(centred**2)), 1e-6)[..., None]
    parents = np.where(np.arange(layout.size) == 0, -1, grid[:, :1])
    parents[stopped] = -1
    numbers = {
        "reward": rewards, "return": returns, "baseline": returns - centred, "advantage": centred,
        "normalized": normalized,
    }  # fmt: skip
    _write(path, layout, agents, parents, rewards, returns, numbers)
    return path


def critic_trace(path: Path, nodes: int = 100_000, agents: int = 2, turns: int = 2) -> Path:
    """An actor-critic's chains of `turns` nodes with one completion per agent; discount 1."""
    layout = Layout(-(-nodes // turns), turns, 1)
    rng = np.random.default_rng(1)
    grid, shape = layout.grid(), (layout.trees, turns, 1)
    rewards = rng.normal(0.5, 0.4, shape).round(3)
    learned = np.linspace(0, 0.9, layout.trees)[:, None, None]  # the critic gets better
    realised = rewards[:, ::-1].cumsum(1)[:, ::-1]
    values = learned * realised + (1 - learned) * rng.normal(0, 1, shape)
    targets = rewards.copy()
    targets[:, :-1] += values[:, 1:]
    errors = targets - values
    parents = np.where(np.arange(turns) == 0, -1, grid - 1)
    numbers = {
        "reward": rewards, "return": targets, "baseline": values, "advantage": errors, "normalized": errors / 0.8,
        "value": values, "target": targets, "td_error": errors,
    }  # fmt: skip
    _write(path, layout, agents, parents, rewards, realised, numbers)
    return path


def _nanmean(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis of what is scored; 0 where nothing is."""
    counts = np.maximum((~np.isnan(values)).sum(-1), 1)
    return np.nansum(values, -1) / counts


def _write(
    path: Path, layout: Layout, agents: int, parents: np.ndarray, rewards: np.ndarray, returns: np.ndarray,
    numbers: dict[str, np.ndarray],
) -> None:  # fmt: skip
    evaluated = np.arange(layout.trees) % EVAL_EVERY == EVAL_EVERY - 1
    steps = (np.arange(1, layout.nodes + 1) * layout.joints).reshape(layout.grid().shape)
    numbers = {name: np.where(evaluated[:, None, None] & (name != "reward"), np.nan, v) for name, v in numbers.items()}
    TraceWriter(path).end("FINISHED")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA synchronous = OFF")
        database.executemany(_insert("nodes", NODE_COLUMNS), _nodes(layout, parents, evaluated, steps))
        database.executemany(_insert("joints", JOINT_COLUMNS), _joints(layout, agents, rewards, returns))
        database.executemany(_insert("completions", COMPLETION_COLUMNS), _completions(layout, agents, numbers))
        database.executemany(_insert("metrics", METRIC_COLUMNS), _metrics(steps[:, -1], agents))


def _insert(table: str, columns) -> str:
    return f"INSERT INTO {table} ({', '.join(map(QUOTED, columns))}) VALUES ({', '.join('?' * len(columns))})"


def _nodes(layout: Layout, parents: np.ndarray, evaluated: np.ndarray, steps: np.ndarray) -> Iterator[tuple]:
    for tree, ids in enumerate(layout.grid().tolist()):
        above, phase = parents[tree].tolist(), "eval" if evaluated[tree] else "train"
        stopped = layout.size > 1 and above[1] < 0
        for place, node_id in enumerate(ids):
            root = above[place] < 0
            joint = None if root else (place - 1 if layout.joints > 1 else 0)
            turn = 1 if root else (2 if layout.joints > 1 else place + 1)
            epoch, item = tree * 10 // layout.trees, (tree + place * stopped) % 97
            parent = None if root else above[place]
            step, now = int(steps[tree, place]), 1.7e9 + node_id * 0.1
            yield node_id, phase, step, epoch, item, turn, parent, joint, int(stopped), now


def _joints(layout: Layout, agents: int, rewards: np.ndarray, returns: np.ndarray) -> Iterator[tuple]:
    texts = [json.dumps([k] * agents) for k in range(layout.joints)]
    for node_id, (r, total) in enumerate(zip(_rows(rewards, layout), _rows(returns, layout))):
        yield from ((node_id, k, texts[k], _cell(r[k]), _cell(total[k])) for k in range(layout.joints))


def _completions(layout: Layout, agents: int, numbers: dict) -> Iterator[tuple]:
    names = ("reward", "return", "baseline", "advantage", "normalized", "value", "target", "td_error")
    empty = [[None] * layout.joints] * layout.nodes
    columns = [_rows(numbers[name], layout) if name in numbers else empty for name in names]
    prompt = (
        "Agent {} of a team continues the story of item {}. Keep it short, keep it kind. " + "Once upon a time. " * 4
    )
    for node_id, rows in enumerate(zip(*columns)):
        for agent in range(agents):
            asked = prompt.format(agent, node_id % 97)
            for k in range(layout.joints):
                text = _text(node_id * 31 + agent * 7 + k)
                numbers_of_k = [_cell(row[k]) for row in rows]
                yield (node_id, agent, k, asked, text, 20 + (node_id + k) % 12, (node_id + k) % 9 > 0,
                       -40.0 - k, 0.01 * (k + 1), *numbers_of_k)  # fmt: skip


def _text(seed: int) -> str:
    return " ".join(WORDS[(seed * 5 + i * (1 + seed % 7)) % len(WORDS)] for i in range(24))


def _metrics(steps: np.ndarray, agents: int) -> Iterator[tuple]:
    for i, step in enumerate(steps[::3].tolist()):
        for turn in (1, 2):
            yield (step, f"turn_{turn}/reward_mean", 0.5 + 0.4 * np.sin(i / 500), 1.7e9 + step)
            for agent in range(agents):
                yield from ((step, f"agent_{agent}/turn_{turn}/{key}", 1 / (1 + i), 1.7e9 + step) for key in KEYS)


def _rows(values: np.ndarray, layout: Layout) -> list[list[float]]:
    return values.reshape(layout.nodes, layout.joints).tolist()


def _cell(value: float | None) -> float | None:
    return None if value is None or value != value else value
