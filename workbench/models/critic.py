"""A critic worker: a language-model backbone with a value head and its own optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from workbench import objectives
from workbench.config import ActorCriticConfig
from workbench.models.language_model import inner_model, pad_id, save_whole
from workbench.models.learner import Learner, Resumable, TrainingDiverged
from workbench.models.loading import ModelError
from workbench.models.policy import enable_checkpointing
from workbench.models.value import ValueHead, hidden_size, last_hidden
from workbench.types import CriticInput, ValueResult, ValueTerm


class Critic(Resumable):
    """V(h) or Q(h, a) at the last token of what it reads: a text, or token ids of its actor.

    name: how errors call it, such as "critic 0".
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: ActorCriticConfig,
        device: torch.device,
        name: str,
        hidden_dim: int | None = None,
        planned_updates: int = 1,
    ) -> None:
        check_room(model, tokenizer, name)
        self.model = model.to(device).eval()
        output = inner_model(model).get_output_embeddings()
        if output is not None and not inner_model(model).config.tie_word_embeddings:
            output.requires_grad_(False)  # no logits are computed, so it would never get a gradient
        if config.gradient_checkpointing:
            enable_checkpointing(model, name)
        self.head = ValueHead(hidden_size(model), hidden_dim, config.seed).to(device)
        self.tokenizer = tokenizer
        self.config = config
        self.device = device
        self.name = name
        self.pad = pad_id(model, tokenizer)
        self.context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.learner = Learner([model, self.head], config, config.critic_learning_rate, planned_updates, name)

    @torch.no_grad()
    def values(self, inputs: Sequence[CriticInput]) -> list[float]:
        """The value of each input under the present weights."""
        sequences = [self._ids(i) for i in inputs]
        values = [self._values(sequences[i : i + self._size(sequences)]) for i in self._starts(sequences)]
        return [float(v) for chunk in values for v in chunk.tolist()]

    def update(self, terms: Sequence[ValueTerm]) -> ValueResult:
        """One optimizer step on value_loss_coef * value_loss. Raises TrainingDiverged before a non-finite step."""
        self.learner.clear()
        loss = sum(self._accumulate(terms[i : i + self._size(terms)]) for i in self._starts(terms))
        norm = self.learner.clip()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.learner.clear()
            worst = max(terms, key=lambda t: abs(t.target))
            raise TrainingDiverged(
                f"{self.name}'s loss ({loss}) or gradient norm ({norm}) is not finite; the largest target "
                f"({worst.target:g}) is at {worst.where}; lower critic_learning_rate or scale the rewards."
            )
        self.learner.step()
        return ValueResult(loss, norm)

    def _accumulate(self, terms: Sequence[ValueTerm]) -> float:
        values = self._values([self._ids(t.input) for t in terms])
        targets = torch.tensor([t.target for t in terms], device=self.device)
        shares = torch.tensor([t.share for t in terms], device=self.device)
        loss = objectives.value_loss(values, targets, shares)
        (self.config.value_loss_coef * loss).backward()
        return float(loss.detach())

    def _values(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        return self.head(last_hidden(self.model, sequences, self.pad, self.device))

    def _size(self, items: Sequence[Any]) -> int:
        return self.config.micro_batch_size or len(items)

    def _starts(self, items: Sequence[Any]) -> range:
        return range(0, len(items), self._size(items) or 1)

    def _ids(self, given: CriticInput) -> Sequence[int]:
        ids = self.tokenizer(given).input_ids if isinstance(given, str) else given
        if self.context and len(ids) > self.context:
            kind = "joint text" if isinstance(given, str) else "history"
            raise ValueError(
                f"{self.name} would read a {kind} of {len(ids)} tokens, but its context is {self.context}; "
                "shorten the prompts, lower max_new_tokens, or use a critic with a longer context."
            )
        return ids

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "head": self.head.state_dict(), **self.learner.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.head.load_state_dict(state["head"])
        self.learner.load_state(state)

    def save(self, folder: Path) -> None:
        """Backbone, value head and tokenizer; `load_critic` reads them back."""
        save_whole(self.model, folder)
        self.tokenizer.save_pretrained(folder)
        self.head.save(folder)


def check_room(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Every token that the actor may write needs an embedding in its critic."""
    room = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > room:
        raise ModelError(
            f"{name} knows {room} tokens, but its actor's tokenizer has {len(tokenizer)}; "
            "use a critic that was made for the actor's tokenizer."
        )


def load_critic(folder: str | Path) -> tuple[PreTrainedModel, ValueHead]:
    """Model and value head of a saved critic (`critic*/`) or of a shared-model agent (`agent_i/`)."""
    return AutoModelForCausalLM.from_pretrained(folder), ValueHead.load(Path(folder))
