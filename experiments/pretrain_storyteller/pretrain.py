"""Pre-train `builtin:storyteller`: corpus, tokenizer, model and held-out loss in one run on a CPU.

    python experiments/pretrain_storyteller/pretrain.py

writes a Hugging Face folder to `workbench/models/builtin/storyteller` and the figures to `results.json`.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from stories import Document, documents, prompt_openings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

REPO = Path(__file__).resolve().parents[2]
BUILTIN = REPO / "workbench" / "models" / "builtin"
BOS, EOS, PAD = "<|bos|>", "<|eos|>", "<|pad|>"
USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL = [BOS, EOS, PAD, USER, ASSISTANT, END]
# A system message has no turn of its own: it stands in front of the first user text.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% set ns = namespace(system='') %}"
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.system = ns.system + m.content + ' ' %}"
    "{% elif m.role == 'user' %}<|user|>{{ ns.system + m.content }}<|end|>{% set ns.system = '' %}"
    "{% else %}<|assistant|>{{ m.content }}{% if not loop.last %}<|end|>{% else %}{{ eos_token }}{% endif %}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUILTIN / "storyteller")
    parser.add_argument("--prompts", type=Path, default=BUILTIN / "storyteller_prompts.jsonl")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results.json"))
    parser.add_argument("--stories", type=int, default=90_000)
    parser.add_argument("--steps", type=int, default=2_100)
    parser.add_argument("--batch", type=int, default=40, help="documents per step")
    parser.add_argument("--lr", type=float, default=2.5e-3)
    parser.add_argument("--max-minutes", type=float, default=15, help="end the training after this time")
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def as_text(document: Document) -> str:
    """Write a document the way the model reads it, special tokens included."""
    if not document.prompt:
        return f"{BOS}{document.text}{EOS}"
    system = document.system + " " if document.system else ""
    return f"{BOS}{USER}{system}{document.prompt}{END}{ASSISTANT}{document.text}{EOS}"


def make_corpus(count: int, seed: int) -> tuple[list[str], list[str], float]:
    """Generate distinct training and held-out texts, and the share of distinct texts before deduplication."""
    drawn = [as_text(d) for d in documents(count, seed)]
    train = list(dict.fromkeys(drawn))
    seen = set(train)
    held_out = [text for text in map(as_text, documents(2_000, seed + 1)) if text not in seen]
    return train, held_out, len(train) / len(drawn)


def train_tokenizer(texts: list[str], vocab: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer that adds the start token and never the end token."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=SPECIAL, initial_alphabet=alphabet)
    core.train_from_iterator(texts, trainer)
    core.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, core.token_to_id(BOS))]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=BOS, eos_token=EOS, pad_token=PAD, model_max_length=512,
        additional_special_tokens=[USER, ASSISTANT, END], clean_up_tokenization_spaces=False,
        padding_side="left",
    )  # fmt: skip
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Build the untrained model: 5 layers of width 192."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=192, intermediate_size=512, num_hidden_layers=5,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def batches(ids: list[list[int]], size: int, rng: random.Random) -> Iterator[list[list[int]]]:
    """Yield batches of documents of similar length for ever, so that little time goes into padding."""
    while True:
        order = rng.sample(range(len(ids)), len(ids))
        pools = [order[i : i + size * 32] for i in range(0, len(order), size * 32)]
        ranked = [sorted(pool, key=lambda i: len(ids[i])) for pool in pools]
        found = [pool[a : a + size] for pool in ranked for a in range(0, len(pool), size)]
        rng.shuffle(found)
        yield from ([ids[i] for i in batch] for batch in found)


def batch_loss(model: LlamaForCausalLM, batch: list[list[int]], pad: int) -> tuple[torch.Tensor, int]:
    """Return the summed next-token loss of a right-padded batch and its number of predicted tokens."""
    width = max(map(len, batch))
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in batch])
    # Causal attention never looks right, so right padding needs no attention mask.
    logits = model(input_ids=ids[:, :-1]).logits
    labels = ids[:, 1:]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad, reduction="sum")
    return loss, int((labels != pad).sum())


def learning_rate(progress: float, peak: float) -> float:
    """Warm up over the first 4 % of the run, then follow a cosine down to 2 % of the peak."""
    if progress < 0.04:
        return peak * (progress + 0.001) / 0.041
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (progress - 0.04) / 0.96)))


def train(model: LlamaForCausalLM, ids: list[list[int]], args: argparse.Namespace, pad: int) -> float:
    """Train with AdamW and return the mean loss of the last fifty steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.97), weight_decay=0.05)
    source, recent, tokens, start = batches(ids, args.batch, random.Random(args.seed)), [], 0, time.time()
    for step in range(args.steps):
        # A busy machine must not stretch the run: the schedule then follows the clock instead of the steps.
        progress = max(step / args.steps, (time.time() - start) / (60 * args.max_minutes))
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, args.lr)
        total, count = batch_loss(model, next(source), pad)
        loss = total / count
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent, tokens = [*recent[-49:], loss.item()], tokens + count
        if step % 25 == 0 or step == args.steps - 1:
            spent = max(time.time() - start, 1e-6)
            rate = tokens / spent
            print(f"step {step} loss {loss.item():.3f} tokens/s {rate:.0f} time {spent:.0f}s", flush=True)
    return sum(recent) / len(recent)


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, ids: list[list[int]], pad: int) -> float:
    """Return the mean loss per token on texts that training never saw."""
    ordered = sorted(ids, key=len)
    parts = [batch_loss(model, ordered[i : i + 64], pad) for i in range(0, len(ordered), 64)]
    return sum(float(loss) for loss, _ in parts) / sum(count for _, count in parts)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save half-precision weights, but let them load as float32, which CPUs need."""
    stops = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END)]
    model.config.use_cache = True
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=stops, pad_token_id=tokenizer.pad_token_id,
        do_sample=True, temperature=1.0, top_k=0, max_new_tokens=96,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder)
    update_json(folder / "config.json", {"dtype": "float32"})
    save_tokenizer(tokenizer, folder)


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save the tokenizer with its template in one file, under the class name that every release knows."""
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    update_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    names = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    path = folder / "special_tokens_map.json"
    update_json(path, names | {"additional_special_tokens": [USER, ASSISTANT, END]})


