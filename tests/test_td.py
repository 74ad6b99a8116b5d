"""TD targets, TD errors and value losses by hand, and the actor's exact gradient in an enumerable game."""

import itertools
import math

import pytest
import torch

from workbench import estimators, objectives
from workbench.config import IACConfig, MAACConfig
from workbench.parallel.handles import LocalHandle
from workbench.trainers.actor_critic import IACTrainer, MAACTrainer
from workbench.types import Completion, Node, RolloutTree


def t64(values):
    return torch.tensor(values, dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, t64(expected), atol=1e-6, rtol=0)


# --- the formulas --------------------------------------------------------------------------------

# rewards, values, discount, targets, errors
TD = {
    "one turn": ([2.0], [0.5], 1.0, [2.0], [1.5]),
    "one turn, discounted": ([2.0], [0.5], 0.9, [2.0], [1.5]),
    "one turn, nothing": ([0.0], [0.0], 1.0, [0.0], [0.0]),
    # 1 + (-1) = 0, error 0 - 0.5; the last is r alone: 2, error 2 + 1
    "two turns": ([1.0, 2.0], [0.5, -1.0], 1.0, [0.0, 2.0], [-0.5, 3.0]),
    "two turns, discounted": ([1.0, 2.0], [0.5, -1.0], 0.9, [0.1, 2.0], [-0.4, 3.0]),
    "two turns, blind": ([1.0, 2.0], [0.5, -1.0], 0.0, [1.0, 2.0], [0.5, 3.0]),
    # 1 + 1 = 2, 0 - 2 = -2, 2
    "three turns": ([1.0, 0.0, 2.0], [0.5, 1.0, -2.0], 1.0, [2.0, -2.0, 2.0], [1.5, -3.0, 4.0]),
    "three turns, discounted": ([1.0, 0.0, 2.0], [0.5, 1.0, -2.0], 0.9, [1.9, -1.8, 2.0], [1.4, -2.8, 4.0]),
}


@pytest.mark.parametrize("case", TD)
def test_targets_and_errors(case):
    rewards, values, discount, targets, errors = TD[case]
    close(estimators.td_targets(t64(rewards), t64(values), discount), targets)
    close(estimators.td_errors(t64(targets), t64(values)), errors)


def test_an_unscored_reward_spoils_only_its_own_target():
    targets = estimators.td_targets(t64([1.0, math.nan, 2.0]), t64([0.0, 5.0, 7.0]), 1.0)
    assert targets.isnan().tolist() == [False, True, False]
    assert targets[0] == 6.0 and targets[2] == 2.0


def test_exact_values_make_zero_errors_whatever_the_length():
    rewards = t64([1.0, -2.0, 3.0])
    values = t64([2.0, 1.0, 3.0])  # reward sums from each turn on
    close(estimators.td_errors(estimators.td_targets(rewards, values, 1.0), values), [0.0, 0.0, 0.0])


# --- the estimator: a branch of nodes, critics given by a table -----------------------------------


class Table:
    """A critic that looks up values."""

    def __init__(self, look_up):
        self.look_up, self.read = look_up, []

    def values(self, inputs):
        self.read.append(list(inputs))
        return [self.look_up(i) for i in inputs]


def completion(agent, turn, k, kl=None):
    """Prompt ids (agent, turn), tokens (50 + k,), text "answer k of agent, turn"."""
    return Completion(f"prompt {agent}.{turn}", (agent, turn), f"answer {k}", (50 + k,), True, -1.0, kl)


def branch(rewards, kls=None, k=1):
    """A chain of nodes; rewards [turns][n][k], kls [turns][n] or None."""
    nodes = []
    for t, rows in enumerate(rewards):
        n = len(rows)
        row_kls = kls[t] if kls else [None] * n
        completions = tuple(tuple(completion(a, t + 1, j, row_kls[a]) for j in range(k)) for a in range(n))
        nodes.append(Node(item=0, turn=t + 1, prompts=("",) * n, parent=nodes[-1] if nodes else None,
                          completions=completions, responses=tuple((j,) * n for j in range(k)),
                          agent_rewards=tuple(map(tuple, rows))))  # fmt: skip
    return RolloutTree(nodes)


def estimator(cls, look_ups, **fields):
    """A trainer with critics and no models."""
    trainer = cls.__new__(cls)
    config = {"num_turns": 3, "reference_kl_coef": 0.5} | fields
    trainer.args = {MAACTrainer: MAACConfig, IACTrainer: IACConfig}[cls](**config)
    trainer.num_agents = 2
    trainer.critics = [LocalHandle(Table(f)) for f in look_ups]
    return trainer


V = {(0, 1): 0.5, (0, 2): 1.0, (0, 3): -2.0, (1, 1): 0.0, (1, 2): 3.0, (1, 3): 10.0}
Q = {(*key, 50): 2 * value for key, value in V.items()}  # another table: a V where a Q belongs is a KeyError


