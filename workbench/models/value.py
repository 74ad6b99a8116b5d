"""Reading a value off a language model: the last hidden state of a sequence and a float32 head."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from workbench.models.batching import left_padded, positions
from workbench.models.language_model import inner_model

HEAD_FILE = "value_head.safetensors"


class ValueHead(nn.Module):
    """hidden state [B, d] -> value [B], in float32. hidden_dim None: linear; else one tanh layer between.

    The last layer starts at zero, so an untrained critic says 0 and its first TD error is the reward.
    """

    def __init__(self, size: int, hidden_dim: int | None, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            last = nn.Linear(hidden_dim or size, 1)
            self.layers = nn.Sequential(nn.Linear(size, hidden_dim), nn.Tanh(), last) if hidden_dim else last
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.layers(hidden.float()).squeeze(-1)

    def save(self, folder: Path) -> None:
        """Write the head beside the model of `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous().cpu() for name, tensor in self.state_dict().items()}, folder / HEAD_FILE)

    @classmethod
    def load(cls, folder: Path) -> ValueHead:
        """The head that `save` wrote."""
        tensors = load_file(folder / HEAD_FILE)
        first = tensors.get("layers.0.weight", tensors.get("layers.weight"))
        assert first is not None
        head = cls(first.shape[1], first.shape[0] if "layers.0.weight" in tensors else None, seed=0)
        head.load_state_dict(tensors)
        return head


def hidden_size(model: Any) -> int:
    """Width of the model's last hidden state."""
    return int(model.config.get_text_config().hidden_size)


def last_hidden(model: Any, sequences: Sequence[Sequence[int]], pad: int, device: torch.device) -> Tensor:
    """[B, d]: the last hidden state at each sequence's last token; no language-model logits are computed."""
    ids, mask = left_padded(sequences, pad, device)
    backbone = inner_model(model).base_model
    accepts = inspect.signature(backbone.forward).parameters
    optional = {"position_ids": positions(mask), "use_cache": False}
    extra = {name: value for name, value in optional.items() if name in accepts}
    hidden: Tensor = backbone(input_ids=ids, attention_mask=mask, **extra).last_hidden_state
    return hidden[:, -1]
