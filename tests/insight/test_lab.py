"""The estimator lab: hand-worked tables, and exact bias and variance, also against the torch enumeration."""

import itertools
import math
import time

import numpy as np
import pytest
import torch
from test_exact_gradient import LOGITS, REWARDS, moments, policies, true_gradient

from workbench.insight.lab import SmallGame, baseline_table, exact_estimators, group_numbers

MODES = ("raw", "mean", "rloo", "max")
GAME = SmallGame(tuple(map(tuple, REWARDS.tolist())), LOGITS)


def rows(table, mode):
    return table[table["mode"] == mode]


def test_the_table_by_hand():
    table = baseline_table([1.0, 2.0, 6.0])  # mean 3, deviations -2 -1 3, population variance 14/3
    assert table["mode"].unique().tolist() == list(MODES)
    assert rows(table, "raw")["advantage"].tolist() == [1, 2, 6]
    assert rows(table, "mean")["advantage"].tolist() == [-2, -1, 3]
    assert rows(table, "rloo")["baseline"].tolist() == [4, 3.5, 1.5]
    assert rows(table, "rloo")["advantage"].tolist() == [-3, -1.5, 4.5]
    assert rows(table, "max")["advantage"].tolist() == [-5, -4, 0]
    for mode in MODES:  # normalisation makes them equal
        assert rows(table, mode)["normalized"].tolist() == pytest.approx([-0.92582, -0.46291, 1.38873], abs=1e-5)
        assert rows(table, mode)["k"].tolist() == [0, 1, 2]
        assert rows(table, mode)["return"].tolist() == [1, 2, 6]


def test_unscored_returns_are_left_out_of_the_group():
    table = rows(baseline_table([1.0, None, 3.0]), "mean")
    assert table["advantage"].tolist() == pytest.approx([-1, math.nan, 1], nan_ok=True)
    assert table["normalized"].tolist() == pytest.approx([-1, math.nan, 1], nan_ok=True)
    assert baseline_table([None, None])["advantage"].isna().all()
    assert baseline_table([]).empty
    single = rows(baseline_table([None, 5.0]), "rloo")
    assert single["advantage"].tolist() == pytest.approx([math.nan, 0.0], nan_ok=True)


def test_equal_returns_have_no_signal_but_with_raw():
    table = baseline_table([0.1] * 3)
    assert table[table["mode"] != "raw"]["advantage"].tolist() == [0.0] * 9
    assert table["normalized"].tolist() == [0.0] * 12


def test_an_infinite_return_breaks_no_table():
    with np.errstate(all="raise"):
        baseline, advantage, scaled = group_numbers(np.array([1.0, math.inf]), "raw")
    assert advantage[0] == 1.0  # infinity minus infinity is unknown, the rest is not
    assert np.isnan(scaled).all() and np.isnan(baseline[1])


def test_a_game_by_hand():
    # one coin each, fair: R = 1 if both show heads. dE[R]/dlogit_heads = p (1 - p) * 1/2 = 1/8 for either agent
    game = SmallGame(((1.0, 0.0), (0.0, 0.0)), ((0.0, 0.0), (0.0, 0.0)))
    found = exact_estimators(game, 2)
    assert found.gradient.tolist() == pytest.approx([1 / 8, -1 / 8, 1 / 8, -1 / 8])
    raw = found.table.set_index(["mode", "normalization"]).loc[("raw", False)]
    # one sample is (1/2, -1/2, 1/2, -1/2) with probability 1/4, else 0: E|g|^2 = 1/4, |E g|^2 = 1/16, so the variance
    # is 3/16, and half of that for the mean of two
    assert raw["variance"] == pytest.approx(3 / 32)
    assert raw["bias"] == pytest.approx(0.0, abs=1e-12)
    assert raw["error"] == pytest.approx(3 / 32)


SMALL = torch.tensor([[1.0, 0.0], [0.5, 3.0]], dtype=torch.float64)
SMALL_LOGITS = ((0.3, -0.2), (-0.4, 0.1))


