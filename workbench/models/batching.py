"""Rectangles from ragged token ids: prompts padded on the left, completions on the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.types import Completion


@dataclass(frozen=True)
class ScoringBatch:
    """Inputs of one scoring forward; every completion starts in the same column, P.

    The final completion token is predicted but never fed, so there are P + T - 1 input columns
    and the last T of them predict the T completion columns.
    """

    input_ids: Tensor  # [B, P + T - 1]
    attention_mask: Tensor  # [B, P + T - 1]
    position_ids: Tensor  # [B, P + T - 1], 0 at each row's first real token
    tokens: Tensor  # [B, T] what is predicted
    is_completion: Tensor  # [B, T]


def left_padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """ids and attention mask [B, P]."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(r)) + list(r) for r in rows], device=device)
    mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows], device=device)
    return ids, mask


def scoring_batch(completions: Sequence[Completion], pad: int, device: torch.device) -> ScoringBatch:
    """The padded rectangle of some completions with their prompts."""
    prompts, prompt_mask = left_padded([c.prompt_ids for c in completions], pad, device)
    width = max(len(c.token_ids) for c in completions)
    tokens = torch.tensor([[*c.token_ids, *[pad] * (width - len(c.token_ids))] for c in completions], device=device)
    lengths = torch.tensor([len(c.token_ids) for c in completions], device=device)
    is_completion = torch.arange(width, device=device) < lengths[:, None]
    mask = torch.cat([prompt_mask, is_completion.long()], 1)[:, :-1]
    return ScoringBatch(
        input_ids=torch.cat([prompts, tokens], 1)[:, :-1],
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        tokens=tokens,
        is_completion=is_completion,
    )


def micro_batches(completions: Sequence[Completion], size: int | None) -> Iterator[list[int]]:
    """Index lists of at most `size` completions, sorted by length so that little is padding."""
    order = sorted(
        range(len(completions)), key=lambda i: (len(completions[i].token_ids), len(completions[i].prompt_ids))
    )
    size = size or len(order)
    for start in range(0, len(order), size):
        yield order[start : start + size]
