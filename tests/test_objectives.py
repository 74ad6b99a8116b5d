"""Every formula against numbers worked by hand."""

import math

import pytest
import torch

from workbench import estimators as est
from workbench import objectives as obj

NAN = float("nan")
RETURNS = [1.0, 2.0, 3.0, 6.0]  # mean 3, max 6


def t(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, t(expected, actual.dtype), atol=tolerance, rtol=0, equal_nan=True)


# --- joint responses ---------------------------------------------------------------------------


def test_aligned_responses_pair_equal_indices():
    assert obj.aligned_responses(3, 2) == ((0, 0, 0), (1, 1, 1))


def test_cross_responses_are_all_combinations_last_agent_fastest():
    assert obj.cross_responses(2, 2) == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert len(obj.cross_responses(3, 4)) == 64  # 4**3


def test_joint_modes_are_the_two_of_the_specification():
    assert set(obj.JOINT_MODES) == {"aligned", "cross"}


# --- returns -----------------------------------------------------------------------------------


def test_joint_return_is_reward_plus_plain_mean_of_the_child():
    # branch 0 ends: 1; branch 1: 2 + (3 + 5 + 10) / 3 = 8
    close(obj.joint_returns(t([1.0, 2.0]), [None, t([3.0, 5.0, 10.0])]), [1.0, 8.0])


@pytest.mark.parametrize(
    ("rewards", "children", "expected"),
    [
        ([1.0, 2.0], [[4.0, NAN], [0.0, 2.0]], [5.0, 3.0]),  # 1 + 4 (the scored one), 2 + 1
        ([NAN, 2.0], [[4.0, 4.0], [0.0, 2.0]], [NAN, 3.0]),  # own reward unscored
        ([1.0, 2.0], [[NAN, NAN], [0.0, 2.0]], [NAN, 3.0]),  # whole future unscored
    ],
)
def test_joint_returns_with_unscored_responses(rewards, children, expected):
    close(obj.joint_returns(t(rewards), [t(c) for c in children]), expected)


def responses(join, num_agents, num_generations):
    return torch.tensor(join(num_agents, num_generations))


