"""Models whose workers misbehave in the ways of real ones; a worker must be able to import this file."""

import os
import sys
import warnings

import torch
from transformers import GPT2Config, GPT2LMHeadModel


class Exact(Exception):
    """Cannot be built again from its words alone, so it cannot be pickled."""

    def __init__(self, reason, code):
        super().__init__(f"{reason}, code {code}")


class Moody(GPT2LMHeadModel):
    """Does what the first letter of the prompt says."""

    def forward(self, input_ids=None, **inputs):
        first = chr(int(input_ids[0, 1]) - 3 + ord("!")) if input_ids.shape[1] > 1 else ""  # byte tokens, after bos
        if first == "w":
            warnings.warn("the weather changes", stacklevel=1)
        if first == "e":
            raise Exact("out of paper", 7)
        if first == "a":
            print("loading the kernel\nassertion failed in line 3", file=sys.stderr, flush=True)
            os.abort()
        return super().forward(input_ids=input_ids, **inputs)


def gpt2(seed=3, kind=GPT2LMHeadModel):
    """A small model of another family than builtin:tiny, with its vocabulary."""
    torch.manual_seed(seed)
    return kind(GPT2Config(vocab_size=259, n_positions=256, n_embd=32, n_layer=2, n_head=2, eos_token_id=2,
                           bos_token_id=1, pad_token_id=0))  # fmt: skip
