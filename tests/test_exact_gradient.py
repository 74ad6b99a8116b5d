"""The estimators' exact expectation in a game small enough to enumerate: no sampling, no luck.

Two agents (later three) pick one token each from a softmax; the team's reward is a table. The true
gradient of E[R] comes from summing over all joint actions; an estimator's expectation from summing
over all groups of K samples, each weighted with its probability.
"""

import itertools

import pytest
import torch

from workbench import estimators, objectives

REWARDS = torch.tensor([[1.0, 0.0, 2.0], [0.5, 3.0, -1.0], [0.0, 1.5, 4.0]], dtype=torch.float64)
LOGITS = ((0.3, -0.2, 0.5), (-0.4, 0.1, 0.6))
REWARDS_3 = torch.tensor([[[1.0, 2.0], [0.0, -1.0]], [[3.0, 0.5], [1.0, 4.0]]], dtype=torch.float64)
LOGITS_3 = ((0.3, -0.2), (-0.4, 0.1), (0.0, 0.7))


def policies(logits=LOGITS):
    return [torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in logits]


def flat(grads):
    return torch.cat([g.flatten() for g in grads])


def true_gradient(params, rewards):
    """Gradient of the sum over joint actions of pi_1 ... pi_n * R."""
    expected = 0.0
    for actions in itertools.product(*(range(len(p)) for p in params)):
        probability = 1.0
        for p, action in zip(params, actions):
            probability = probability * torch.softmax(p, -1)[action]
        expected = expected + probability * rewards[actions]
    return flat(torch.autograd.grad(expected, params))


def estimates(params, rewards, mode, k, join):
    """(probability, gradient estimate of all agents) of every possible group of k samples per agent."""
    n = len(params)
    log_p = [torch.log_softmax(p, -1) for p in params]
    responses = torch.tensor(join(n, k))
    for flat_actions in itertools.product(range(len(params[0])), repeat=n * k):
        group = [flat_actions[i * k : (i + 1) * k] for i in range(n)]  # [n][k]
        probability = sum(log_p[i][a].item() for i in range(n) for a in group[i])
        joint = [rewards[tuple(group[i][r[i]] for i in range(n))] for r in responses.tolist()]
        loss = 0.0
        for agent in range(n):
            returns = objectives.completion_returns(torch.stack(joint), responses, agent, k)
            advantages = returns - estimators.BASELINES[mode](returns)
            scores = log_p[agent][list(group[agent])]
            shares = torch.full((k,), 1 / k, dtype=torch.float64)
            loss = loss + objectives.policy_gradient_loss(scores, advantages, shares)
        yield probability, -flat(torch.autograd.grad(loss, params, retain_graph=True))


def moments(params, rewards, mode, k, join=objectives.aligned_responses):
    """Exact expectation and exact total variance of the estimator."""
    pairs = list(estimates(params, rewards, mode, k, join))
    weights = torch.tensor([p for p, _ in pairs], dtype=torch.float64).exp()
    assert weights.sum().item() == pytest.approx(1.0, abs=1e-9)
    grads = torch.stack([g for _, g in pairs])
    expectation = weights @ grads
    return expectation, (weights @ (grads - expectation).square()).sum().item()


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)


@pytest.fixture(scope="module")
def aligned():
    """Moments per (mode, K) in aligned mode, enumerated once."""
    params = policies()
    return {(m, k): moments(params, REWARDS, m, k) for m in estimators.BASELINES for k in (2, 3)}


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("mode", ["raw", "rloo"])
def test_mareinforce_and_marloo_are_unbiased(aligned, mode, k):
    assert_equal(aligned[mode, k][0], true_gradient(policies(), REWARDS))


@pytest.mark.parametrize("k", [2, 3])
def test_magrpo_is_short_by_k_minus_one_over_k(aligned, k):
    assert_equal(aligned["mean", k][0], (k - 1) / k * true_gradient(policies(), REWARDS))


@pytest.mark.parametrize(
    ("k", "bias"),
    [
        (2, 0.37024),  # measured: 61 % of the true gradient's norm, 0.61006
        (3, 0.24725),  # 41 %
    ],
)
def test_maremax_is_biased(aligned, k, bias):
    gradient = true_gradient(policies(), REWARDS)
    assert gradient.norm().item() == pytest.approx(0.61006, abs=1e-4)
    assert (aligned["max", k][0] - gradient).norm().item() == pytest.approx(bias, abs=1e-4)


@pytest.mark.parametrize("k", [2, 3])
def test_magrpo_variance_is_that_of_marloo_scaled(aligned, k):
    # advantage (K-1)/K of MARLOO's in every group, so variance ((K-1)/K)^2 of it
    assert aligned["mean", k][1] == pytest.approx(((k - 1) / k) ** 2 * aligned["rloo", k][1], abs=1e-9)


def test_leave_one_out_beats_no_baseline_once_rewards_are_offset():
    # a constant added to all rewards changes no expected gradient but inflates raw's variance
    params = policies()
    raw, rloo = (moments(params, REWARDS + 5.0, mode, 2) for mode in ("raw", "rloo"))
    assert_equal(raw[0], rloo[0])
    assert raw[1] > 5 * rloo[1]  # measured: 26.83 and 3.27


@pytest.mark.parametrize("mode", ["mean", "rloo", "max"])
def test_an_offset_leaves_group_baselines_untouched(aligned, mode):
    expectation, variance = moments(policies(), REWARDS + 5.0, mode, 2)
    assert_equal(expectation, aligned[mode, 2][0])
    assert variance == pytest.approx(aligned[mode, 2][1], abs=1e-9)


CROSS = [
    # a completion's return sums K^(n-1) joint returns, each with expectation E[R | a]
    ("raw", 1.0),
    ("rloo", 1.0),  # the others' sums share partners but not the agent's own action
    ("mean", 0.5),  # (K-1)/K with K = 2
]


@pytest.mark.parametrize(("mode", "factor"), CROSS)
def test_cross_mode_two_agents(mode, factor):
    # n = 2, K = 2: K^(n-1) = 2
    expectation, _ = moments(policies(), REWARDS, mode, 2, objectives.cross_responses)
    assert_equal(expectation, 2 * factor * true_gradient(policies(), REWARDS))


@pytest.mark.parametrize(("mode", "factor"), CROSS)
def test_cross_mode_three_agents(mode, factor):
    # n = 3, K = 2: K^(n-1) = 4
    expectation, _ = moments(policies(LOGITS_3), REWARDS_3, mode, 2, objectives.cross_responses)
    assert_equal(expectation, 4 * factor * true_gradient(policies(LOGITS_3), REWARDS_3))


def test_cross_mode_uses_samples_better_than_aligned(aligned):
    # the same 2 x 2 samples, four joint rewards instead of two: half the cross estimator (to undo the
    # factor K = 2) has the same expectation and less variance
    expectation, variance = moments(policies(), REWARDS, "rloo", 2, objectives.cross_responses)
    assert_equal(expectation / 2, aligned["rloo", 2][0])
    assert variance / 4 < aligned["rloo", 2][1]  # measured: 2.34 and 3.27