def test_aligned_completion_return_is_the_joint_return():
    rows = responses(obj.aligned_responses, 2, 3)
    for agent in range(2):
        close(obj.completion_returns(t([1.0, NAN, 3.0]), rows, agent, 3), [1.0, NAN, 3.0])


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (0, [3.0, 7.0]),  # 1 + 2, 3 + 4
        (1, [4.0, 6.0]),  # 1 + 3, 2 + 4
    ],
)
def test_cross_completion_return_is_a_sum_two_agents(agent, expected):
    rows = responses(obj.cross_responses, 2, 2)
    close(obj.completion_returns(t([1.0, 2.0, 3.0, 4.0]), rows, agent, 2), expected)


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (0, [10.0, 26.0]),  # 1+2+3+4, 5+6+7+8
        (1, [14.0, 22.0]),  # 1+2+5+6, 3+4+7+8
        (2, [16.0, 20.0]),  # 1+3+5+7, 2+4+6+8
    ],
)
def test_cross_completion_return_is_a_sum_three_agents(agent, expected):
    rows = responses(obj.cross_responses, 3, 2)
    close(obj.completion_returns(t([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), rows, agent, 2), expected)


@pytest.mark.parametrize(
    ("returns", "agent", "expected"),
    [
        ([1.0, NAN, 3.0, 4.0], 0, [2.0, 7.0]),  # the missing one counts as 1: 1 + 1, 3 + 4
        ([1.0, NAN, 3.0, 4.0], 1, [4.0, 8.0]),  # 1 + 3, 4 + 4
        ([NAN, NAN, 3.0, 4.0], 0, [NAN, 7.0]),  # nothing known of completion 0
        ([NAN, NAN, NAN, NAN], 1, [NAN, NAN]),
    ],
)
def test_cross_sums_with_unscored_responses(returns, agent, expected):
    close(obj.completion_returns(t(returns), responses(obj.cross_responses, 2, 2), agent, 2), expected)


@pytest.mark.parametrize(
    ("memberships", "expected"),
    [
        (1, [1.0 - 0.2, 2.0 - 0.4]),  # 0.1 * [2, 4]
        (4, [1.0 - 0.8, 2.0 - 1.6]),  # in four joint returns: subtracted four times
    ],
)
def test_penalty_is_subtracted_once_per_membership(memberships, expected):
    close(obj.penalised_returns(t([1.0, 2.0]), t([2.0, 4.0]), 0.1, memberships), expected)


# --- baselines and normalisation ---------------------------------------------------------------

ADVANTAGES = {
    "raw": [1.0, 2.0, 3.0, 6.0],
    "mean": [-2.0, -1.0, 0.0, 3.0],  # R - 3
    # others' means: 11/3, 10/3, 9/3, 6/3
    "rloo": [-8 / 3, -4 / 3, 0.0, 4.0],
    "max": [-5.0, -4.0, -3.0, 0.0],  # R - 6
}


def advantages(mode, returns):
    return returns - est.BASELINES[mode](returns)


def test_there_are_four_baselines():
    assert set(est.BASELINES) == set(ADVANTAGES)


@pytest.mark.parametrize("mode", ADVANTAGES)
def test_advantages_of_one_group(mode):
    close(advantages(mode, t(RETURNS)), ADVANTAGES[mode])


@pytest.mark.parametrize("returns", [[1.0, 2.0, 3.0, 6.0], [-4.0, 0.5], [0.1, 0.7, 0.2]])
def test_rloo_is_a_scaled_mean_advantage(returns):
    k = len(returns)
    torch.testing.assert_close(
        advantages("rloo", t(returns)), k / (k - 1) * advantages("mean", t(returns)), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("mode", ADVANTAGES)
def test_normalised_advantages_are_the_same_in_all_modes(mode):
    # deviations -2 -1 0 3; population variance (4 + 1 + 0 + 9) / 4 = 3.5, std 1.8708287
    # (the sample std, sqrt(14 / 3) = 2.16, would give -0.926 ...)
    # rloo scales everything by 4/3, deviations and std alike
    expected = [-1.0690450, -0.5345225, 0.0, 1.6035675]
    close(est.normalized(advantages(mode, t(RETURNS))), expected, 1e-6)


def test_std_has_a_floor():
    # deviations -5e-8 and 5e-8, std 5e-8 is below the floor 1e-6: 5e-8 / 1e-6 = 0.05
    close(est.normalized(t([0.0, 1e-7])), [-0.05, 0.05], 1e-9)


@pytest.mark.parametrize("mode", ADVANTAGES)
def test_group_of_one_is_not_normalised(mode):
    own = advantages(mode, t([5.0]))
    close(own, [5.0] if mode == "raw" else [0.0])
    assert torch.equal(est.normalized(own), own)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e8 + 0.1, -0.7])
@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("mode", ["mean", "rloo", "max"])
def test_identical_rewards_give_exactly_zero(mode, size, value, dtype):
    # 0.1 + 0.1 + 0.1 is not 0.3 in binary; divided by the floor 1e-6 the rest would be a real gradient
    group = advantages(mode, t([value] * size, dtype))
    assert group.tolist() == [0.0] * size
    assert est.normalized(group).tolist() == [0.0] * size


def test_identical_raw_rewards_are_exactly_zero_once_normalised():
    assert est.normalized(t([0.1, 0.1, 0.1])).tolist() == [0.0, 0.0, 0.0]


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("temperature", "probability"),
    [
        (1.0, 4 / 5),  # odds 4 : 1
        (0.5, 16 / 17),  # odds 4**2 : 1
        (2.0, 2 / 3),  # odds 4**0.5 : 1
    ],
)
def test_token_logprobs_follow_the_temperature(temperature, probability):
    logits = torch.tensor([[[0.0, math.log(4)], [0.0, math.log(4)]]])
    result = obj.token_logprobs(logits, torch.tensor([[1, 0]]), temperature)
    close(result, [[math.log(probability), math.log(1 - probability)]], 1e-6)


def test_token_logprobs_are_float32_for_half_precision_logits():
    # logits 0 and 1 are exact in bfloat16: log(e / (1 + e)) = -0.3132617; bfloat16 could not hold it
    result = obj.token_logprobs(torch.tensor([[[0.0, 1.0]]], dtype=torch.bfloat16), torch.tensor([[1]]), 1.0)
    assert result.dtype == torch.float32
    close(result, [[-0.3132617]], 1e-6)