@pytest.mark.parametrize(("rewards", "logits", "k"), [(REWARDS, LOGITS, 2), (SMALL, SMALL_LOGITS, 3)])
@pytest.mark.parametrize("mode", MODES)
def test_it_agrees_with_the_enumeration_in_torch(mode, rewards, logits, k):
    expectation, variance = moments(policies(logits), rewards, mode, k)
    gradient = true_gradient(policies(logits), rewards)
    found = exact_estimators(SmallGame(rewards.tolist(), logits), k)
    row = found.table.set_index(["mode", "normalization"]).loc[(mode, False)]
    assert found.gradient.tolist() == pytest.approx(gradient.tolist(), abs=1e-12)
    assert found.expectations[mode, False].tolist() == pytest.approx(expectation.tolist(), abs=1e-9)
    assert row["bias"] == pytest.approx((expectation - gradient).norm().item(), abs=1e-9)
    assert row["variance"] == pytest.approx(variance, abs=1e-9)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_ratios_are_those_of_the_formulas(k):
    table = exact_estimators(GAME, k).table.set_index(["mode", "normalization"])
    assert table.loc[("raw", False), ["ratio", "cosine"]].tolist() == pytest.approx([1, 1])
    assert table.loc[("rloo", False), ["ratio", "cosine"]].tolist() == pytest.approx([1, 1])
    assert table.loc[("mean", False), ["ratio", "cosine"]].tolist() == pytest.approx([(k - 1) / k, 1])
    assert table.loc[("max", False), "bias"] > 0.1
    assert table.xs(True, level="normalization").round(9).drop_duplicates().shape[0] == 1
    assert table.loc[("raw", True), "cosine"] < 0.9999  # scaling groups by their spread also turns the gradient


@pytest.mark.parametrize("k", [2, 3])
def test_normalised_estimates_are_what_every_ordered_group_gives(k):
    # the same sum without counting orders: all (2 * 2)^k sequences of joint actions of a small game
    game = SmallGame(((1.0, 0.0), (0.5, 3.0)), ((0.3, -0.2), (-0.4, 0.1)))
    probabilities, rewards, scores = game.joint_actions()
    mean, square = np.zeros(4), 0.0
    for group in itertools.product(range(4), repeat=k):
        chosen = list(group)
        returns = rewards[chosen]
        spread = returns.std()
        weights = (returns - returns.mean()) / spread if spread > 1e-6 else np.zeros(k)
        estimate = weights @ scores[chosen] / k
        mean, square = (
            mean + probabilities[chosen].prod() * estimate,
            square + probabilities[chosen].prod() * estimate @ estimate,
        )
    found = exact_estimators(game, k)
    row = found.table.set_index(["mode", "normalization"]).loc[("max", True)]
    assert found.expectations["max", True].tolist() == pytest.approx(mean.tolist(), abs=1e-9)
    assert row["variance"] == pytest.approx(square - mean @ mean, abs=1e-9)


def test_a_game_without_a_gradient_has_no_ratio():
    table = exact_estimators(SmallGame(((1.0, 1.0), (1.0, 1.0)), ((0.0, 0.0), (0.0, 0.0))), 2).table
    assert table["ratio"].isna().all() and table["cosine"].isna().all()
    assert table["bias"].tolist() == pytest.approx([0.0] * 8, abs=1e-12)


def test_scores_are_the_gradient_of_the_log_probability():
    probabilities, _, scores = GAME.joint_actions()
    params = policies()
    for index, (a, b) in enumerate(itertools.product(range(3), range(3))):
        log_p = torch.log_softmax(params[0], -1)[a] + torch.log_softmax(params[1], -1)[b]
        expected = torch.cat(torch.autograd.grad(log_p, params))
        assert scores[index].tolist() == pytest.approx(expected.tolist(), abs=1e-12)
        assert probabilities[index] == pytest.approx(log_p.exp().item(), abs=1e-12)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"rewards": ((1.0, 2.0),)}, r"reward table must have 3 rows of 3 numbers"),
        ({"rewards": ((1.0,),), "logits": ((0.0,), (0.0,))}, r"2 or 3 actions, got 1 and 1\."),
        ({"rewards": ((1.0, math.nan), (0.0, 1.0)), "logits": ((0.0, 0.0), (0.0, 0.0))}, r"finite"),
    ],
)
def test_games_that_are_none_are_refused(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        SmallGame(**values)


def test_other_group_sizes_are_refused():
    with pytest.raises(ValueError, match=r"^The number of completions K must be 2, 3 or 4, got 5\.$"):
        exact_estimators(GAME, 5)


@pytest.mark.parametrize("k", [3, 4])
def test_the_lab_is_quick(k):
    start = time.process_time()
    exact_estimators(SmallGame(), k)
    assert time.process_time() - start < 2.0
