"""Before and after: what one prompt was answered early and late in a run, with the words that changed.

Knows nothing of models; a checkpoint is only a place on the step axis.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from workbench.insight.reading import query
from workbench.tracking import trace

Change = Literal["equal", "insert", "delete"]
WORD = re.compile(
    r"[぀-ヿ㐀-鿿]|[^\W぀-ヿ㐀-鿿]+|\s+|[^\w\s]"
)  # Chinese and Japanese are compared character by character
MAX_WORDS = 1_500  # of one text; what follows is shown as replaced, since comparing costs the product of both lengths
MAX_NODES = 200  # nodes whose prompt is compared in the search for the same one
TOO_FEW = {
    "en": "This item was met only once so far; there is nothing to compare it with yet.",
    "zh": "该样本目前只出现过一次，还没有可以比较的对象。",
}


@dataclass(frozen=True)
class Segment:
    """A stretch of text: in both (equal), only after (insert) or only before (delete)."""

    change: Change
    text: str


@dataclass(frozen=True)
class Pair:
    """Completion k early and late. The equal and delete segments together are `before`, equal and insert `after`."""

    k: int
    before: str
    after: str
    reward_before: float
    reward_after: float
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class BeforeAfter:
    """The pairs of one prompt at two nodes. same_prompt False: no two nodes shared it, so the inputs differ too.

    reason: why there are no pairs, by language.
    """

    prompt: str = ""
    same_prompt: bool = True
    nodes: tuple[int, int] | None = None
    steps: tuple[int, int] | None = None
    pairs: tuple[Pair, ...] = ()
    reason: Mapping[str, str] | None = None


def recurring_items(path: str | Path, phase: str = "train", limit: int = 200) -> pd.DataFrame:
    """Items met more than once: columns item, visits, first_step, last_step; the first `limit` by number."""
    return query(
        path,
        "SELECT item, count(*) AS visits, min(step) AS first_step, max(step) AS last_step FROM nodes "
        "WHERE phase = ? AND turn = 1 GROUP BY item HAVING visits > 1 ORDER BY item LIMIT ?",
        (phase, limit),
    )


def step_of_checkpoint(path: str | Path, items_done: int) -> int:
    """env_step when that many items were done, which is how checkpoints are numbered; 0 before the first."""
    found = query(
        path,
        "SELECT coalesce(max(step), 0) AS step FROM nodes WHERE phase = 'train' AND node_id < coalesce((SELECT node_id "
        "FROM nodes WHERE phase = 'train' AND parent_id IS NULL ORDER BY node_id LIMIT 1 OFFSET ?), 1 << 62)",
        (items_done,),
    )
    return int(found["step"].iloc[0])


def before_after(
    path: str | Path, item: int, agent: int, turn: int = 1, early: int | None = None, late: int | None = None,
    phase: str = "train",
) -> BeforeAfter:  # fmt: skip
    """One agent's completions of one item at the nodes nearest to two env_steps; None = the first and the last.

    Raises TraceError.
    """
    nodes = query(
        path, "SELECT node_id, step FROM nodes WHERE item = ? AND turn = ? AND phase = ? ORDER BY node_id",
        (item, turn, phase),
    )  # fmt: skip
    if len(nodes) < 2:
        return BeforeAfter(reason=TOO_FEW)
    ids, steps = nodes["node_id"].to_numpy(), nodes["step"].to_numpy()
    first = int(np.abs(steps - (steps[0] if early is None else early)).argmin())
    distance = np.abs(steps - (steps[-1] if late is None else late))
    others = np.argsort(distance, kind="stable")
    second = _same_prompt(path, ids, first, others[others != first].tolist(), agent)
    first, second = sorted((first, second))
    before, after = _answers(path, int(ids[first]), agent), _answers(path, int(ids[second]), agent)
    prompt = str(before["prompt"].iloc[0])
    return BeforeAfter(
        prompt, prompt == after["prompt"].iloc[0], (int(ids[first]), int(ids[second])),
        (int(steps[first]), int(steps[second])), _pairs(before, after),
    )  # fmt: skip


def _same_prompt(path: str | Path, ids: np.ndarray, first: int, others: Sequence[int], agent: int) -> int:
    """The first of the others with the prompt of `first`; simply the first of them when none has it."""
    asked = [first, *others[:MAX_NODES]]
    rows = trace.read_completions(path, ids[asked].tolist(), columns=("node_id", "agent", "prompt"))
    prompts = rows[rows["agent"] == agent].drop_duplicates("node_id").set_index("node_id")["prompt"]
    wanted = prompts[ids[first]]
    return next((i for i in asked[1:] if prompts[ids[i]] == wanted), others[0])


def _answers(path: str | Path, node_id: int, agent: int) -> pd.DataFrame:
    rows = trace.read_completions(path, [node_id], columns=("agent", "k", "prompt", "text", "reward"))
    return rows[rows["agent"] == agent]


def _pairs(before: pd.DataFrame, after: pd.DataFrame) -> tuple[Pair, ...]:
    """Completion k with completion k; an evaluated node has one only."""
    both = before.merge(after, on="k", suffixes=("_before", "_after"))
    return tuple(
        Pair(
            int(row["k"]), row["text_before"], row["text_after"], row["reward_before"], row["reward_after"],
            word_diff(row["text_before"], row["text_after"]),
        )
        for row in both.to_dict("records")
    )  # fmt: skip


def word_diff(before: str, after: str) -> tuple[Segment, ...]:
    """The words both texts share, in order, and what was deleted and inserted between them."""
    old, new = WORD.findall(before), WORD.findall(after)
    old_rest, new_rest = "".join(old[MAX_WORDS:]), "".join(new[MAX_WORDS:])
    old, new = old[:MAX_WORDS], new[:MAX_WORDS]
    segments = []
    for _, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        segments += _change("".join(old[a:b]), "".join(new[c:d]))
    return tuple(segments + _change(old_rest, new_rest))


def _change(old: str, new: str) -> list[Segment]:
    if old == new:
        return [Segment("equal", old)] if old else []
    parts: list[tuple[Change, str]] = [("delete", old), ("insert", new)]
    return [Segment(change, text) for change, text in parts if text]
