"""Run folders whose traces are written by hand, so that a test knows every text and number on the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord

Write = Callable[[int, int, int], dict[str, Any]]  # (node, agent, k) -> columns of a completion
TICK = 10  # env_steps from one node to the next


def written_run(
    workspace: Workspace, nodes: Sequence[NodeRecord] = (), name: str = "written", **config: Any
) -> RunFolder:
    """A finished run of two agents with this trace."""
    data = {"name": name, "task": "rendezvous", "algorithm": "magrpo", "model": "builtin:tiny", "config": config}
    run = workspace.create_run(RunSpec.parse(data, "test", workspace.root))
    run.write_status(RunStatus("finished", step=1, total=1, started=100.0, ended=160.0))
    add_nodes(run, nodes)
    return run


def add_nodes(run: RunFolder, nodes: Sequence[NodeRecord]) -> None:
    writer = TraceWriter(run.trace_file)
    writer.nodes(list(nodes))
    writer.end("FINISHED")


def node(number: int, write: Write, phase: str = "train", items: int = 2, group: int = 2) -> NodeRecord:
    """A node of turn 1 at step TICK * (number + 1) on item `number % items`; both agents write `group` completions."""
    rows = []
    for agent in range(2):
        for k in range(group):
            usual = {"prompt": f"prompt {number % items}", "text": f"text {number} {agent} {k}", "tokens": 7,
                     "finished": True, "logprob": -1.0, "reward": float(k)}  # fmt: skip
            rows.append(CompletionRecord(agent, k, **usual | write(number, agent, k)))
    joints = tuple(JointRecord(k, (k, k), rows[k].reward, rows[k].reward) for k in range(group))
    step = TICK * (number + 1)
    return NodeRecord(number, phase, step, number // items, number % items, 1, None, None, False, joints, tuple(rows))
