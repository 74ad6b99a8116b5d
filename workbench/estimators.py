"""From a group's returns to its advantages: the one place where the four REINFORCE trainers and the critics differ.

Plain arithmetic on one axis, so each function takes numpy arrays or torch tensors and gives back the
same kind. The trainers use them with torch; the app, which never imports torch, with numpy: what a
page shows as "the other baselines" is computed by the very function that trains.

Equation names refer to the multi-agent REINFORCE and actor-critic pages that define the algorithms:
  J(theta_i) = E[ 1/K sum_k sum_t (R_t^k - b(h_t)) log pi_i(a_t^k | h_t) ]          (REINFORCE family)

Shapes: K completions of one agent at one node, G <= K scored ones, H turns of one branch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Array = TypeVar("Array", bound=Any)  # numpy.ndarray or torch.Tensor
STD_FLOOR = 1e-6


def raw_baseline(returns: Array) -> Array:
    """MAREINFORCE: b = 0. returns [G] -> [G]. Unbiased."""
    return returns - returns


def mean_baseline(returns: Array) -> Array:
    """MAGRPO: b = 1/K sum_l R^l, own return included, so its gradient is (K-1)/K of the true one."""
    return returns - returns + _mean(returns)


def rloo_baseline(returns: Array) -> Array:
    """MARLOO: b^k = 1/(K-1) sum_{l != k} R^l. Unbiased; advantage = K/(K-1) * MAGRPO's.

    A group of one has no others: its baseline is its own return (advantage 0).
    """
    if len(returns) == 1:
        return returns * 1
    offsets = returns - returns[0]
    return returns[0] + (offsets.sum() - offsets) / (len(returns) - 1)


def max_baseline(returns: Array) -> Array:
    """MAReMax: b = max_l R^l, so no completion gets a positive advantage. Biased."""
    return returns - returns + returns.max()


BASELINES: dict[str, Callable[[Any], Any]] = {
    "raw": raw_baseline,
    "mean": mean_baseline,
    "rloo": rloo_baseline,
    "max": max_baseline,
}


def normalized(advantages: Array) -> Array:
    """(A - mean) / max(population std, 1e-6) within one group [G]; a group of one is left as it is.

    Centring removes any constant baseline, so all four modes give the same normalised numbers.
    """
    if len(advantages) <= 1:
        return advantages
    centred = advantages - _mean(advantages)
    return centred / max(float((centred * centred).mean()) ** 0.5, STD_FLOOR)


def _mean(values: Array) -> Any:
    """The mean, exact for equal values: identical rewards must give advantages of exactly zero."""
    return values[0] + (values - values[0]).mean()


# --- critics -------------------------------------------------------------------------------------


def td_targets(rewards: Array, values: Array, discount: float) -> Array:
    """target_t = r_t + discount * V(h_{t+1}), and r_t alone at the last collected turn, which never bootstraps.

    rewards, values [H] of the turns that were collected; in Q mode values are Q(h_t, a_t) of the
    actions really sampled. Returns [H]. Source: TD error of the MAAC and IAC sections.
    """
    targets = rewards * 1
    targets[:-1] += discount * values[1:]
    return targets


def td_errors(targets: Array, values: Array) -> Array:
    """delta_t = target_t - value_t, the actor's weight. [H] -> [H].

    In V mode it is an unbiased advantage once V has converged. In Q mode the critic predicts the
    target of the very action that was taken, so with a converged Q the weight vanishes in
    expectation and the actor stops learning; the source uses that weight, so it is offered.
    """
    return targets - values


def explained_variance(values: Array, targets: Array) -> float:
    """1 - Var(target - value) / Var(target) over [B]: 1 = perfect, 0 = no better than a constant; NaN if all equal."""
    if not targets.max() > targets.min():
        return float("nan")
    return 1.0 - _variance(targets - values) / _variance(targets)


def _variance(values: Any) -> float:
    centred = values - values.mean()
    return float((centred * centred).mean())
