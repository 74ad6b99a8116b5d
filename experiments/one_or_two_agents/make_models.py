"""Make the two random models of this experiment: `half` for each of two agents, `whole` for one agent alone.

python experiments/one_or_two_agents/make_models.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from workbench.models.tiny import tiny_model, tiny_tokenizer

FOLDER = Path(__file__).parent / "models"
WIDER = {"hidden_size": 104, "intermediate_size": 134}  # found by trying: 32 parameters short of twice the half
SEED = 0


def main() -> None:
    half = tiny_model(SEED)
    torch.manual_seed(SEED)
    whole = LlamaForCausalLM(LlamaConfig(**half.config.to_dict() | WIDER | {"head_dim": None}))
    whole.generation_config = half.generation_config
    for name, model in {"half": half, "whole": whole}.items():
        model.save_pretrained(FOLDER / name)
        tiny_tokenizer().save_pretrained(FOLDER / name)
        print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
