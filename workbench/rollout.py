"""Expand items into rollout trees, breadth first, and compute returns from the leaves to the root.

All nodes of a turn share one generate call per agent, however many nodes the turn has. Knows
callbacks and the team; nothing of losses, optimizers or algorithms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from workbench import objectives
from workbench.callbacks import Formatter, Transition, format_prompt
from workbench.parallel.team import Team
from workbench.rewards import RewardFunction
from workbench.stopwatch import Stopwatch
from workbench.types import Item, Node, Prompt, RolloutTree, Sampling, mean_of


@dataclass(frozen=True)
class Environment:
    """What the user defines: prompts, rewards, and how one turn leads to the next."""

    formatters: Sequence[Formatter]  # [n]
    reward: RewardFunction
    transition: Transition | None
    passthrough: bool  # True: the transition's prompts skip the formatters


@dataclass(frozen=True)
class Shape:
    """How far and how wide a tree grows."""

    num_turns: int
    num_generations: int
    join: Callable[[int, int], tuple[tuple[int, ...], ...]]  # objectives.JOINT_MODES
    threshold: float | None  # early_termination_threshold


class Rollout:
    """Grows the trees of one trainer."""

    def __init__(self, team: Team, environment: Environment, sampling: Sampling, watch: Stopwatch) -> None:
        self.team = team
        self.environment = environment
        self.sampling = sampling
        self.watch = watch

    def expand(self, items: Sequence[tuple[int, Item]], shape: Shape, seed: int, step: int) -> list[RolloutTree]:
        """One tree per (index, item), all grown together; `step` is env_step before them."""
        trees = [RolloutTree([self._node(index, item, 1, None, None, None)]) for index, item in items]
        owners = dict(enumerate(items))
        frontier = [(i, tree.root) for i, tree in enumerate(trees)]
        for turn in range(1, shape.num_turns + 1):
            self._generate([node for _, node in frontier], shape, seed, turn)
            for i, node in frontier:
                step = self._evaluate(node, owners[i][1], shape, step)
            if turn < shape.num_turns:
                frontier = [(i, c) for i, node in frontier for c in self._children(node, owners[i][1])]
                for i, child in frontier:
                    trees[i].nodes.append(child)
            if not frontier:
                break
        for tree in trees:
            fill_returns(tree)
        return trees

    def _node(
        self,
        index: int,
        item: Item,
        turn: int,
        parent: Node | None,
        joint: int | None,
        external: Sequence[Prompt] | None,
    ) -> Node:
        where = f"item {index}, turn {turn}"
        prompts = []
        for agent, formatter in enumerate(self.environment.formatters):
            given = external[agent] if external else None
            if given is not None and self.environment.passthrough:
                prompts.append(given)
            else:
                prompts.append(format_prompt(formatter, item, given, f"agent {agent} for {where}"))
        return Node(item=index, turn=turn, prompts=tuple(prompts), parent=parent, parent_joint=joint)

    def _generate(self, nodes: Sequence[Node], shape: Shape, seed: int, turn: int) -> None:
        num_agents = len(self.environment.formatters)
        with self.watch("rollout"):
            batches = self.team.generate(
                [[node.prompts[agent] for node in nodes] for agent in range(num_agents)],
                shape.num_generations,
                self.sampling,
                [derive_seed(seed, turn, agent) for agent in range(num_agents)],
            )
        for i, node in enumerate(nodes):
            node.completions = tuple(tuple(batch[i]) for batch in batches)
            node.responses = shape.join(num_agents, shape.num_generations)

    def _evaluate(self, node: Node, item: Item, shape: Shape, step: int) -> int:
        """Reward the node's joint responses in one call; returns env_step after it."""
        texts = [[node.completions[a][r[a]].text for r in node.responses] for a in range(len(node.completions))]
        with self.watch("reward"):
            where = f"item {node.item}, turn {node.turn}"
            node.agent_rewards = self.environment.reward(texts, node.completions[0][0].prompt, item, where)
        node.rewards = tuple(mean_of(column) for column in zip(*node.agent_rewards))
        mean = node.reward_mean
        node.terminated = shape.threshold is not None and mean is not None and mean > shape.threshold
        node.step = step + len(node.responses)
        return node.step

    def _children(self, node: Node, item: Item) -> list[Node]:
        if not node.terminated:
            node.children = [self._child(node, j, item) for j in range(len(node.responses))]
        return node.children

    def _child(self, node: Node, joint: int, item: Item) -> Node:
        assert self.environment.transition is not None, "checked when the trainer is built"
        prompts, responses = branch_history(node, joint)
        external = self.environment.transition(
            item,
            [history[-1] for history in responses],
            prompts,
            responses,
            [row[joint] for row in node.agent_rewards],
            f"item {node.item}, turn {node.turn}",
        )
        return self._node(node.item, item, node.turn + 1, node, joint, external)


def branch_history(node: Node, joint: int) -> tuple[list[list[str]], list[list[str]]]:
    """Prompts the models saw and texts they wrote, each [n][turns], along the branch that ends in `joint`."""
    steps: list[tuple[Node, int]] = []
    current: Node | None = node
    while current is not None:
        steps.append((current, joint))
        joint = current.parent_joint if current.parent_joint is not None else 0
        current = current.parent
    steps.reverse()
    agents = range(len(node.completions))
    chosen = [[at.completions[a][at.responses[j][a]] for at, j in steps] for a in agents]
    return [[c.prompt for c in row] for row in chosen], [[c.text for c in row] for row in chosen]


def fill_returns(tree: RolloutTree) -> None:
    """objectives.joint_returns at every node, leaves first."""
    for node in reversed(tree.nodes):
        children: list[torch.Tensor | None] = [as_tensor(child.returns) for child in node.children]
        children = children or [None] * len(node.rewards)
        node.returns = as_optional(objectives.joint_returns(as_tensor(node.rewards), children))


def as_tensor(values: Sequence[float | None]) -> torch.Tensor:
    """float64 with NaN for None."""
    return torch.tensor([float("nan") if v is None else v for v in values], dtype=torch.float64)


def as_optional(values: torch.Tensor) -> tuple[float | None, ...]:
    """Inverse of as_tensor."""
    return tuple(None if v != v else v for v in values.tolist())


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on all parts: random numbers are addressed, not consumed.

    What one agent draws at one turn of one item is the same in any process, after any resume, and
    whatever an evaluation drew in between.
    """
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
