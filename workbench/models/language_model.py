"""A language model with its tokenizer on one device: it samples, and it scores what was sampled.

Ids, texts and numbers go in and out, never tensors, so that the same object can answer from
another process. It knows nothing of rewards, advantages or other agents.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from workbench import objectives
from workbench.config import TrainingConfig
from workbench.models.batching import ScoringBatch, micro_batches, positions, scoring_batch
from workbench.models.decoding import Decoder
from workbench.models.loading import ModelError
from workbench.models.text import PromptEncoder
from workbench.types import Completion, Prompt, Sampling


class LanguageModel:
    """A model that is not trained: a frozen reference, or the base of a Policy.

    name: how errors call it, such as "agent 0". Dropout is off for good, since the sampled and the
    scored policy must be one function.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: TrainingConfig,
        device: torch.device,
        name: str,
    ) -> None:
        self.model = model.to(device).eval()
        self.tokenizer = tokenizer
        self.config = config
        self.device = device
        self.name = name
        self.encode = PromptEncoder(tokenizer, name)
        self.terminators = terminators(model, tokenizer)
        self.pad = pad_id(model, tokenizer)
        self.context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.accepts = frozenset(inspect.signature(inner_model(model).forward).parameters)
        self.decoder = Decoder(self.model, self.accepts, self.terminators, self.pad)

    # --- sampling -----------------------------------------------------------------------------

    def generate(self, prompts: Sequence[Prompt], count: int, sampling: Sampling, seed: int) -> list[list[Completion]]:
        """`count` completions of every prompt, [len(prompts)][count]; the seed alone decides the draw."""
        encoded = [self.encode(p) for p in prompts]
        for text, ids in encoded:
            self._check_length(text, len(ids), sampling.max_new_tokens)
        generator = torch.Generator(self.device).manual_seed(seed)
        flat: list[Completion] = []
        for rows, repeats in _chunks(encoded, count, sampling.batch_size):
            flat += self._sample(rows, repeats, sampling, generator)
        return [flat[i : i + count] for i in range(0, len(flat), count)]

    def _sample(
        self, rows: Sequence[tuple[str, tuple[int, ...]]], count: int, sampling: Sampling, generator: torch.Generator
    ) -> list[Completion]:
        tokens, scores = self.decoder.sample([ids for _, ids in rows], count, sampling, generator)
        if not all(map(math.isfinite, scores)):
            raise ModelError(
                f"{self.name} gives probabilities that are not finite: its weights are damaged or overflowed; "
                "load a good copy, use float32 or bfloat16 instead of float16, or raise temperature."
            )
        sources = [row for row in rows for _ in range(count)]
        return [
            Completion(
                prompt=text,
                prompt_ids=prompt_ids,
                text=self.encode.decode(ids),
                token_ids=tuple(ids),
                finished=ids[-1] in self.terminators,
                logprob=score,
            )
            for (text, prompt_ids), ids, score in zip(sources, tokens, scores)
        ]

    def _check_length(self, text: str, prompt_tokens: int, new_tokens: int) -> None:
        if self.context and prompt_tokens + new_tokens > self.context:
            raise ValueError(
                f"{self.name}'s prompt of {prompt_tokens} tokens plus max_new_tokens {new_tokens} exceeds its context "
                f"of {self.context} tokens; shorten the prompt or lower max_new_tokens (prompt starts {text[:80]!r})."
            )

    # --- scoring ------------------------------------------------------------------------------

    @torch.no_grad()
    def token_logprobs(self, completions: Sequence[Completion]) -> list[list[float]]:
        """log pi of each completion's tokens under the present weights, [len(completions)][T]."""
        result: list[list[float]] = [[] for _ in completions]
        for indices in micro_batches(completions, self.config.micro_batch_size):
            batch = scoring_batch([completions[i] for i in indices], self.pad, self.device)
            logprobs = objectives.token_logprobs(self._logits(batch), batch.tokens, self.config.temperature)
            for i, row in zip(indices, logprobs.tolist()):
                result[i] = row[: len(completions[i].token_ids)]
        return result

    def _logits(self, batch: ScoringBatch) -> Tensor:
        """[B, T, V], computed only in the columns that predict a completion token.

        A long prompt that several completions share is read once: its keys and values, gradient
        included, serve all of them.
        """
        cache = self.decoder.cache_name
        if batch.worth_sharing and cache and not self.config.gradient_checkpointing:  # checkpointing excludes caches
            return self._logits_after_shared_prompts(batch, cache)
        mask = torch.cat([batch.prompt_mask[batch.prompt_of], batch.is_completion.long()], 1)[:, :-1]
        ids = torch.cat([batch.prompts[batch.prompt_of], batch.tokens], 1)[:, :-1]
        return self._forward(ids, mask, positions(mask), batch.tokens.shape[1])

    def _logits_after_shared_prompts(self, batch: ScoringBatch, cache_name: str) -> Tensor:
        cache = DynamicCache(config=self.model.config)
        first = self._forward(batch.prompts, batch.prompt_mask, positions(batch.prompt_mask), 1, {cache_name: cache})
        first = first[batch.prompt_of]
        if batch.tokens.shape[1] == 1:
            return first
        cache.batch_select_indices(batch.prompt_of)
        fed = batch.is_completion[:, :-1].long()
        mask = torch.cat([batch.prompt_mask[batch.prompt_of], fed], 1)
        where = positions(mask)[:, -fed.shape[1] :]
        rest = self._forward(batch.tokens[:, :-1], mask, where, fed.shape[1], {cache_name: cache})
        return torch.cat([first, rest], 1)

    def _forward(
        self, ids: Tensor, mask: Tensor, position_ids: Tensor, keep: int, cache: Mapping[str, Any] | None = None
    ) -> Tensor:
        """Logits of the last `keep` columns."""
        optional = {"position_ids": position_ids, "logits_to_keep": keep, "use_cache": cache is not None}
        extra = {name: value for name, value in optional.items() if name in self.accepts}
        return self.model(input_ids=ids, attention_mask=mask, **extra, **(cache or {})).logits[:, -keep:]

    def write_model(self, file: Path) -> None:
        """The model object as it is, for another process of this run."""
        torch.save(self.model, file)

    def save(self, folder: Path) -> None:
        """Model and tokenizer, readable by from_pretrained."""
        save_whole(self.model, folder)
        self.tokenizer.save_pretrained(folder)


