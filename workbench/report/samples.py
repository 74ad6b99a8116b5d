"""What the agents wrote at the beginning, in the middle and at the end of training, as it stands in the trace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.report.markup import Html, div, folded, joined, table, tag
from workbench.tracking import trace

SHOWN = 4  # completions per agent and node, the first ones: not the best ones
CHARACTERS = 2_000  # of one text
NUMBERS = {"tokens": "tokens", "reward": "reward", "return": "return", "baseline": "baseline", "value": "value",
           "target": "target", "td_error": "TD error", "advantage": "advantage",
           "normalized": "normalised advantage"}  # fmt: skip
NAMES = ("First", "Middle", "Last")


def samples(path: Path) -> Html:
    """Trees of the first, the middle and the last training item, of each turn its first node. Raises TraceError."""
    roots = trace.read_node_ids(path, phase="train", roots=True)
    if not len(roots):
        return tag("p", "No training node was written yet.")
    places = dict(zip((0, len(roots) // 2, len(roots) - 1), NAMES)) if len(roots) > 2 else dict(enumerate(NAMES))
    parts = [_tree(path, name, roots.tolist(), place) for place, name in places.items() if place < len(roots)]
    note = f"Of each agent the first {SHOWN} completions at a node are shown, and of each turn the first node."
    return joined([tag("p", note), *parts])


def _tree(path: Path, name: str, roots: list[int], place: int) -> Html:
    stop = roots[place + 1] if place + 1 < len(roots) else None
    ids = trace.read_node_ids(path, phase="train", after=roots[place] - 1, before=stop)
    nodes = trace.read_nodes(path, node_ids=ids.tolist()).drop_duplicates("turn")
    step = int(nodes["step"].iloc[0])
    parts = [_node(path, node) for node in nodes.to_dict("records")]
    return joined([tag("h3", f"{name} item, env_step {step}"), *parts])


def _node(path: Path, node: Mapping[Any, Any]) -> Html:
    rows = trace.read_completions(path, node_ids=[int(node["node_id"])])
    agents = [_agent(int(str(agent)), group) for agent, group in rows.groupby("agent")]
    return div("node", tag("h4", f"turn {node['turn']}, item {node['item']}, node {node['node_id']}"), *agents)


def _agent(agent: int, rows: pd.DataFrame) -> Html:
    shown = rows.head(SHOWN)
    frame = pd.DataFrame({"k": shown["k"].astype("object")})
    frame["text"] = [cut(text) + ("" if done else " [cut at max_new_tokens]")
                     for text, done in zip(shown["text"], shown["finished"])]  # fmt: skip
    for column, title in NUMBERS.items():
        if shown[column].notna().any():
            frame[title] = shown[column]
    count = f" ({len(shown)} of {len(rows)} completions)" if len(shown) < len(rows) else ""
    prompt = tag("pre", cut(str(rows["prompt"].iloc[0])))
    return joined([folded(f"Agent {agent} was shown", prompt), tag("p", f"Agent {agent} wrote{count}:"),
                   table(frame, texts=("text",))])  # fmt: skip


def cut(text: str) -> str:
    """At most CHARACTERS of a text, and how many there were."""
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]} [... {len(text):,} characters in all]"