def iac(kind="v", **fields):
    table = V if kind == "v" else Q
    return estimator(IACTrainer, [table.__getitem__] * 2, critic_type=kind, **fields)


def by_agent(samples):
    return [[s for row in samples for s in row if s.agent == agent] for agent in range(2)]


SHARED = [[[1.0], [1.0]], [[0.0], [0.0]], [[2.0], [2.0]]]
# Agent 0 with V 0.5 1 -2, agent 1 with V 0 3 10; rewards 1 0 2; only the first `turns` turns were collected
COLLECTED = {
    # r alone
    (1, 1.0, "v"): ([1.0], [1.0]),
    (1, 0.9, "v"): ([1.0], [1.0]),
    # 1 + 1, 0 | 1 + 3, 0
    (2, 1.0, "v"): ([2.0, 0.0], [4.0, 0.0]),
    (2, 0.9, "v"): ([1.9, 0.0], [3.7, 0.0]),
    # 1 + 1, 0 - 2, 2 | 1 + 3, 0 + 10, 2
    (3, 1.0, "v"): ([2.0, -2.0, 2.0], [4.0, 10.0, 2.0]),
    (3, 0.9, "v"): ([1.9, -1.8, 2.0], [3.7, 9.0, 2.0]),
    # Q is twice V: 1 + 2, 0 | 1 + 6, 0
    (1, 0.9, "q"): ([1.0], [1.0]),
    (2, 1.0, "q"): ([3.0, 0.0], [7.0, 0.0]),
    (2, 0.9, "q"): ([2.8, 0.0], [6.4, 0.0]),
    (3, 1.0, "q"): ([3.0, -4.0, 2.0], [7.0, 20.0, 2.0]),
    (3, 0.9, "q"): ([2.8, -3.6, 2.0], [6.4, 18.0, 2.0]),
}


@pytest.mark.parametrize(("turns", "discount", "kind"), COLLECTED)
def test_branch_targets_of_independent_critics(turns, discount, kind):
    """turns < 3 is also what early termination leaves: the last collected turn never bootstraps."""
    samples = iac(kind, discount=discount)._tree_samples(branch(SHARED[:turns]), first_id=7)
    assert [len(row) for row in samples] == [2] * turns
    for agent, (own, targets) in enumerate(zip(by_agent(samples), COLLECTED[turns, discount, kind])):
        values = [(2 if kind == "q" else 1) * V[agent, t + 1] for t in range(turns)]
        assert [s.targets[0] for s in own] == pytest.approx(targets)
        assert [s.returns[0] for s in own] == pytest.approx(targets)
        assert [s.values[0] for s in own] == [s.baselines[0] for s in own] == values
        assert [s.advantages[0] for s in own] == pytest.approx([t - v for t, v in zip(targets, values)])
        assert [(s.turn, s.node_id, s.ks) for s in own] == [(t + 1, 7 + t, (0,)) for t in range(turns)]


def test_each_agents_targets_use_its_own_rewards():
    rewards = [[[1.0], [-1.0]], [[0.0], [5.0]], [[2.0], [7.0]]]
    first, second = by_agent(iac()._tree_samples(branch(rewards), 0))
    assert [s.targets[0] for s in first] == [2.0, -2.0, 2.0]
    assert [s.targets[0] for s in second] == [2.0, 15.0, 7.0]  # -1 + 3, 5 + 10, 7


def test_the_penalty_lowers_each_agents_reward_by_its_own_kl():
    kls = [[0.2, 1.0], [0.0, 2.0], [4.0, 0.4]]
    first, second = by_agent(iac()._tree_samples(branch(SHARED, kls), 0))
    # coefficient 0.5: agent 0's rewards 1 - 0.1, 0, 2 - 2; agent 1's 1 - 0.5, 0 - 1, 2 - 0.2
    assert [s.targets[0] for s in first] == pytest.approx([1.9, -2.0, 0.0])
    assert [s.targets[0] for s in second] == pytest.approx([3.5, 9.0, 1.8])


def test_an_unscored_turn_gives_no_sample_and_the_others_stand():
    rewards = [[[1.0], [1.0]], [[None], [0.0]], [[2.0], [2.0]]]
    first, second = by_agent(iac()._tree_samples(branch(rewards), 0))
    assert [(s.turn, s.targets[0]) for s in first] == [(1, 2.0), (3, 2.0)]
    assert [s.turn for s in second] == [1, 2, 3]


