"""Items per second of this library and of the public package comlrl, side by side in one process.

Question: how much faster is one training item (rollout tree, rewards, updates) than in comlrl, with
the same model, tokenizer, callbacks and settings? Both train a two-turn tree: 1 + K nodes per item.
Run: pip install -e '.[bench]' && python experiments/benchmarks/versus_comlrl.py
"""

from __future__ import annotations

import os
import statistics
import time
import warnings

os.environ.setdefault("WANDB_MODE", "disabled")

import torch
import typer
from comlrl.trainers.reinforce import MAGRPOConfig as TheirConfig
from comlrl.trainers.reinforce import MAGRPOTrainer as TheirTrainer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from workbench import MAGRPOConfig, MAGRPOTrainer
from workbench.models.tiny import tiny_tokenizer

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def small_model() -> LlamaForCausalLM:
    """A random Llama of 3.3 million parameters that all but never writes eos: both sides generate to the limit."""
    torch.manual_seed(0)
    size = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=259, tie_word_embeddings=True, **size, **IDS))
    model.generation_config = GenerationConfig(**IDS)
    return model


def reward(first: list[str], second: list[str]) -> list[float]:
    return [float(a[:1] == b[:1]) + 0.01 * len(set(a) & set(b)) for a, b in zip(first, second)]


def transition(prompt: str, agent_completions: list[str], **_: object) -> list[str]:
    return [f"{prompt} The other wrote {text[:20]}. Again:" for text in reversed(agent_completions)]


def trainer(kind: str, generations: int, tokens: int, items: int):  # noqa: ANN201 - one of two unrelated classes
    """A trainer of either side over `items` equal items, one epoch."""
    config, cls = (MAGRPOConfig, MAGRPOTrainer) if kind == "ours" else (TheirConfig, TheirTrainer)
    args = config(
        num_turns=2, num_generations=generations, max_new_tokens=tokens, num_train_epochs=1, temperature=1.0,
        top_p=1.0, top_k=None if kind == "ours" else 0, early_termination_threshold=None, eval_interval=0,
        agent_learning_rate=1e-4,
    )  # fmt: skip
    return cls(
        agents=[small_model(), small_model()], tokenizer=tiny_tokenizer(), reward_func=reward, args=args,
        train_dataset=[{"prompt": f"Item {i}: write something."} for i in range(items)],
        external_transition=transition, **({"wandb_config": None}),
    )  # fmt: skip


def seconds_per_item(kind: str, generations: int, tokens: int, items: int) -> float:
    subject = trainer(kind, generations, tokens, items)
    start = time.perf_counter()
    subject.train()
    return (time.perf_counter() - start) / items


def main(generations: int = 4, tokens: int = 32, items: int = 2, rounds: int = 5, threads: int = 2) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    print(f"{sum(p.numel() for p in small_model().parameters()) / 1e6:.2f} M parameters, K = {generations}, 2 turns, "
          f"{tokens} tokens, 2 agents, {threads} threads, {items} items per measurement")  # fmt: skip
    ratios = []
    for i in range(rounds + 1):
        theirs = seconds_per_item("comlrl", generations, tokens, items)
        ours = seconds_per_item("ours", generations, tokens, items)
        label = "warm-up" if i == 0 else f"round {i}"
        print(f"{label}: comlrl {theirs:.2f} s/item, marl-workbench {ours:.2f} s/item, ratio {theirs / ours:.2f}", flush=True)
        if i:
            ratios.append(theirs / ours)
    print(f"median ratio {statistics.median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})")


if __name__ == "__main__":
    typer.run(main)