def test_sequence_score_sums_the_completion_only():
    logprobs = t([[-1.0, -2.0, -4.0], [-0.5, -100.0, NAN]])
    is_completion = torch.tensor([[True, True, True], [True, False, False]])
    close(obj.sequence_score(logprobs, is_completion), [-7.0, -0.5])


def test_padding_gets_no_gradient():
    logprobs = t([[-1.0, -2.0]]).requires_grad_()
    obj.sequence_score(logprobs, torch.tensor([[True, False]])).sum().backward()
    close(logprobs.grad, [[1.0, 0.0]])


def test_mean_token_entropy():
    # uniform over 4: ln 4; two left of four: ln 2; mean of the two tokens 1.0397208; padding is left out
    logits = t([[[0.0, 0.0, 0.0, 0.0], [3.0, 3.0, -math.inf, -math.inf], [9.0, 0.0, 0.0, 0.0]]])
    result = obj.mean_token_entropy(logits, torch.tensor([[True, True, False]]), 1.0)
    close(result, [1.0397208], 1e-6)


def test_mean_token_entropy_follows_the_temperature():
    # odds 4 : 1 at temperature 2 are 2 : 1; entropy ln 3 - 2/3 ln 2 = 0.6365142
    result = obj.mean_token_entropy(t([[[math.log(4), 0.0]]]), torch.tensor([[True]]), 2.0)
    close(result, [0.6365142], 1e-6)


# --- loss and penalty --------------------------------------------------------------------------


def test_policy_gradient_loss():
    # -(0.5 * 2 * -1 + 0.25 * -1 * -3 + 0.25 * 4 * -2) = -(-1 + 0.75 - 2) = 2.25
    scores, weights, shares = t([-1.0, -3.0, -2.0]), t([2.0, -1.0, 4.0]), t([0.5, 0.25, 0.25])
    assert obj.policy_gradient_loss(scores, weights, shares).item() == pytest.approx(2.25)


def test_policy_gradient_loss_gradient():
    # d loss / d score = -share * weight = -1, 0.25, -1; advantages are constants
    scores = t([-1.0, -3.0, -2.0]).requires_grad_()
    weights = t([2.0, -1.0, 4.0]).requires_grad_()
    obj.policy_gradient_loss(scores, weights, t([0.5, 0.25, 0.25])).backward()
    close(scores.grad, [-1.0, 0.25, -1.0])
    assert weights.grad is None


def test_gradient_of_a_softmax_policy_by_hand():
    # pi = (1/4, 3/4), action 1, advantage 2: d -(2 log pi_1) / d logits = -2 * (onehot - pi) = (0.5, -0.5)
    logits = t([0.0, math.log(3)]).requires_grad_()
    logprob = obj.token_logprobs(logits[None, None], torch.tensor([[1]]), 1.0)
    score = obj.sequence_score(logprob, torch.tensor([[True]]))
    obj.policy_gradient_loss(score, torch.tensor([2.0]), torch.tensor([1.0])).backward()
    close(logits.grad, [0.5, -0.5], 1e-6)


def test_k3_kl_by_hand():
    # token 1: q = ln 2, 2 - ln 2 - 1 = 0.3068528; token 2: q = -ln 2, 0.5 + ln 2 - 1 = 0.1931472; sum 0.5
    own = t([[-1.0, -1.0, -1.0]])
    reference = t([[-1.0 + math.log(2), -1.0 - math.log(2), 50.0]])
    close(obj.k3_kl(own, reference, torch.tensor([[True, True, False]])), [0.5], 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_k3_kl_of_equal_models_is_exactly_zero(dtype):
    own = t([[-0.1, -33.3]], dtype)
    assert obj.k3_kl(own, own.clone(), torch.tensor([[True, True]])).tolist() == [0.0]


def test_k3_kl_is_never_negative():
    q = torch.linspace(-5, 5, 101, dtype=torch.float64)[:, None]
    assert (obj.k3_kl(torch.zeros_like(q), q, torch.ones_like(q, dtype=torch.bool)) >= 0).all()
