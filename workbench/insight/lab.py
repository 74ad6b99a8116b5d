"""The estimator lab: what the four baselines make of K returns, and how good each is on a game small enough to count.

The game: two agents each pick one of 2 or 3 actions from a softmax, once, and share the reward of a table. All groups
of K joint actions are enumerated, so bias and variance are exact, not sampled. It needs no run. The baselines are
those that train, from workbench.estimators; trainers, traces and screens are unknown here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd

from workbench.estimators import BASELINES, normalized

GROUP_SIZES = (2, 3, 4)
ACTIONS = (2, 3)


def group_numbers(returns: np.ndarray, mode: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Baselines, advantages and normalised advantages [K] of one group's returns [K]; NaN where the return is NaN.

    As in training, unscored completions are left out of the group.
    """
    scored = ~np.isnan(returns)
    columns = np.full((3, len(returns)), np.nan)
    if scored.any():
        known = returns[scored]
        with np.errstate(invalid="ignore"):  # an infinite return has no finite advantage
            baseline = BASELINES[mode](known)
            columns[:, scored] = baseline, known - baseline, normalized(known - baseline)
    return columns[0], columns[1], columns[2]


def baseline_table(returns: Sequence[float | None]) -> pd.DataFrame:
    """One row per mode and completion: mode, k, return, baseline, advantage, normalized. None or NaN = unscored."""
    values = np.array([math.nan if value is None else value for value in returns], dtype=float)
    rows = []
    for mode in BASELINES:
        baseline, advantage, scaled = group_numbers(values, mode)
        columns = {"k": range(len(values)), "return": values, "baseline": baseline, "advantage": advantage}
        rows.append(pd.DataFrame({"mode": mode, **columns, "normalized": scaled}))
    return pd.concat(rows, ignore_index=True)


@dataclass(frozen=True)
class SmallGame:
    """rewards [A, B] of the joint actions; logits of agent 1 [A] and agent 2 [B]. A and B are 2 or 3.

    Raises ValueError with one sentence for other shapes and for numbers that are not finite.
    """

    rewards: Sequence[Sequence[float]] = ((2.0, 0.0, 0.0), (0.0, 1.0, 0.5), (0.0, 0.5, 1.0))
    logits: tuple[Sequence[float], Sequence[float]] = ((0.5, 0.0, -0.5), (0.5, 0.0, -0.5))

    def __post_init__(self) -> None:
        first, second = map(len, self.logits)
        if any(len(row) != second for row in self.rewards) or len(self.rewards) != first:
            raise ValueError(f"The reward table must have {first} rows of {second} numbers, one for each joint action.")
        if first not in ACTIONS or second not in ACTIONS:
            raise ValueError(f"Each agent must have 2 or 3 actions, got {first} and {second}.")
        if not all(map(math.isfinite, [n for row in (*self.rewards, *self.logits) for n in row])):
            raise ValueError("Rewards and logits must be finite numbers.")

    def joint_actions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Probabilities [M], rewards [M] and scores [M, A + B] of the M = A * B joint actions.

        scores: gradient of the log-probability with respect to both agents' logits, onehot - pi.
        """
        first, second = (_softmax(np.asarray(row, dtype=float)) for row in self.logits)
        pairs = [(a, b) for a in range(len(first)) for b in range(len(second))]
        probabilities = np.array([first[a] * second[b] for a, b in pairs])
        rewards = np.array([self.rewards[a][b] for a, b in pairs], dtype=float)
        rows = [np.concatenate([np.eye(len(first))[a] - first, np.eye(len(second))[b] - second]) for a, b in pairs]
        return probabilities, rewards, np.array(rows)


@dataclass(frozen=True)
class ExactEstimators:
    """gradient [A + B]: the true one of the expected reward. groups: how many different groups were enumerated.

    table: one row per mode, normalised or not (`normalization`): bias (norm of expectation - gradient), variance
    (trace of the covariance), error (bias^2 + variance, the mean squared distance to the gradient), ratio (length of
    the expectation along the gradient, in gradients: 1 = right, (K-1)/K for `mean`), cosine (of the angle between the
    two: 1 = right direction). ratio and cosine are NaN where the gradient is zero.
    expectations: mode, normalised or not -> [A + B].
    """

    gradient: np.ndarray
    groups: int
    table: pd.DataFrame
    expectations: dict[tuple[str, bool], np.ndarray]


def exact_estimators(game: SmallGame, generations: int = 3) -> ExactEstimators:
    """Exact bias and variance of every baseline with K = generations (2, 3 or 4) completions per agent, aligned.

    An estimate is 1/K sum_k advantage_k * score_k over a group of K independent joint actions.
    """
    if generations not in GROUP_SIZES:
        raise ValueError(f"The number of completions K must be 2, 3 or 4, got {generations}.")
    probabilities, rewards, scores = game.joint_actions()
    gradient = (probabilities * rewards) @ scores
    groups, weights = _groups(probabilities, generations)
    rows, expectations = [], {}
    for mode in BASELINES:
        numbers = np.array([group_numbers(rewards[group], mode) for group in groups])  # [N, 3, K]
        for scaled in (False, True):
            estimates = np.einsum("nk,nkp->np", numbers[:, 2 if scaled else 1], scores[groups]) / generations
            expectations[mode, scaled] = weights @ estimates
            rows.append({"mode": mode, "normalization": scaled, **_quality(estimates, weights, gradient)})
    return ExactEstimators(gradient, len(groups), pd.DataFrame(rows), expectations)


def _groups(probabilities: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Every group [N, K] of joint actions once, and its probability [N] in any order.

    An estimate does not depend on the order of its group, so the orders are counted, not enumerated.
    """
    groups = list(combinations_with_replacement(range(len(probabilities)), size))
    orders = [math.factorial(size) / math.prod(map(math.factorial, Counter(group).values())) for group in groups]
    return np.array(groups), np.array(orders) * probabilities[np.array(groups)].prod(1)


def _quality(estimates: np.ndarray, weights: np.ndarray, gradient: np.ndarray) -> dict[str, float]:
    expectation = weights @ estimates
    bias = float(np.linalg.norm(expectation - gradient))
    variance = float(weights @ ((estimates - expectation) ** 2).sum(1))
    length, along = float(np.linalg.norm(gradient)), float(expectation @ gradient)
    lengths = length * float(np.linalg.norm(expectation))
    return {
        "bias": bias,
        "variance": variance,
        "error": bias**2 + variance,
        "ratio": along / length**2 if length > 1e-12 else math.nan,
        "cosine": along / lengths if lengths > 1e-12 else math.nan,
    }


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.exp(logits - logits.max())
    return weights / weights.sum()
