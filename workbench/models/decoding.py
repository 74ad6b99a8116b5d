"""Sampling token by token: many prompts at once, each prompt read once for all its completions.

The draw depends on a torch.Generator only; no global random state is touched. Scores are noted as
tokens are drawn, from the full distribution, before any truncation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import TopKLogitsWarper, TopPLogitsWarper

from workbench.models.batching import left_padded, positions
from workbench.models.cache import decoding_cache
from workbench.types import Sampling

BLOCK = 256  # vocabulary entries summed at a time in `draw`


@dataclass
class Rows:
    """Completions under way: one row per completion that has not ended yet."""

    index: Tensor  # [B] which completion each row is
    mask: Tensor  # [B, columns so far] 1 on real tokens
    cache: Any  # the model's key-value cache, or None for a model without one
    ids: Tensor  # [B, columns so far]

    def keep(self, alive: Tensor) -> Rows:
        """The rows where `alive` [B] is True."""
        if self.cache is not None:
            self.cache.batch_select_indices(alive.nonzero().flatten())
        return Rows(self.index[alive], self.mask[alive], self.cache, self.ids[alive])

    def append(self, tokens: Tensor) -> Rows:
        """Each row one token longer."""
        mask = torch.cat([self.mask, torch.ones_like(tokens)[:, None]], 1)
        return Rows(self.index, mask, self.cache, torch.cat([self.ids, tokens[:, None]], 1))


class Decoder:
    """Samples from one model. arguments: names that the model's forward accepts."""

    def __init__(self, model: Any, arguments: frozenset[str], terminators: frozenset[int], pad: int) -> None:
        self.model = model
        self.arguments = arguments
        self.pad = pad
        self.device = model.device
        self.terminators = torch.tensor(sorted(terminators), dtype=torch.long, device=self.device)
        self.cache_name = cache_argument(arguments)

    @torch.inference_mode()
    def sample(
        self, prompts: Sequence[Sequence[int]], count: int, sampling: Sampling, generator: torch.Generator
    ) -> tuple[list[list[int]], list[float]]:
        """`count` completions per prompt: token ids, terminator included, and sequence scores; prompt by prompt."""
        logits, rows = self._read(prompts, count)
        total = len(prompts) * count
        columns: list[Tensor] = []
        scores = torch.zeros(total, dtype=torch.float32, device=self.device)
        for step in range(sampling.max_new_tokens):
            probabilities = torch.softmax(logits if sampling.temperature == 1.0 else logits / sampling.temperature, -1)
            tokens = draw(truncated(probabilities, sampling), generator)
            scores[rows.index] += probabilities.gather(1, tokens[:, None])[:, 0].log()
            columns.append(torch.full((total,), -1, device=self.device).index_copy(0, rows.index, tokens))
            alive = ~torch.isin(tokens, self.terminators)
            if not alive.any() or step + 1 == sampling.max_new_tokens:
                break
            rows = rows.append(tokens)
            if not alive.all():
                rows = rows.keep(alive)
            logits = self._next(rows)
        ids = torch.stack(columns, 1).tolist()
        return [[token for token in row if token >= 0] for row in ids], scores.tolist()

    def _read(self, prompts: Sequence[Sequence[int]], count: int) -> tuple[Tensor, Rows]:
        """Logits [N * count, V] after the prompts, read once each, and the rows that go on from there."""
        ids, mask = left_padded(prompts, self.pad, self.device)
        cache = decoding_cache(self.model.config) if self.cache_name else None
        logits = self._forward(ids, mask, positions(mask), cache).repeat_interleave(count, 0)
        if cache is not None:
            cache.batch_repeat_interleave(count)
        index = torch.arange(len(prompts) * count, device=self.device)
        return logits, Rows(index, mask.repeat_interleave(count, 0), cache, ids.repeat_interleave(count, 0))

    def _next(self, rows: Rows) -> Tensor:
        if rows.cache is None:
            return self._forward(rows.ids, rows.mask, positions(rows.mask), None)
        return self._forward(rows.ids[:, -1:], rows.mask, rows.mask.sum(1, keepdim=True) - 1, rows.cache)

    def _forward(self, ids: Tensor, mask: Tensor, position_ids: Tensor, cache: Any) -> Tensor:
        optional: dict[str, Any] = {"position_ids": position_ids, "logits_to_keep": 1, "use_cache": cache is not None}
        if cache is not None:
            optional[self.cache_name] = cache
        extra = {name: value for name, value in optional.items() if name in self.arguments}
        return self.model(input_ids=ids, attention_mask=mask, **extra).logits[:, -1].float()


def cache_argument(arguments: frozenset[str]) -> str:
    """What the model's forward calls its key-value cache, "" when it has none."""
    return next((name for name in ("cache", "past_key_values") if name in arguments), "")


def truncated(probabilities: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities [B, V] after top-k and top-p, renormalised; as they are when both are off."""
    if not sampling.top_k and sampling.top_p == 1.0:
        return probabilities
    logits = probabilities.log()
    if sampling.top_k:
        logits = TopKLogitsWarper(sampling.top_k)(None, logits)
    if sampling.top_p < 1.0:
        logits = TopPLogitsWarper(sampling.top_p)(None, logits)
    return torch.softmax(logits, -1)


def draw(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """One token per row [B] by inverting the cumulative distribution, first of blocks, then inside one.

    Never a token of probability zero. Several times faster than torch.multinomial on CPU, and one pass over a
    large vocabulary instead of a full cumulative sum.
    """
    if padding := -probabilities.shape[1] % BLOCK:
        probabilities = torch.nn.functional.pad(probabilities, (0, padding))
    blocks = probabilities.view(len(probabilities), -1, BLOCK)
    sums = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    uniform = torch.rand(len(sums), 1, dtype=torch.float64, generator=generator, device=generator.device)
    target = uniform * sums[:, -1:]
    block = _first_above(sums, target)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks[torch.arange(len(blocks), device=blocks.device), block[:, 0]].double().cumsum(-1)
    return (block * BLOCK + _first_above(inside, target - before)).squeeze(1)


def _first_above(cumulative: Tensor, target: Tensor) -> Tensor:
    """[B, 1] index of the first entry of each row greater than target [B, 1]; the last positive step at the end."""
    index = torch.searchsorted(cumulative, target, right=True)
    last = (cumulative < cumulative[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum(index, last)