def test_single_turn_generations_are_branches_of_their_own():
    rewards = [[[1.0, 4.0, None], [1.0, 4.0, None]]]
    trainer = iac(num_turns=1, num_generations=3)
    (row,) = trainer._tree_samples(branch(rewards, k=3), 0)
    assert [(s.agent, s.ks, s.targets, s.advantages) for s in row] == [
        (0, (0,), (1.0,), (0.5,)),
        (0, (1,), (4.0,), (3.5,)),
        (1, (0,), (1.0,), (1.0,)),
        (1, (1,), (4.0,), (4.0,)),
    ]


@pytest.mark.parametrize("kind", ["v", "q"])
def test_the_central_critic_reads_all_prompts_and_gives_all_agents_one_error(kind):
    def look_up(text):
        assert ("answer" in text) == (kind == "q")
        assert all(f"prompt {agent}." in text for agent in range(2))
        return next({1: 0.5, 2: 1.0, 3: -2.0}[t] for t in (1, 2, 3) if f"prompt 0.{t}" in text)

    trainer = estimator(MAACTrainer, [look_up], critic_type=kind)
    first, second = by_agent(trainer._tree_samples(branch(SHARED), 0))
    assert [s.targets[0] for s in first] == [s.targets[0] for s in second] == [2.0, -2.0, 2.0]
    assert [s.advantages[0] for s in first] == [s.advantages[0] for s in second] == [1.5, -3.0, 4.0]
    assert [len(call) for call in trainer.critics[0].worker.read] == [3]  # one call, equal texts once


# --- value losses --------------------------------------------------------------------------------

# old value 1, range 0.2: V_clip is V within [0.8, 1.2]
CLIPPED = {
    # name: (V, target, range, loss, d loss / d V)
    "inactive": (1.1, 2.0, 0.2, 0.81, -1.8),  # both (1.1 - 2)^2, gradient 2 (1.1 - 2)
    "unmoved": (1.0, 3.0, 0.2, 4.0, -4.0),
    "above, clipped is worse": (1.5, 2.0, 0.2, 0.64, 0.0),  # max(0.25, (1.2 - 2)^2): no more push up
    "above, unclipped is worse": (1.5, 0.0, 0.2, 2.25, 3.0),  # max(2.25, 1.44): pulled back
    "below, clipped is worse": (0.5, 0.0, 0.2, 0.64, 0.0),  # max(0.25, 0.8^2)
    "below, unclipped is worse": (0.5, 2.0, 0.2, 2.25, -3.0),  # max(2.25, (0.8 - 2)^2)
    "no clip": (1.5, 2.0, None, 0.25, -1.0),
    "wide clip": (1.5, 2.0, 0.6, 0.25, -1.0),
}


@pytest.mark.parametrize("case", CLIPPED)
def test_clipped_value_loss_and_gradient(case):
    value, target, limit, loss, slope = CLIPPED[case]
    values = t64([value]).requires_grad_()
    old, targets = t64([1.0]).requires_grad_(), t64([target]).requires_grad_()
    actual = objectives.clipped_value_loss(values, old, targets, t64([1.0]), limit)
    assert actual.item() == pytest.approx(loss, abs=1e-9)
    actual.backward()
    assert values.grad.item() == pytest.approx(slope, abs=1e-9)
    assert old.grad is None and targets.grad is None  # constants


@pytest.mark.parametrize(("limit", "loss", "slopes"), [
    # mean of the four moved cases: (0.64 + 2.25 + 0.64 + 2.25) / 4, slopes / 4
    (0.2, 1.445, [0.0, 0.75, 0.0, -0.75]),
    # unclipped: (0.25 + 2.25 + 0.25 + 2.25) / 4; slopes 2 (V - target) / 4
    (None, 1.25, [-0.25, 0.75, 0.25, -0.75]),
])  # fmt: skip
def test_clipped_value_loss_is_a_mean_of_maxima(limit, loss, slopes):
    values = t64([1.5, 1.5, 0.5, 0.5]).requires_grad_()
    shares = torch.full((4,), 0.25, dtype=torch.float64)
    actual = objectives.clipped_value_loss(values, torch.ones_like(values), t64([2.0, 0.0, 0.0, 2.0]), shares, limit)
    assert actual.item() == pytest.approx(loss)
    actual.backward()
    close(values.grad, slopes)


def test_value_loss_is_the_mean_squared_error_of_fixed_targets():
    values, targets = t64([1.0, 2.0]).requires_grad_(), t64([3.0, 2.5]).requires_grad_()
    loss = objectives.value_loss(values, targets, t64([0.5, 0.5]))
    assert loss.item() == pytest.approx(2.125)  # (4 + 0.25) / 2
    loss.backward()
    close(values.grad, [-2.0, -0.5])
    assert targets.grad is None


