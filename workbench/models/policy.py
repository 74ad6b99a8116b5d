"""A policy worker: a language model that learns from weighted completions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_layers import GradientCheckpointingLayer

from workbench import objectives
from workbench.config import TrainingConfig
from workbench.models.batching import micro_batches, scoring_batch
from workbench.models.language_model import LanguageModel
from workbench.models.learner import Learner, Resumable, TrainingDiverged
from workbench.models.loading import ModelError
from workbench.types import Term, UpdateResult


class Policy(LanguageModel, Resumable):
    """One agent's language model and its optimizer. planned_updates: see Learner."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: TrainingConfig,
        device: torch.device,
        name: str,
        planned_updates: int = 1,
    ) -> None:
        super().__init__(model, tokenizer, config, device, name)
        if config.gradient_checkpointing:
            enable_checkpointing(model, name)
        self.learner = self._learner(planned_updates)

    def _learner(self, planned_updates: int) -> Learner:
        return Learner([self.model], self.config, self.config.agent_learning_rate, planned_updates, self.name)

    def update(self, terms: Sequence[Term]) -> UpdateResult:
        """One optimizer step on the loss of all terms, accumulated over micro-batches.

        Raises TrainingDiverged before the step when a score or the gradient is not finite.
        """
        self.learner.clear()
        scores, entropies, value_loss = [0.0] * len(terms), [0.0] * len(terms), 0.0
        for indices in micro_batches([t.completion for t in terms], self.config.micro_batch_size):
            score, entropy, loss, part = self._losses([terms[i] for i in indices])
            loss.backward()
            value_loss += float(part.detach() if isinstance(part, Tensor) else part)
            for i, s, e in zip(indices, score.tolist(), entropy.tolist()):
                scores[i], entropies[i] = s, e
        norm = self._clip(terms)
        return UpdateResult(tuple(scores), tuple(entropies), norm, self.learner.step(), value_loss)

    def _losses(self, terms: Sequence[Term]) -> tuple[Tensor, Tensor, Tensor, Tensor | float]:
        """Scores [B], entropies [B], the loss of this micro-batch, and its value loss (none here)."""
        batch = scoring_batch([t.completion for t in terms], self.pad, self.device)
        logits = self._logits(batch)
        logprobs = objectives.token_logprobs(logits, batch.tokens, self.config.temperature)
        scores = objectives.sequence_score(logprobs, batch.is_completion)
        self._check_scores(scores, terms)
        weights = torch.tensor([t.weight for t in terms], device=self.device)
        shares = torch.tensor([t.share for t in terms], device=self.device)
        with torch.no_grad():
            entropies = objectives.mean_token_entropy(logits, batch.is_completion, self.config.temperature)
        return scores, entropies, objectives.policy_gradient_loss(scores, weights, shares), 0.0

    def _check_scores(self, scores: Tensor, terms: Sequence[Term]) -> None:
        for score, term in zip(scores.tolist(), terms):
            if not math.isfinite(score) or not math.isfinite(term.weight):
                self.learner.clear()
                raise TrainingDiverged(
                    f"{self.name}'s loss is not finite (log-probability {score}, advantage {term.weight}) at "
                    f"{term.where}, completion {term.completion.text[:80]!r}; "
                    "lower agent_learning_rate or check the rewards."
                )

    def _clip(self, terms: Sequence[Term]) -> float:
        norm = self.learner.clip()
        if not math.isfinite(norm):
            self.learner.clear()
            worst = max(terms, key=lambda t: abs(t.weight))
            raise TrainingDiverged(
                f"{self.name}'s gradient is not finite; the largest advantage ({worst.weight:g}) is at {worst.where}, "
                f"completion {worst.completion.text[:80]!r}; lower agent_learning_rate or clip the rewards."
            )
        return norm

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), **self.learner.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Inverse of `state`; see Learner.load_state for what the present configuration keeps."""
        self.model.load_state_dict(state["model"])
        self.learner.load_state(state)


def enable_checkpointing(model: PreTrainedModel, name: str) -> None:
    """Recompute each layer's activations in the backward pass.

    The model's own switch works in training mode only, which would bring dropout back and make
    some models drop their cache while sampling; so the layers are wrapped one by one.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(
            f"{name}'s model ({type(model).__name__}) does not support gradient_checkpointing; turn it off."
        )
    for layer in layers:
        if isinstance(layer.forward, functools.partial):
            continue  # wrapped by an earlier trainer of the same model
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
