"""The writing reward worked by hand at both sides of every edge of every level, for both tasks that use it."""

from __future__ import annotations

import pytest

from workbench.tasks.abstract_pair import ABSTRACT_REWARD
from workbench.tasks.summary_pair import SUMMARY_REWARD
from workbench.tasks.word_lists import STOP_WORDS, TRANSITIONS, content_words, transition_categories, words
from workbench.tasks.writing_reward import WritingReward, jaccard, transition_share


def text(listed: list[str], characters: int) -> str:
    """These words, with dots behind them until the text has so many characters."""
    joined = " ".join(listed)
    assert len(joined) <= characters
    return joined + "." * (characters - len(joined))


def named(letter: str, count: int) -> list[str]:
    """So many distinct words that are neither stop words nor transitions: a0, a1, ..."""
    return [f"{letter}{number}" for number in range(count)]


def rate(reward: WritingReward, first: str, second: str) -> float:
    (value,) = reward.reward([first], [second])
    return value


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (7, 8, 0.0),
        (8, 7, 0.0),
        (8, 8, 0.5),  # equal lengths: ratio 1 is outside level 2
        (256, 256, 0.5),
        (256, 257, 0.0),
        (257, 256, 0.0),
        (0, 8, 0.0),
        (8, 0, 0.0),
        (0, 0, 0.0),
    ],
)
def test_summary_word_limits(first: int, second: int, expected: float) -> None:
    assert rate(SUMMARY_REWARD, " ".join(["ab"] * first), " ".join(["ab"] * second)) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (127, 128, 0.0),
        (128, 127, 0.0),
        # The same word, so: characters 383 / 383 = 1 -> (1 - 0.8) / 0.5 = 0.4; vocabulary 1 / 1 -> 0.5; J = 1 -> 0.6
        (128, 128, 2.0),
        (256, 256, 2.0),
        (257, 256, 0.0),
        (256, 257, 0.0),
    ],
)
def test_abstract_word_limits(first: int, second: int, expected: float) -> None:
    result = rate(ABSTRACT_REWARD, " ".join(["ab"] * first), " ".join(["ab"] * second))
    assert result == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("characters", "expected"),
    [
        (109, 0.5),  # below 1.1: level 3 is not reached
        (110, 1.0),  # 0 of level 2, yet it goes on: 0.5 + 0 + 0.5
        (135, 1.5),  # (1.35 - 1.1) / 0.5 = 0.5
        (159, 1.98),  # (1.59 - 1.1) / 0.5 = 0.98
        (160, 2.0),
        (320, 2.0),
        (321, 1.994444),  # (5 - 3.21) / 1.8 = 0.994444
        (410, 1.5),  # (5 - 4.1) / 1.8 = 0.5
        (500, 1.0),
        (501, 0.5),
    ],
)
def test_summary_length_ratio(characters: int, expected: float) -> None:
    """100 characters of 10 words against 20 other words: full vocabulary (0.5), no transition, no overlap."""
    second = text(named("b", 20), characters)
    assert rate(SUMMARY_REWARD, text(named("a", 10), 100), second) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("characters", "expected"),
    [
        (799, 0.5),
        (800, 1.6),  # 0.5 + 0 + 0.5 + 0.6
        (1050, 2.1),  # (1.05 - 0.8) / 0.5 = 0.5
        (1299, 2.598),  # (1.299 - 0.8) / 0.5 = 0.998
        (1300, 2.6),
        (1600, 2.6),
        (1601, 2.5975),  # (2 - 1.601) / 0.4 = 0.9975
        (1800, 2.1),  # (2 - 1.8) / 0.4 = 0.5
        (2000, 1.6),
        (2001, 0.5),
    ],
)
def test_abstract_length_ratio(characters: int, expected: float) -> None:
    """1000 characters against the same 128 words: vocabulary 1 (0.5), no transition, J = 1 (0.6)."""
    listed = named("a", 128)
    assert rate(ABSTRACT_REWARD, text(listed, 1000), text(listed, characters)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("distinct", "expected"),
    [
        (12, 1.5),  # below 1.3: level 4 is not reached
        (13, 1.66),  # 0 of level 3, yet it goes on: 0.5 + 1 + 0 + 0.16
        (16, 1.874286),  # (1.6 - 1.3) / 0.7 * 0.5 = 0.214286
        (19, 2.088571),  # (1.9 - 1.3) / 0.7 * 0.5 = 0.428571
        (20, 2.16),
        (40, 2.16),
    ],
)
def test_summary_vocabulary_ratio(distinct: int, expected: float) -> None:
    """Against 10 distinct words; "however" is one of the second's words: T = 0.4 of one category, 0.4 * 0.4 = 0.16."""
    second = text(["however", *named("b", distinct - 1)], 200)
    assert rate(SUMMARY_REWARD, text(named("a", 10), 100), second) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("distinct", "expected"),
    [
        (49, 1.5),
        (50, 1.66),
        (60, 1.91),  # (0.6 - 0.5) / 0.2 * 0.5 = 0.25
        (70, 2.16),
        (130, 2.16),
        (131, 2.1475),  # (1.7 - 1.31) / 0.4 * 0.5 = 0.4875
        (150, 1.91),  # (1.7 - 1.5) / 0.4 * 0.5 = 0.25
        (170, 1.66),
        (171, 1.5),
    ],
)
def test_abstract_vocabulary_ratio(distinct: int, expected: float) -> None:
    """Against 100 distinct words; "however" in the first text counts, too: 0.4 * 0.4 = 0.16."""
    first = text(["however", *named("a", 99), *["a0"] * 28], 1000)
    second = text([*named("b", distinct), *["b0"] * (200 - distinct)], 1400)
    assert rate(ABSTRACT_REWARD, first, second) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("shared", "expected"), [(0, 2.0), (1, 2.2), (2, 2.4), (3, 2.6), (4, 2.6)])
