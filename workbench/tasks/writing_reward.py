"""The reward of two texts that should suit each other: length, vocabulary, connectives and topic, level by level.

Texts only; it knows neither what the agents were asked nor where the texts come from. The first text is agent 0's,
the second is agent 1's. Levels are earned in order, and a level that is failed ends the count: what was earned before
stays.

| level | earns | from |
|---|---|---|
| 1 words | 0.5, else stop | both texts have between min_words and max_words words |
| 2 length | 0 to 1, outside stop | characters of the second text / of the first, white space at the ends left out |
| 3 vocabulary | 0 to 0.5, outside stop | distinct words of the second text / of the first, stop words included |
| 4 style | 0.4 T + 0.6 J | T: transition words; J: overlap of the two sets of words that are no stop words |

T is 0 without a category of transition words, else min(1, 0.4 + 0.05 per further category); with the twelve categories
there are, T ends at 0.95, so that of the maximum of 3.0 a pair can reach 2.98. J is the Jaccard overlap |A and B| /
|A or B|, capped at and divided by `overlap_full`. Words, categories and stop words: `word_lists`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.tasks.word_lists import content_words, transition_categories, words
from workbench.types import Item

WORDS_EARN, LENGTH_EARNS, VOCABULARY_EARNS = 0.5, 1.0, 0.5
STYLE_TRANSITIONS, STYLE_OVERLAP = 0.4, 0.6
FIRST_CATEGORY, FURTHER_CATEGORY = 0.4, 0.05


@dataclass(frozen=True)
class Ramp:
    """Where a ratio earns: everything in [full_low, full_high], linearly less towards low and high, which are part
    of the ramp and earn 0.
    """

    low: float
    full_low: float
    full_high: float = math.inf
    high: float = math.inf

    def share(self, ratio: float) -> float | None:
        """The share in [0, 1] that `ratio` earns, None outside [low, high]."""
        if not self.low <= ratio <= self.high:
            return None
        if ratio < self.full_low:
            return (ratio - self.low) / (self.full_low - self.low)
        if ratio > self.full_high:
            return (self.high - ratio) / (self.high - self.full_high)
        return 1.0


@dataclass(frozen=True)
class Score:
    """What a pair of texts was measured to be and what it earned; None = not reached, or not defined."""

    words: tuple[int, int]
    length_ratio: float | None
    vocabulary_ratio: float | None
    categories: frozenset[str]
    overlap: float
    levels: tuple[float | None, float | None, float | None, float | None]

    @property
    def reward(self) -> float:
        """The sum of the levels, in [0, 3]."""
        return sum(level for level in self.levels if level is not None)


@dataclass(frozen=True)
class WritingReward:
    """The bounds of one task. transitions_in: the agents in whose texts transition words count."""

    min_words: int
    max_words: int
    length: Ramp
    vocabulary: Ramp
    transitions_in: tuple[int, ...]
    overlap_full: float

    def score(self, first: str, second: str) -> Score:
        """Measure and rate one pair of texts."""
        texts = (first, second)
        lists = [words(text) for text in texts]
        counts = (len(lists[0]), len(lists[1]))
        length = _ratio(*(len(text.strip()) for text in texts))
        vocabulary = _ratio(*(len(set(listed)) for listed in lists))
        categories = frozenset[str]().union(*(transition_categories(texts[agent]) for agent in self.transitions_in))
        overlap = jaccard(content_words(first), content_words(second))
        levels = self._levels(counts, length, vocabulary, self._style(len(categories), overlap))
        return Score(counts, length, vocabulary, categories, overlap, levels)

    def _levels(
        self, counts: tuple[int, int], length: float | None, vocabulary: float | None, style: float
    ) -> tuple[float | None, float | None, float | None, float | None]:
        if not all(self.min_words <= count <= self.max_words for count in counts):
            return 0.0, None, None, None
        fitting = _share(self.length, length)
        if fitting is None:
            return WORDS_EARN, 0.0, None, None
        richer = _share(self.vocabulary, vocabulary)
        if richer is None:
            return WORDS_EARN, LENGTH_EARNS * fitting, 0.0, None
        return WORDS_EARN, LENGTH_EARNS * fitting, VOCABULARY_EARNS * richer, style

    def _style(self, categories: int, overlap: float) -> float:
        return STYLE_TRANSITIONS * transition_share(categories) + STYLE_OVERLAP * (
            min(overlap, self.overlap_full) / self.overlap_full
        )

    def reward(self, first: Sequence[str], second: Sequence[str]) -> list[float]:
        """One reward in [0, 3] per joint response."""
        return [self.score(a, b).reward for a, b in zip(first, second)]

    def explain(self, texts: Sequence[str], item: Item) -> dict[str, float | str]:
        """Every measure with the bounds it is held against, and what each level earned."""
        score = self.score(*texts)
        measures = (
            f"words {score.words[0]} and {score.words[1]}, allowed {self.min_words} to {self.max_words}",
            f"length ratio {_shown(score.length_ratio)}, {_bounds(self.length)}",
            f"distinct words ratio {_shown(score.vocabulary_ratio)}, {_bounds(self.vocabulary)}",
            f"transition categories: {', '.join(sorted(score.categories)) or 'none'}; "
            f"overlap {score.overlap:.4f}, full from {self.overlap_full}",
        )
        names = ("1 words", "2 length", "3 vocabulary", "4 style")
        return {
            f"{name} ({measure})": "not reached" if level is None else level
            for name, measure, level in zip(names, measures, score.levels)
        }

    def metrics(
        self, agent_completions_turns: Sequence[Sequence[Sequence[str]]], batch_items: Sequence[Item], prompts: Any
    ) -> list[Mapping[str, float]]:
        """Per item and turn: words of both texts, the two ratios, categories, overlap, and what each level earned."""
        rows: list[Mapping[str, float]] = []
        for first, second in zip(*agent_completions_turns):
            row: dict[str, float] = {}
            for turn, pair in enumerate(zip(first, second), start=1):
                row |= {f"turn_{turn}/{name}": value for name, value in _numbers(self.score(*pair)).items()}
            rows.append(row)
        return rows


def transition_share(categories: int) -> float:
    """T for a number of categories: 0 for none, else 0.4 and 0.05 for each further one, at most 1."""
    return min(1.0, FIRST_CATEGORY + FURTHER_CATEGORY * (categories - 1)) if categories else 0.0


def jaccard(first: set[str], second: set[str]) -> float:
    """Shared elements over all elements, 0 for two empty sets."""
    return len(first & second) / len(first | second) if first | second else 0.0


def _ratio(first: int, second: int) -> float | None:
    return second / first if first else None


def _share(ramp: Ramp, ratio: float | None) -> float | None:
    return None if ratio is None else ramp.share(ratio)


def _numbers(score: Score) -> dict[str, float]:
    """A failed or unreached level earned 0; a ratio to an empty text is left out."""
    levels = {f"level_{number}": level or 0.0 for number, level in enumerate(score.levels, start=1)}
    ratios = {"length_ratio": score.length_ratio, "vocabulary_ratio": score.vocabulary_ratio}
    return {
        "agent_0_words": float(score.words[0]),
        "agent_1_words": float(score.words[1]),
        **{name: value for name, value in ratios.items() if value is not None},
        "transition_categories": float(len(score.categories)),
        "overlap": score.overlap,
        **levels,
    }


def _shown(ratio: float | None) -> str:
    return "undefined" if ratio is None else f"{ratio:.3f}"


def _bounds(ramp: Ramp) -> str:
    if math.isinf(ramp.full_high):
        return f"full from {ramp.full_low}, nothing below {ramp.low}"
    return f"full in {ramp.full_low} to {ramp.full_high}, nothing outside {ramp.low} to {ramp.high}"