def update_json(path: Path, values: dict[str, object]) -> None:
    """Set some values of a JSON file, which need not exist yet."""
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | values, indent=2) + "\n")


def save_prompts(path: Path) -> None:
    """Write the 96 held-out openings of the built-in story task."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"prompt": text}) for text in prompt_openings(96)]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Run the whole recipe."""
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    texts, held_out, distinct = make_corpus(args.stories, args.seed)
    tokenizer = train_tokenizer(texts[:20_000], args.vocab)
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    test = [tokenizer.encode(text, add_special_tokens=False) for text in held_out]
    model, pad = build_model(tokenizer), tokenizer.pad_token_id
    results = {
        "parameters": model.num_parameters(), "stories": len(ids), "tokens": sum(map(len, ids)),
        "distinct_share": round(distinct, 4), "held_out_stories": len(test), "vocab": len(tokenizer),
        "steps": args.steps, "batch": args.batch, "learning_rate": args.lr,
    }  # fmt: skip
    print(results, flush=True)
    save_prompts(args.prompts)
    start = time.time()
    results["train_loss"] = train(model, ids, args, pad)
    results["train_minutes"] = round((time.time() - start) / 60, 2)
    save(copy.deepcopy(model), tokenizer, args.out)  # at once: whatever fails below must not lose the weights
    results["held_out_loss"] = held_out_loss(model, test, pad)
    results["held_out_perplexity"] = math.exp(results["held_out_loss"])
    args.results.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