def test_summary_overlap_is_full_from_three_in_a_hundred(shared: int, expected: float) -> None:
    """10 words and 90 + shared words make 100 distinct ones: J = shared / 100, 0.6 * J / 0.03 up to 0.6."""
    second = named("a", shared) + named("b", 90)
    assert rate(SUMMARY_REWARD, text(named("a", 10), 150), text(second, 400)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        (0, 2.0),
        (10, 2.260870),  # 0.6 * 0.10 / 0.23
        (22, 2.573913),  # 0.6 * 0.22 / 0.23
        (23, 2.6),
        (24, 2.6),
    ],
)
def test_abstract_overlap_is_full_from_23_in_a_hundred(shared: int, expected: float) -> None:
    """55 and 45 + shared distinct words make 100; both ratios are in their full range."""
    first = named("a", 55)
    second = named("a", shared) + named("b", 45)
    first, second = first + ["a0"] * (128 - len(first)), second + ["b0"] * (128 - len(second))
    assert rate(ABSTRACT_REWARD, text(first, 1000), text(second, 1400)) == pytest.approx(expected, abs=1e-6)


def test_transitions_of_the_first_text_count_only_where_the_table_says_so() -> None:
    first, second = text(["however", *named("a", 9)], 100), text(named("b", 20), 200)
    assert rate(SUMMARY_REWARD, first, second) == pytest.approx(2.0)
    both = [text([word, *named(letter, 127)], 1000) for word, letter in (("however", "a"), ("therefore", "b"))]
    # two categories: T = 0.45, 0.4 * 0.45 = 0.18; length ratio 1 -> 0.4
    assert rate(ABSTRACT_REWARD, *both) == pytest.approx(0.5 + 0.4 + 0.5 + 0.18)


