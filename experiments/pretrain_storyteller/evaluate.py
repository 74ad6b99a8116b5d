"""Check the saved `builtin:storyteller`: lengths, endings, memory of the prompt, copies, loss in fp16.

    python experiments/pretrain_storyteller/evaluate.py

prints the figures and samples and writes `evaluation.json`. Everything is sampled at temperature 1.0.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # the model must load without a network

import torch
from pretrain import BUILTIN, held_out_loss, make_corpus
from transformers import AutoModelForCausalLM, AutoTokenizer
from world import is_held_out

STORY_REQUESTS = [
    ("Write a short story about a fox and a silver key.", ["fox", "key"]),
    ("Tell me a story about a baker named Tom.", ["baker", "Tom"]),
    ("Write a story about Mia the owl and a red kite.", ["Mia", "owl", "kite"]),
    ("Write the opening of a story about a dragon named Oto and a golden bell.", ["dragon", "Oto", "bell"]),
    ("Please tell me about a brave mouse near the harbour.", ["mouse", "harbour"]),
    ("Write a story about a rabbit and a bear.", ["rabbit", "bear"]),
    ("Describe the old lighthouse.", ["lighthouse"]),
    ("Make up a story about Brimo the troll and a glass lantern.", ["Brimo", "troll", "lantern"]),
]
SAMPLE_PROMPTS = [
    "Mia the fox lived by the river.", "Once upon a time there was a small dragon named Oto.",
    "One morning, Tom the baker found", "chat: Write a story about a fox and a silver key.",
    "chat: Continue the story: Mia the fox lived by the river.", "chat: Describe the old lighthouse.",
    "chat: Tell me a story about a baker named Tom.",
    "chat: Write the rest of the story about Nora the owl and a red kite.",
]  # fmt: skip


class Sampler:
    """The saved model with its tokenizer."""

    def __init__(self, folder: Path) -> None:
        """Load the folder without a network."""
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def encode(self, prompt: str) -> list[int]:
        """Encode a plain prompt, or a request that starts with "chat: "."""
        if not prompt.startswith("chat: "):
            return self.tokenizer(prompt)["input_ids"]
        messages = [{"role": "user", "content": prompt.removeprefix("chat: ")}]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False)

    @torch.no_grad()
    def sample(self, prompt: str, count: int, limit: int = 160) -> list[list[int]]:
        """Sample continuations; a finished one still carries its end token."""
        ids = torch.tensor([self.encode(prompt)] * count)
        out = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            max_new_tokens=limit,
        )  # fmt: skip
        pad = self.tokenizer.pad_token_id
        return [[t for t in row.tolist() if t != pad] for row in out[:, ids.shape[1] :]]

    def text(self, ids: list[int]) -> str:
        """Decode without special tokens."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)


def split_sentences(text: str) -> list[str]:
    """Split a story into its sentences."""
    return [part for part in re.split(r"(?<=[.!?])\s+(?=[A-Z\"])", text.strip()) if part]