@pytest.mark.parametrize(("values", "targets", "expected"), [
    ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 1.0),
    ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0], 0.0),  # a constant explains nothing
    ([5.0, 6.0, 7.0], [1.0, 2.0, 3.0], 1.0),  # an offset is not variance
    ([0.0, 0.0, 3.0, 3.0], [0.0, 2.0, 2.0, 4.0], 0.375),  # residuals 0 2 -1 1, mean 0.5, var 1.25; targets' 2
    ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], -3.0),  # residuals -2 0 2: 4 times the variance
])  # fmt: skip
def test_explained_variance(values, targets, expected):
    assert estimators.explained_variance(t64(values), t64(targets)) == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", [0.0, 1.0, 0.1, 0.7, 1 / 3, 100.1])
def test_explained_variance_of_equal_targets_is_undefined(target, dtype):
    for count in range(1, 17):
        targets = torch.full((count,), target, dtype=dtype)
        values = torch.linspace(0, 1, count, dtype=dtype)
        assert math.isnan(estimators.explained_variance(values, targets)), count


# --- an enumerable game --------------------------------------------------------------------------

REWARDS = t64([[1.0, 0.0, 2.0], [0.5, 3.0, -1.0], [0.0, 1.5, 4.0]])
LOGITS = ((0.3, -0.2, 0.5), (-0.4, 0.1, 0.6))
JOINT = list(itertools.product(range(3), repeat=2))


class Game:
    """One turn, two agents, three actions each, softmax parameters: every expectation is a sum of nine terms."""

    def __init__(self):
        self.params = [t64(row).requires_grad_() for row in LOGITS]
        self.log_p = [torch.log_softmax(p, -1) for p in self.params]
        policies = [p.exp() for p in self.log_p]
        self.joint = policies[0][:, None] * policies[1]
        self.value = (self.joint * REWARDS).sum()  # V = E[R], with the parameters' graph
        with torch.no_grad():
            self.action_values = [REWARDS @ policies[1], policies[0] @ REWARDS]  # Q_i(a_i) = E[R | a_i]

    def true_gradient(self):
        return torch.cat(torch.autograd.grad(self.value, self.params, retain_graph=True))

    def weight(self, action, value):
        """The actor's weight in one sample, by the library's formulas."""
        reward, value = REWARDS[action].view(1), torch.as_tensor(value, dtype=torch.float64).view(1)
        return estimators.td_errors(estimators.td_targets(reward, value, 1.0), value)

    def gradients(self, weight):
        """Ascent direction of both agents after each joint action [9, 6]; weight(action, agent) -> [1]."""
        rows = []
        for action in JOINT:
            loss = sum(
                objectives.policy_gradient_loss(self.log_p[i][action[i]].view(1), weight(action, i), t64([1.0]))
                for i in range(2)
            )
            rows.append(-torch.cat(torch.autograd.grad(loss, self.params, retain_graph=True)))
        return torch.stack(rows)

    def moments(self, weight):
        probabilities = self.joint.detach().flatten()
        rows = self.gradients(weight)
        mean = probabilities @ rows
        return mean, float(probabilities @ (rows - mean).square().sum(1))


@pytest.fixture(scope="module")
def game():
    return Game()


def test_exact_v_gives_the_exact_gradient_with_less_variance_than_raw(game):
    value = game.value.detach()
    raw = game.moments(lambda action, agent: REWARDS[action].view(1))
    critic = game.moments(lambda action, agent: game.weight(action, value))
    for mean, _ in (raw, critic):
        torch.testing.assert_close(mean, game.true_gradient(), atol=1e-9, rtol=0)
    assert game.true_gradient().norm() > 0.5
    assert critic[1] < 0.8 * raw[1], (critic[1], raw[1])


@pytest.mark.parametrize("value", [-3.0, 0.0, 0.7, 50.0])
def test_a_wrong_v_costs_variance_but_not_the_expectation(game, value):
    mean, variance = game.moments(lambda action, agent: game.weight(action, value))
    torch.testing.assert_close(mean, game.true_gradient(), atol=1e-9, rtol=0)
    exact = game.moments(lambda action, agent: game.weight(action, game.value.detach()))[1]
    assert variance > exact


def test_exact_joint_q_leaves_no_weight_at_all(game):
    for action in JOINT:
        assert game.weight(action, REWARDS[action]).item() == 0.0


@pytest.mark.parametrize("agent", [0, 1])
def test_exact_own_q_leaves_no_weight_in_expectation(game, agent):
    """IAC's Q_i(a_i): single weights are not zero, their mean given the own action is, so nothing is learnt."""
    joint = game.joint.detach()
    for own in range(3):
        actions = [a for a in JOINT if a[agent] == own]
        weights = [game.weight(a, game.action_values[agent][own]).item() for a in actions]
        assert max(map(abs, weights)) > 0.5
        assert sum(float(joint[a]) * w for a, w in zip(actions, weights)) == pytest.approx(0.0, abs=1e-12)
    mean, _ = game.moments(lambda action, i: game.weight(action, game.action_values[i][action[i]]))
    assert mean.abs().max() < 1e-12
