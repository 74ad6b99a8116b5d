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
from pathlib import Path

os.environ.setdefault("WANDB_MODE", "disabled")

import torch
import typer
from comlrl.trainers.reinforce import MAGRPOConfig as TheirConfig
from comlrl.trainers.reinforce import MAGRPOTrainer as TheirTrainer
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

import workbench
from workbench import MAGRPOConfig, MAGRPOTrainer

STORYTELLER = Path(workbench.__file__).parent / "models" / "builtin" / "storyteller"


def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(STORYTELLER)


SHAPES = {  # vocabulary, hidden size, intermediate size, layers: about 3 million parameters each
    "chat-vocabulary": (49_152, 64, 160, 2),  # as many words as SmolLM2 knows
    "deep": (2048, 128, 352, 13),
    "storyteller": (2048, 224, 640, 4),
}


def small_model(shape: str) -> LlamaForCausalLM:
    """A random Llama that all but never writes eos: both sides generate to the limit."""
    torch.manual_seed(0)
    words, hidden, intermediate, layers = SHAPES[shape]
    config = AutoConfig.from_pretrained(
        STORYTELLER, vocab_size=words, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=hidden // 32, head_dim=32,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def reward(first: list[str], second: list[str]) -> list[float]:
    return [float(a[:1] == b[:1]) + 0.01 * len(set(a) & set(b)) for a, b in zip(first, second)]


def transition(prompt: str, agent_completions: list[str], **_: object) -> list[str]:
    return [f"{prompt} The other wrote {text[:20]}. Again:" for text in reversed(agent_completions)]


def prompts(count: int, words: int) -> list[dict[str, str]]:
    filler = [
        "tell",
        "a",
        "short",
        "story",
        "about",
        "the",
        "fox",
        "and",
        "the",
        "old",
        "bridge",
        "by",
        "the",
        "river",
        "where",
        "the",
        "lantern",
        "shone",
    ]
    return [{"prompt": f"Item {i}: " + " ".join(filler[k % len(filler)] for k in range(words))} for i in range(count)]


def trainer(kind: str, generations: int, tokens: int, items: int, words: int, shape: str):
    """A trainer of either side over `items` equal items, one epoch."""
    config, cls = (MAGRPOConfig, MAGRPOTrainer) if kind == "ours" else (TheirConfig, TheirTrainer)
    args = config(
        num_turns=2, num_generations=generations, max_new_tokens=tokens, num_train_epochs=1, temperature=1.0,
        top_p=1.0, top_k=None if kind == "ours" else 0, early_termination_threshold=None, eval_interval=0,
        agent_learning_rate=1e-4,
    )  # fmt: skip
    return cls(
        agents=[small_model(shape), small_model(shape)], tokenizer=tokenizer(), reward_func=reward, args=args,
        train_dataset=prompts(items, words),
        external_transition=transition,
    )  # fmt: skip


def seconds_per_item(kind: str, generations: int, tokens: int, items: int, words: int, shape: str) -> float:
    subject = trainer(kind, generations, tokens, items, words, shape)
    start = time.perf_counter()
    subject.train()
    return (time.perf_counter() - start) / items


def main(
    generations: int = 4,
    tokens: int = 32,
    words: int = 16,
    shape: str = "chat-vocabulary",
    items: int = 2,
    rounds: int = 5,
    threads: int = 2,
) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    size = sum(p.numel() for p in small_model(shape).parameters()) / 1e6
    print(
        f"{size:.2f} M parameters ({shape}), K = {generations}, 2 turns, prompts of {words} words, {tokens} new tokens"
    )
    print(f"2 agents, {threads} threads, {items} items per measurement")
    ratios = []
    for i in range(rounds + 1):
        theirs = seconds_per_item("comlrl", generations, tokens, items, words, shape)
        ours = seconds_per_item("ours", generations, tokens, items, words, shape)
        label = "warm-up" if i == 0 else f"round {i}"
        print(
            f"{label}: comlrl {theirs:.2f} s/item, marl-workbench {ours:.2f} s/item, ratio {theirs / ours:.2f}",
            flush=True,
        )
        if i:
            ratios.append(theirs / ours)
    print(f"median ratio {statistics.median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})")


if __name__ == "__main__":
    typer.run(main)
