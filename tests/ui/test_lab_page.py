"""The estimator lab: typed and dragged returns, the four baselines, and the exact game."""

import math

import pandas as pd
import pytest

from workbench.insight.lab import exact_estimators
from workbench.ui.lab.game import game_from, lessons
from workbench.ui.lab.group import parse_returns
from workbench.ui.text import LANGUAGES


def numbers(at):
    """The table of the group: one row per completion, columns k, return, 4 raw and 4 normalised advantages."""
    return at.dataframe[0].value


@pytest.mark.parametrize("lang", LANGUAGES)
def test_it_needs_no_run(tmp_path, monkeypatch, open_page, lang):
    monkeypatch.setenv("WORKBENCH_WORKSPACE", str(tmp_path))
    at = open_page("lab", lang=lang)
    assert not at.exception
    assert not at.error
    assert len(at.get("plotly_chart")) == 5


def test_typed_returns_give_the_advantages_of_a_hand_calculation(open_page):
    at = open_page("lab")
    at.text_input("lab-returns").set_value("0, 0, 3").run()
    # mean 1: -1, -1, 2; others' means 1.5, 1.5, 0: -1.5, -1.5, 3; max 3: -3, -3, 0
    table = numbers(at)
    assert table.iloc[:, 2].tolist() == pytest.approx([0, 0, 3])
    assert table.iloc[:, 3].tolist() == pytest.approx([-1, -1, 2])
    assert table.iloc[:, 4].tolist() == pytest.approx([-1.5, -1.5, 3])
    assert table.iloc[:, 5].tolist() == pytest.approx([-3, -3, 0])
    for place in range(6, 10):  # population std of -1, -1, 2 is sqrt(2)
        assert table.iloc[:, place].tolist() == pytest.approx([-1 / math.sqrt(2)] * 2 + [math.sqrt(2)])


def test_a_slider_moves_the_text_and_the_numbers(open_page):
    at = open_page("lab")
    at.text_input("lab-returns").set_value("0 0 0 0").run()
    at.slider("lab-return-2").set_value(1.0).run()
    assert not at.exception
    assert at.text_input("lab-returns").value == "0, 0, 1, 0"
    assert numbers(at).iloc[:, 3].tolist() == pytest.approx([-0.25, -0.25, 0.75, -0.25])


def test_the_number_of_completions_follows_both_ways(open_page):
    at = open_page("lab")
    at.text_input("lab-returns").set_value("1; 3").run()
    assert at.number_input("lab-size").value == 2
    at.number_input("lab-size").set_value(4).run()
    assert at.text_input("lab-returns").value == "1, 3, 2, 2"
    at.number_input("lab-size").set_value(3).run()
    assert len(numbers(at)) == 3


def test_equal_returns_teach_nothing_except_noise_for_raw(open_page):
    at = open_page("lab")
    at.button_group("lab-preset").set_value("equal").run()
    assert not at.exception
    assert numbers(at).iloc[:, 2].tolist() == pytest.approx([0.5] * 4)
    assert numbers(at).iloc[:, 3:].to_numpy().ravel().tolist() == [0.0] * 28
    assert "0.5" in at.info[0].value


@pytest.mark.parametrize("text", ["", "1", "1, two", "nan, 1", "inf 1", "1e300, 2", " ".join(["1"] * 17), "<b>, 1"])
def test_bad_returns_are_one_sentence_and_the_game_stands(open_page, text):
    at = open_page("lab")
    at.text_input("lab-returns").set_value(text).run()
    assert not at.exception
    assert len(at.error) == 1
    assert len(at.get("plotly_chart")) == 3
    at.text_input("lab-returns").set_value("1, 2").run()
    assert not at.error


def test_returns_may_be_separated_the_chinese_way():
    assert parse_returns("1，2；3 4、-5") == [1, 2, 3, 4, -5]


def frames(rewards, policy):
    return pd.DataFrame(rewards), pd.DataFrame(policy)


def test_the_policy_is_scaled_to_probabilities():
    game = game_from(*frames([[1.0, 0.0], [0.0, 0.0]], [[3.0, 1.0], [0.5, 0.5]]))
    chances, rewards, _ = game.joint_actions()
    # 3 : 1 is 0.75 and 0.25; times 0.5
    assert chances.tolist() == pytest.approx([0.375, 0.375, 0.125, 0.125])
    assert rewards.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e9])
def test_a_bad_reward_is_a_sentence(bad):
    with pytest.raises(ValueError, match="reward table"):
        game_from(*frames([[bad, 0.0], [0.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]))


@pytest.mark.parametrize("bad", [math.nan, 0.0, -0.5, math.inf])
def test_a_bad_probability_is_a_sentence(bad):
    with pytest.raises(ValueError, match="probability"):
        game_from(*frames([[1.0, 0.0], [0.0, 0.0]], [[bad, 0.5], [0.5, 0.5]]))


def test_the_lessons_speak_of_these_numbers():
    exact = exact_estimators(game_from(*frames([[2.0, 0.0], [0.0, 1.0]], [[0.6, 0.4], [0.6, 0.4]])), 4)
    said = lessons(exact, 4)
    assert "raw, rloo" in said[0]
    assert "0.75" in said[0], "(K-1)/K with K = 4"
    flat = exact_estimators(game_from(*frames([[1.0, 1.0], [1.0, 1.0]], [[0.6, 0.4], [0.6, 0.4]])), 2)
    assert len(lessons(flat, 2)) == 1


@pytest.mark.parametrize("size", [2, 4])
def test_another_game_size_is_drawn(open_page, size):
    at = open_page("lab")
    at.button_group("lab-actions").set_value(2).run()
    at.button_group("lab-k").set_value(size).run()
    assert not at.exception
    assert len(at.dataframe[-1].value) == 8
