"""The nouns that travel between rollout, estimators, workers and trackers.

Plain frozen dataclasses of numbers, token ids and text: they pickle, cross process borders and
compare by value. This module does not know torch, models or databases.

Shapes: n agents, K completions per agent and node, J joint responses per node
(aligned J = K, cross J = K**n), T tokens of one completion, P tokens of one prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Prompt = str | list[dict[str, str]]
"""What a formatter returns: plain text, or chat messages for the tokenizer's chat template."""

CriticInput = str | tuple[int, ...]
"""What a critic reads: a joint text (MAAC), or an agent's own token ids (IAC)."""

Item = Mapping[str, Any]
"""One row of a dataset."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are drawn; `top_p` 1.0 and `top_k` 0 mean off."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    batch_size: int | None = None  # sequences per forward, None = all at once


@dataclass(frozen=True, slots=True)
class Completion:
    """What one agent was shown and wrote, once. The ids are never re-derived from the text."""

    prompt: str  # the prompt exactly as the model saw it
    prompt_ids: tuple[int, ...]  # [P]
    text: str  # decoded without special tokens
    token_ids: tuple[int, ...]  # [T], the terminator included
    finished: bool  # True: the model wrote a terminator; False: cut at max_new_tokens
    logprob: float  # sequence score when sampled, see objectives.sequence_score
    kl: float | None = None  # reference KL of the completion, None without a reference


@dataclass(slots=True)
class Node:
    """One joint history at one turn: K completions of every agent and their J joint responses.

    Filled front to back by the rollout; `returns` last, from the leaves to the root.
    """

    item: int  # index of the item in its dataset
    turn: int  # 1 .. H
    prompts: tuple[Prompt, ...]  # [n] what the formatters returned
    parent: Node | None = None
    parent_joint: int | None = None  # index of the parent's joint response that led here
    completions: tuple[tuple[Completion, ...], ...] = ()  # [n][K]
    responses: tuple[tuple[int, ...], ...] = ()  # [J][n] completion index of each agent
    rewards: tuple[float | None, ...] = ()  # [J] processed, mean over agents; None = unscored
    agent_rewards: tuple[tuple[float | None, ...], ...] = ()  # [n][J], rows equal when shared
    terminated: bool = False  # True: stopped by early_termination_threshold
    step: int = 0  # env_step after this node
    children: list[Node] = field(default_factory=list)  # [J], or empty at a leaf
    returns: tuple[float | None, ...] = ()  # [J] see objectives.joint_returns

    @property
    def reward_mean(self) -> float | None:
        """Mean processed reward of the scored joint responses, None when none is scored."""
        return mean_of(self.rewards)


@dataclass(slots=True)
class RolloutTree:
    """All nodes of one item in environment order (breadth first); `nodes[0]` is the root."""

    nodes: list[Node]

    @property
    def root(self) -> Node:
        return self.nodes[0]


@dataclass(frozen=True, slots=True)
class Sample:
    """One agent's scored completions at one node: the unit that buffers hold.

    G <= K: unscored completions are left out. The actor-critic fields are empty for REINFORCE.
    """

    agent: int
    item: int
    turn: int
    node_id: int
    ks: tuple[int, ...]  # [G] completion indices
    completions: tuple[Completion, ...]  # [G]
    returns: tuple[float, ...]  # [G] what the baseline is subtracted from
    baselines: tuple[float, ...]  # [G]
    advantages: tuple[float, ...]  # [G] before normalisation
    weights: tuple[float, ...]  # [G] what multiplies the score: advantages after normalisation
    values: tuple[float, ...] = ()  # [G] the critic's value when sampled
    critic_inputs: tuple[CriticInput, ...] = ()  # [G] what the critic read

    @property
    def targets(self) -> tuple[float, ...]:
        """[G] TD targets: in actor-critic the target takes the return's place and the value the baseline's."""
        return self.returns


@dataclass(frozen=True, slots=True)
class Term:
    """One completion in a policy update: its loss is -(share * weight * sequence score)."""

    completion: Completion
    weight: float  # the (normalised) advantage
    share: float  # its part of the batch mean; the shares of one optimizer step sum to 1
    where: str = ""  # names it in errors: "item 3, turn 1"
    target: float = 0.0  # shared-model actor-critic: TD target of the value head
    old_value: float = 0.0  # shared-model actor-critic: the value when sampled


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one optimizer step saw, in the order of its terms."""

    scores: tuple[float, ...]  # sequence score of each term under the updated-from policy
    entropies: tuple[float, ...]  # mean token entropy in nats of each term's distribution
    grad_norm: float  # before clipping
    learning_rate: float
    value_loss: float = 0.0  # shared-model actor-critic: unweighted


@dataclass(frozen=True, slots=True)
class ValueTerm:
    """One sample in a critic update: its loss is share * (target - value)^2."""

    input: CriticInput
    target: float
    share: float
    where: str = ""  # names it in errors


@dataclass(frozen=True, slots=True)
class ValueResult:
    """What one critic step saw."""

    loss: float  # unweighted mean squared error
    grad_norm: float  # before clipping


@dataclass(frozen=True, slots=True)
class JointRecord:
    """One row of the trace table `joints`."""

    joint: int
    responses: tuple[int, ...]  # [n]
    reward: float | None
    return_: float | None


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """One row of the trace table `completions`; None is stored as NULL."""

    agent: int
    k: int
    prompt: str
    text: str
    tokens: int
    finished: bool
    logprob: float
    kl: float | None = None
    reward: float | None = None
    return_: float | None = None
    baseline: float | None = None
    advantage: float | None = None
    normalized: float | None = None
    value: float | None = None
    target: float | None = None
    td_error: float | None = None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One row of the trace table `nodes` with the joints and completions that hang on it."""

    node_id: int
    phase: str  # "train" or "eval"
    step: int
    epoch: int
    item: int
    turn: int
    parent_id: int | None
    parent_joint: int | None
    terminated: bool
    joints: tuple[JointRecord, ...]
    completions: tuple[CompletionRecord, ...]


def mean_of(values: Sequence[float | None]) -> float | None:
    """Plain mean of the values that are not None; None when there is none."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