def save_whole(model: Any, folder: Path) -> None:
    """A model that loads with one call; an adapter is merged into it and lies beside it, too."""
    if hasattr(model, "merge_and_unload"):
        model.save_pretrained(folder / "adapter")
        model = copy.deepcopy(model).merge_and_unload()
    model.save_pretrained(folder)


def _chunks(
    encoded: Sequence[tuple[str, tuple[int, ...]]], count: int, size: int | None
) -> Iterator[tuple[Sequence[tuple[str, tuple[int, ...]]], int]]:
    """(prompts, completions each) per forward, at most `size` sequences: whole prompts, or parts of one."""
    if size is None or size >= count:
        step = len(encoded) if size is None else size // count
        for i in range(0, len(encoded), step):
            yield encoded[i : i + step], count
        return
    for row in encoded:
        for i in range(0, count, size):
            yield [row], min(size, count - i)


def pad_id(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """An id to fill rectangles with; it is always masked, but must exist in the model's embedding."""
    pad = tokenizer.pad_token_id
    return pad if pad is not None and pad < model.get_input_embeddings().weight.shape[0] else 0


def terminators(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token id that ends a completion: the model's eos ids and the tokenizer's."""
    found: set[int] = set()
    for ids in (getattr(model.generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(found)


def inner_model(model: Any) -> Any:
    """The transformers model inside a peft wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