def test_every_category_once_and_full_overlap_reach_the_highest_reward_there_is() -> None:
    connected = " ".join(f"{phrases[0]}, " for phrases in TRANSITIONS.values())
    second = f"{connected} {' '.join(named('a', 40))}"
    first = text(named("a", 10), len(second) // 2)
    assert rate(SUMMARY_REWARD, first, second) == pytest.approx(2.98)  # T = 0.4 + 11 * 0.05 = 0.95


@pytest.mark.parametrize(
    ("categories", "share"), [(0, 0.0), (1, 0.4), (2, 0.45), (7, 0.7), (12, 0.95), (13, 1.0), (20, 1.0)]
)
def test_transition_share(categories: int, share: float) -> None:
    assert transition_share(categories) == pytest.approx(share)


@pytest.mark.parametrize(
    ("written", "categories"),
    [
        ("Thus it rained.", {"result"}),
        ("THUS, it rained", {"result"}),
        ("His enthusiasm for yetis and nextdoor butter.", set()),  # thus, yet, next, but inside other words
        ("a thus-and-so matter", set()),  # a hyphen makes one word
        ("It rained\n in  Addition it snowed", {"addition"}),
        ("in the addition of two numbers", set()),
        ("however—for example", {"contrast", "example"}),
        ("On the other hand, on the one hand", {"contrast"}),
        ("", set()),
        ("¿?! ...", set()),
    ],
)
def test_transitions_match_whole_words(written: str, categories: set[str]) -> None:
    assert transition_categories(written) == categories


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Well-known facts -- don't they?", ["well-known", "facts", "don't", "they"]),
        ("don’t DON'T", ["don't", "don't"]),
        ("3.5 km/h, 1990-95", ["3", "5", "km", "h", "1990-95"]),
        ("ÉTÉ e\u0301te\u0301", ["été", "été"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("'quoted' -dash- _under_", ["quoted", "dash", "under"]),
        ("мама мыла раму", ["мама", "мыла", "раму"]),
        ("猫 狗", ["猫", "狗"]),
        ("🙂 ... —", []),
        ("", []),
        ("  \n\t", []),
    ],
)
def test_words(written: str, expected: list[str]) -> None:
    assert words(written) == expected


def test_word_lists_are_consistent() -> None:
    phrases = [phrase for category in TRANSITIONS.values() for phrase in category]
    assert len(TRANSITIONS) == 12
    assert len(phrases) == len(set(phrases))
    assert [phrase for phrase in phrases if " ".join(words(phrase)) != phrase] == []
    assert [word for word in STOP_WORDS if words(word) != [word]] == []


def test_overlap_leaves_stop_words_out() -> None:
    first, second = content_words("The garden of roses"), content_words("the Garden and the tulips!")
    assert (first, second) == ({"garden", "roses"}, {"garden", "tulips"})
    assert jaccard(first, second) == pytest.approx(1 / 3)
    assert jaccard(content_words("the of"), content_words("the of")) == 0.0
    assert jaccard(set(), {"x"}) == 0.0


def test_white_space_at_the_ends_does_not_lengthen_a_text() -> None:
    first, second = text(named("a", 10), 100), text(named("b", 20), 109)
    assert rate(SUMMARY_REWARD, first, f"\n {second}   ") == 0.5  # ratio 1.09, not 1.14


def test_explain_says_what_each_level_earned_and_where_it_stopped() -> None:
    first, second = text(named("a", 10), 100), text(named("b", 12), 200)
    assert SUMMARY_REWARD.explain([first, second], {}) == {
        "1 words (words 10 and 12, allowed 8 to 256)": 0.5,
        "2 length (length ratio 2.000, full in 1.6 to 3.2, nothing outside 1.1 to 5.0)": 1.0,
        "3 vocabulary (distinct words ratio 1.200, full from 2.0, nothing below 1.3)": 0.0,
        "4 style (transition categories: none; overlap 0.0000, full from 0.03)": "not reached",
    }


def test_metrics_per_item() -> None:
    first, second = text(["garden", *named("a", 9)], 100), text(["garden", "however", *named("b", 18)], 200)
    rows = SUMMARY_REWARD.metrics([[[first], [""]], [[second], ["x"]]], [{}, {}], ["", ""])
    # 28 distinct words without a stop word, 1 of them shared: J = 1 / 29, more than 0.03
    assert rows[0] == pytest.approx(
        {
            "turn_1/agent_0_words": 10,
            "turn_1/agent_1_words": 20,
            "turn_1/length_ratio": 2.0,
            "turn_1/vocabulary_ratio": 2.0,
            "turn_1/transition_categories": 1,
            "turn_1/overlap": 1 / 29,
            "turn_1/level_1": 0.5,
            "turn_1/level_2": 1.0,
            "turn_1/level_3": 0.5,
            "turn_1/level_4": 0.4 * 0.4 + 0.6,
        }
    )
    assert "turn_1/length_ratio" not in rows[1]
    assert (rows[1]["turn_1/agent_0_words"], rows[1]["turn_1/level_1"]) == (0, 0)