def length_figures(lengths: list[int]) -> dict[str, float]:
    """Summarise continuation lengths in tokens, the end token included."""
    ordered = sorted(lengths)
    pick = {f"p{q}": ordered[min(len(ordered) - 1, len(ordered) * q // 100)] for q in (10, 50, 90)}
    within = {f"finished_in_{n}": round(sum(x <= n for x in ordered) / len(ordered), 3) for n in (64, 80, 96)}
    return {"mean": round(sum(ordered) / len(ordered), 1), **pick, "max": ordered[-1], **within}


@dataclass
class Corpus:
    """The training texts, as one string and as a set of sentences."""

    whole: str
    sentences: set[str]


def read_corpus(texts: list[str]) -> Corpus:
    """Prepare the training texts for the search for copies."""
    plain = [re.sub(r"<\|\w+\|>", " ", text) for text in texts]
    return Corpus("\n".join(plain), {s for text in plain for s in split_sentences(text)})


def copied_share(texts: list[str], told: list[list[str]], corpus: Corpus) -> float:
    """Return the share of texts of two or more sentences that stand word for word in the training corpus."""
    longer = [text.strip() for text, sentences in zip(texts, told, strict=True) if len(sentences) > 1]
    return round(sum(text in corpus.whole for text in longer) / max(1, len(longer)), 3)


def text_figures(texts: list[str], corpus: Corpus) -> dict[str, object]:
    """Measure clean endings, variety, repetition inside a text and exact copies of training sentences."""
    told = [split_sentences(text) for text in texts]
    flat = [sentence for sentences in told for sentence in sentences]
    grams = [tuple(w[i : i + 4]) for w in (t.split() for t in texts) for i in range(len(w) - 3)]
    counts = [len(sentences) for sentences in told]
    return {
        "clean_endings": round(sum(t.rstrip().endswith((".", "!", "?", '"')) for t in texts) / len(texts), 3),
        "distinct_texts": round(len(set(texts)) / len(texts), 3),
        "distinct_4_grams": round(len(set(grams)) / len(grams), 3),
        "texts_with_a_repeated_sentence": round(sum(len(set(s)) < len(s) for s in told) / len(told), 3),
        "sentences_also_in_training": round(sum(s in corpus.sentences for s in flat) / len(flat), 3),
        "texts_of_2_or_more_sentences_copied": copied_share(texts, told, corpus),
        "sentence_counts": {str(n): round(counts.count(n) / len(counts), 3) for n in range(1, 11)},
    }


def hero_recall(prompt: str, texts: list[str]) -> tuple[int, int]:
    """Count the texts that name a hero, and those that give the prompt's hero another name or kind."""
    match = re.match(r"([A-Z]\w+) the (\w+)", prompt)
    if not match:
        return 0, 0
    name, kind = match.groups()
    wrong = sum(bool(re.search(rf"\b{name} the (?!{kind}\b)", text)) for text in texts)
    return sum(name in text or f"the {kind}" in text for text in texts), wrong


def evaluate_openings(sampler: Sampler, prompts: list[str], corpus: Corpus, form: str) -> dict[str, object]:
    """Continue every held-out opening eight times and summarise the lengths and the texts."""
    lengths, texts, spans, named = [], [], [], [0, 0, 0]
    for prompt in prompts:
        rows = sampler.sample(form.format(prompt), 8)
        told = [sampler.text(row) for row in rows]
        hits, wrong = hero_recall(prompt, told)
        named = [
            named[0] + hits,
            named[1] + wrong,
            named[2] + 8 * bool(re.match(r"[A-Z]\w+ the \w+", prompt)),
        ]
        lengths += map(len, rows)
        spans.append(max(map(len, rows)) / min(map(len, rows)))
        texts += told
    extra = {"hero_named": round(named[0] / named[2], 3), "hero_wrong_kind": round(named[1] / named[2], 3)}
    extra["longest_to_shortest_of_8_median"] = round(sorted(spans)[len(spans) // 2], 1)
    return length_figures(lengths) | text_figures(texts, corpus) | extra


def evaluate_requests(sampler: Sampler) -> dict[str, float]:
    """Measure how often an answer uses every word that its request names."""
    shares = {}
    for request, needed in STORY_REQUESTS:
        texts = [sampler.text(row) for row in sampler.sample(f"chat: {request}", 32)]
        shares[request] = round(sum(all(word in text for word in needed) for text in texts) / len(texts), 3)
    return shares


def saved_loss(sampler: Sampler, held_out: list[str]) -> dict[str, float]:
    """Return the held-out loss of the saved half-precision weights."""
    ids = [sampler.tokenizer.encode(text, add_special_tokens=False) for text in held_out]
    with torch.no_grad():
        loss = held_out_loss(sampler.model, ids, sampler.tokenizer.pad_token_id)
    return {"loss": loss, "perplexity": math.exp(loss)}


def print_samples(sampler: Sampler, count: int) -> None:
    """Print sampled continuations to read."""
    for prompt in SAMPLE_PROMPTS:
        print(f"\n> {prompt}")
        for row in sampler.sample(prompt, count):
            print(f"  ({len(row):3d}) {sampler.text(row).strip()}")


def main() -> None:
    """Run every check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=BUILTIN / "storyteller")
    parser.add_argument("--stories", type=int, default=90_000, help="the corpus size of pretrain.py")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    sampler = Sampler(args.model)
    print_samples(sampler, 8)
    texts, held_out, _ = make_corpus(args.stories, args.seed)
    corpus = read_corpus(texts)
    path = args.model.parent / "storyteller_prompts.jsonl"
    prompts = [json.loads(line)["prompt"] for line in path.read_text().splitlines()][: args.prompts]
    figures = {
        "saved_weights": saved_loss(sampler, held_out),
        "prompts_found_in_training": sum(prompt in corpus.whole for prompt in prompts),
        "plain": evaluate_openings(sampler, prompts, corpus, "{}"),
        "chat": evaluate_openings(sampler, prompts, corpus, "chat: Continue the story: {}"),
        "requests_obeyed": evaluate_requests(sampler),
        "mia_the_fox_is_held_out": is_held_out("Mia", "fox"),
    }
    Path(__file__).with_name("evaluation.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
