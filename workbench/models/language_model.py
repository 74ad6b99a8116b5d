"""A language model with its tokenizer on one device: it samples, and it scores what was sampled.

Ids, texts and numbers go in and out, never tensors, so that the same object can answer from
another process. It knows nothing of rewards, advantages or other agents.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from workbench import objectives
from workbench.config import TrainingConfig
from workbench.models.batching import ScoringBatch, left_padded, micro_batches, scoring_batch
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
        self.pad = next((i for i in (tokenizer.pad_token_id, *sorted(self.terminators)) if i is not None), 0)
        self.context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.accepts = frozenset(inspect.signature(inner_model(model).forward).parameters)

    # --- sampling -----------------------------------------------------------------------------

    def generate(self, prompts: Sequence[Prompt], count: int, sampling: Sampling, seed: int) -> list[list[Completion]]:
        """`count` completions of every prompt, [len(prompts)][count]; the seed alone decides the draw."""
        encoded = [self.encode(p) for p in prompts]
        for text, ids in encoded:
            self._check_length(text, len(ids), sampling.max_new_tokens)
        rows = [row for row in encoded for _ in range(count)]
        size = sampling.batch_size or len(rows)
        with self._seeded(seed), torch.inference_mode():
            flat = [c for i in range(0, len(rows), size) for c in self._sample(rows[i : i + size], sampling)]
        return [flat[i : i + count] for i in range(0, len(flat), count)]

    def _sample(self, rows: Sequence[tuple[str, tuple[int, ...]]], sampling: Sampling) -> list[Completion]:
        ids, mask = left_padded([row_ids for _, row_ids in rows], self.pad, self.device)
        recorder = ScoreRecorder(sampling.temperature)
        settings = self._generation_config(sampling)
        with _generation_defaults(self.model, settings):
            out = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=settings,
                logits_processor=LogitsProcessorList([recorder]),
            )
        tokens = out[:, ids.shape[1] :]
        logprobs = recorder.logprobs(tokens)
        lengths = [self._length(row) for row in tokens.tolist()]
        is_completion = (
            torch.arange(tokens.shape[1], device=out.device) < torch.tensor(lengths, device=out.device)[:, None]
        )
        scores = objectives.sequence_score(logprobs, is_completion).tolist()
        return [
            self._completion(text, prompt_ids, tuple(row[:length]), score)
            for (text, prompt_ids), row, length, score in zip(rows, tokens.tolist(), lengths, scores)
        ]

    def _completion(self, text: str, prompt_ids: tuple[int, ...], ids: tuple[int, ...], score: float) -> Completion:
        return Completion(
            prompt=text,
            prompt_ids=prompt_ids,
            text=self.encode.decode(ids),
            token_ids=ids,
            finished=ids[-1] in self.terminators,
            logprob=score,
        )

    def _length(self, row: list[int]) -> int:
        """Tokens up to and including the first terminator: exactly where generation stopped."""
        return next((i + 1 for i, token in enumerate(row) if token in self.terminators), len(row))

    def _generation_config(self, sampling: Sampling) -> GenerationConfig:
        return GenerationConfig(
            do_sample=True,
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            eos_token_id=sorted(self.terminators) or None,
            pad_token_id=self.pad,
        )

    def _check_length(self, text: str, prompt_tokens: int, new_tokens: int) -> None:
        if self.context and prompt_tokens + new_tokens > self.context:
            raise ValueError(
                f"{self.name}'s prompt of {prompt_tokens} tokens plus max_new_tokens {new_tokens} exceeds its context "
                f"of {self.context} tokens; shorten the prompt or lower max_new_tokens (prompt starts {text[:80]!r})."
            )

    @contextlib.contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        """Draw from `seed` and leave the process's random state as it was."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield

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
        """[B, T, V], computed only in the columns that predict a completion token."""
        width = batch.tokens.shape[1]
        optional = {"position_ids": batch.position_ids, "logits_to_keep": width, "use_cache": False}
        extra = {name: value for name, value in optional.items() if name in self.accepts}
        logits = self.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, **extra).logits
        return logits[:, -width:]

    def save(self, folder: Path) -> None:
        """Model and tokenizer, readable by from_pretrained."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


class ScoreRecorder(LogitsProcessor):
    """Notes log pi of every sampled token while it is generated, before any truncation.

    A processor sees a step's logits before its token is drawn, so the token is looked up one call
    later; that keeps one [B, V] row instead of all steps' logits.
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.pending: Tensor | None = None
        self.columns: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self._resolve(input_ids[:, -1:])
        self.pending = scores.clone()
        return scores

    def logprobs(self, tokens: Tensor) -> Tensor:
        """[B, T] of the generated tokens, once generation is over."""
        self._resolve(tokens[:, -1:])
        return torch.cat(self.columns, 1)

    def _resolve(self, tokens: Tensor) -> None:
        if self.pending is not None:
            self.columns.append(objectives.token_logprobs(self.pending[:, None], tokens, self.temperature))


def terminators(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token id that ends a completion: the model's eos ids and the tokenizer's."""
    found: set[int] = set()
    for ids in (getattr(model.generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(found)


@contextlib.contextmanager
def _generation_defaults(model: Any, settings: GenerationConfig) -> Iterator[None]:
    """Hide the checkpoint's own generation defaults, which would fill every setting we leave open."""
    inner = inner_model(model)
    own, inner.generation_config = inner.generation_config, settings
    try:
        yield
    finally:
        inner.generation_config = own


def inner_model(model: Any) -> Any:
    """The transformers model inside a peft wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
