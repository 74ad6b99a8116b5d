"""All agents of a run as one object: every call goes to all workers before any answer is awaited."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch

from workbench import objectives
from workbench.parallel.handles import Handle
from workbench.types import Completion, Prompt, Sampling, Term, UpdateResult

Batch = list[list[Completion]]


class Team:
    """n policies, and as many frozen references or none. One handle listed twice is one model."""

    def __init__(self, policies: Sequence[Handle], references: Sequence[Handle] = ()) -> None:
        self.policies = list(policies)
        self.references = list(references)

    def generate(
        self, prompts: Sequence[Sequence[Prompt]], count: int, sampling: Sampling, seeds: Sequence[int]
    ) -> list[Batch]:
        """Completions [n][N][count] for prompts [n][N]: one generate call per agent, with its KL if referenced."""
        calls = [
            p.submit("generate", *args)
            for p, *args in zip(self.policies, prompts, [count] * len(seeds), [sampling] * len(seeds), seeds)
        ]
        batches: list[Batch] = [call.result() for call in calls]
        return self._with_kl(batches) if self.references else batches

    def _with_kl(self, batches: list[Batch]) -> list[Batch]:
        flat = [[c for row in batch for c in row] for batch in batches]
        own = [p.submit("token_logprobs", row) for p, row in zip(self.policies, flat)]
        other = [r.submit("token_logprobs", row) for r, row in zip(self.references, flat)]
        return [
            _regrouped([dataclasses.replace(c, kl=kl) for c, kl in zip(row, _kl(a.result(), b.result()))], batch)
            for row, a, b, batch in zip(flat, own, other, batches)
        ]

    def update(self, batches: Mapping[int, Sequence[Sequence[Term]]]) -> dict[int, list[UpdateResult]]:
        """Optimizer steps per agent, in order: one for each term list."""
        calls = {agent: [self.policies[agent].submit("update", t) for t in steps] for agent, steps in batches.items()}
        return {agent: [call.result() for call in steps] for agent, steps in calls.items()}


def _kl(own: list[list[float]], other: list[list[float]]) -> list[float]:
    """objectives.k3_kl of ragged rows of token log-probabilities."""
    width = max(map(len, own))
    pad = [[0.0] * (width - len(row)) for row in own]
    mine = torch.tensor([row + p for row, p in zip(own, pad)], dtype=torch.float64)
    theirs = torch.tensor([row + p for row, p in zip(other, pad)], dtype=torch.float64)
    is_completion = torch.tensor([[True] * len(row) + [False] * len(p) for row, p in zip(own, pad)])
    return objectives.k3_kl(mine, theirs, is_completion).tolist()


def _regrouped(flat: list[Completion], like: Batch) -> Batch:
    rest = iter(flat)
    return [[next(rest) for _ in row] for row in like]
