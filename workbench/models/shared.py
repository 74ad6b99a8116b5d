"""The shared-model actor-critic worker: a policy whose backbone also carries a value head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workbench import objectives
from workbench.config import IACConfig
from workbench.models.batching import positions, scoring_batch
from workbench.models.language_model import inner_model
from workbench.models.learner import Learner
from workbench.models.policy import Policy
from workbench.models.value import ValueHead, hidden_size, last_hidden
from workbench.types import CriticInput, Term


class SharedPolicy(Policy):
    """Actor and critic in one model: one forward gives the scores and the values, one step updates both."""

    config: IACConfig

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: IACConfig,
        device: torch.device,
        name: str,
        planned_updates: int = 1,
    ) -> None:
        self.head = ValueHead(hidden_size(model), config.value_head_hidden_dim, config.seed).to(device)
        super().__init__(model, tokenizer, config, device, name, planned_updates)

    def _learner(self, planned_updates: int) -> Learner:
        parts = [self.model, self.head]
        return Learner(parts, self.config, self.config.agent_learning_rate, planned_updates, self.name)

    @torch.no_grad()
    def values(self, inputs: Sequence[CriticInput]) -> list[float]:
        """The value at the end of each token sequence, without language-model logits."""
        sequences = [ids for ids in inputs if not isinstance(ids, str)]  # IAC's critics read token ids only
        size = self.config.micro_batch_size or max(len(sequences), 1)
        chunks = [sequences[i : i + size] for i in range(0, len(sequences), size)]
        hidden = [last_hidden(self.model, chunk, self.pad, self.device) for chunk in chunks]
        return [float(v) for h in hidden for v in self.head(h).tolist()]

    def _losses(self, terms: Sequence[Term]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores [B], entropies [B], the loss of this micro-batch, and its unweighted value loss."""
        batch = scoring_batch([t.completion for t in terms], self.pad, self.device)
        width = batch.tokens.shape[1]
        mask = torch.cat([batch.prompt_mask[batch.prompt_of], batch.is_completion.long()], 1)
        ids = torch.cat([batch.prompts[batch.prompt_of], batch.tokens], 1)
        logits, hidden = self._with_hidden(ids, mask, width + 1)
        logprobs = objectives.token_logprobs(logits[:, :-1], batch.tokens, self.config.temperature)
        scores = objectives.sequence_score(logprobs, batch.is_completion)
        self._check_scores(scores, terms)
        # Column 0 is the last token of the history (V); column t is completion token t (Q: the last one).
        column = batch.is_completion.sum(1) if self.config.critic_type == "q" else torch.zeros_like(batch.prompt_of)
        values = self.head(hidden[torch.arange(len(terms), device=self.device), column])
        weights, shares, targets, old = (
            torch.tensor([getattr(t, name) for t in terms], device=self.device)
            for name in ("weight", "share", "target", "old_value")
        )
        value_loss = objectives.clipped_value_loss(values, old, targets, shares, self.config.value_clip_range)
        loss = objectives.policy_gradient_loss(scores, weights, shares) + self.config.value_loss_coef * value_loss
        with torch.no_grad():
            entropies = objectives.mean_token_entropy(logits[:, :-1], batch.is_completion, self.config.temperature)
        return scores, entropies, loss, value_loss

    def _with_hidden(self, ids: Tensor, mask: Tensor, keep: int) -> tuple[Tensor, Tensor]:
        """Logits and last hidden states of the last `keep` columns; no other layer's states are kept."""
        seen: list[Tensor] = []
        output = inner_model(self.model).get_output_embeddings()
        hook = output.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        try:
            logits = self._forward(ids, mask, positions(mask), keep)
        finally:
            hook.remove()
        return logits, seen[-1][:, -keep:]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "head": self.head.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.head.load_state_dict(state["head"])
        super().load_state(state)

    def save(self, folder: Path) -> None:
        super().save(folder)
        self.head.save(folder)
