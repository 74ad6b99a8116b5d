"""Critics that are trained by the real trainers reach the exact values of a game that can be enumerated."""

import functools
import statistics
from collections import defaultdict

import games
import pytest
import torch

from workbench.models.tiny import tiny_tokenizer
from workbench.trainers.actor_critic import IACTrainer, MAACTrainer

ONE_TURN = {"critic_type": "q", "num_turns": 1, "num_generations": 4, "num_train_epochs": 24, "rollout_buffer_size": 16}
CASES = {
    "maac v": (MAACTrainer, {}),
    "iac v": (IACTrainer, {}),
    "shared iac v": (
        IACTrainer,
        # The value loss outweighs the policy's, so that the agents change only as the backbone learns to value; they
        # are taken as they are in the end.
        {
            "use_separate_critic": False,
            "agent_learning_rate": 1e-3,
            "value_loss_coef": 1e4,
            "value_clip_range": None,
            "num_train_epochs": 30,
        },
    ),
    "maac q": (MAACTrainer, ONE_TURN),
    "iac q": (IACTrainer, ONE_TURN),
}
SETTINGS = {
    "num_turns": 2, "num_train_epochs": 50, "max_new_tokens": 1, "eval_interval": 0, "rollout_buffer_size": 64,
    "train_batch_size": 16, "agent_learning_rate": 1e-12, "critic_learning_rate": 3e-3, "lr_scheduler": "linear",
    "early_termination_threshold": None,
}  # fmt: skip
RARE = 0.01  # histories of less probability need not be known


class Trained:
    """One case after training, with the agents held fixed."""

    def __init__(self, name):
        self.cls, fields = CASES[name]
        args = self.cls.config_class(**SETTINGS | fields)
        self.kind, self.discount, self.turns = args.critic_type, args.discount, args.num_turns
        models = games.fitted_policies()
        shared = not getattr(args, "use_separate_critic", True)
        for model in [] if shared else models:  # one without trainable parameters is refused: 64 move by 1e-12 a step
            model.requires_grad_(False).model.norm.weight.requires_grad_(True)
        trainer = self.cls(agents=models, tokenizer=tiny_tokenizer(), reward_func=games.reward, args=args,
                           formatters=games.FORMATTERS, external_transition=games.follow,
                           train_dataset=games.ITEMS * 16, critic_model=None if shared else "builtin:tiny")  # fmt: skip
        self.seen = games.Seen(self.cls is MAACTrainer, self.kind)
        trainer.tracker.trackers.append(self.seen)
        trainer.train()
        self.models = [agent.requires_grad_(True) for agent in trainer.agents]
        self.paths = games.all_paths(self.models, self.turns)

    def exact(self, who):
        return games.exact_values(self.paths, who, self.kind, self.discount)

    def critics(self):
        return ["team"] if self.cls is MAACTrainer else [0, 1]


@pytest.fixture(scope="module")
def trained():
    """Each case is trained once, when first asked for."""
    torch.set_num_threads(1)
    return functools.cache(Trained)


def test_the_chances_of_all_paths_sum_to_one():
    paths = games.all_paths(games.fitted_policies(steps=2))
    assert len(paths) == 64
    assert sum(path.chance.item() for path in paths) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_critic_reaches_the_exact_values(trained, case):
    """Within 0.05 of the reward range at every history (Q: and action) of at least 1 % probability."""
    run = trained(case)
    for who in run.critics():
        exact = run.exact(who)
        likely = {key: value for key, (value, chance) in exact.items() if chance > RARE}
        assert max(likely.values()) - min(likely.values()) > 0.3 * games.REWARD_RANGE  # no constant would do
        errors = {key: abs(run.seen.values[who, key] - value) for key, value in likely.items()}
        assert max(errors.values()) < 0.05 * games.REWARD_RANGE, errors


@pytest.mark.parametrize("case", ["maac v", "iac v"])
def test_explained_variance_rises(trained, case):
    """Agent 0's at turn 2, where its own hint and the first turn's outcome decide most of the reward."""
    key = "agent_0/turn_2/explained_variance"
    curve = [point[key] for point in trained(case).seen.points if key in point]
    assert len(curve) > 30
    first, last = statistics.median(curve[:3]), statistics.median(curve[-10:])
    assert last > 0.3 and last > first + 0.2, (first, last)


# --- what the actor gets from them ---------------------------------------------------------------


def gradient(loss, models):
    """Flat gradient of both agents' parameters, [2P]."""
    return torch.cat(
        [g.flatten() for m in models for g in torch.autograd.grad(loss, m.parameters(), retain_graph=True)]
    )


def policy_gradient(models, paths):
    """Of the expected return, by summing over all paths."""
    return gradient(sum(p.chance * sum(step.reward for step in p.steps) for p in paths), models)


def expected_actor_gradient(models, paths, critics, value_of):
    """Sum over all paths of chance * TD error * grad log pi; agent i's V is `value_of(critics[i], what it sees)`."""
    chances, total = games.Chances(models), torch.zeros(())
    for path in paths:
        for agent, who in enumerate(critics):
            values = [value_of(who, games.seen_by(who, "v", step.prompts, step.pair)) for step in path.steps]
            targets = [step.reward + after for step, after in zip(path.steps, [*values[1:], 0.0])]
            for step, target, value in zip(path.steps, targets, values):
                score = chances.log(agent, step.prompts[agent], step.pair[agent])
                total = total + path.chance.detach() * (target - value) * score
    return gradient(total, models)


def test_the_expected_actor_gradient_is_the_exact_policy_gradient(trained):
    """Of MAAC, whose critic sees all that the game's second turn depends on."""
    run = trained("maac v")
    true = policy_gradient(run.models, run.paths)
    of = functools.partial(expected_actor_gradient, run.models, run.paths, ("team", "team"))
    exact = of(lambda who, key: run.exact(who)[key][0])
    learnt = of(lambda who, key: run.seen.values[who, key])
    untrained = of(lambda who, key: 0.0)  # is blind to what turn 1 does to turn 2
    assert (exact - true).norm() < 1e-3 * true.norm()
    assert (learnt - true).norm() < 0.15 * true.norm()
    assert (untrained - true).norm() > 0.3 * true.norm()


@pytest.mark.parametrize(("recall", "low", "high"), [(True, 0.0, 1e-3), (False, 0.1, 1.0)])
def test_an_independent_critic_is_unbiased_if_its_history_holds_the_agents_own_choice(recall, low, high):
    """IAC with the exact V. The mean of V over the next histories is then what the choice leads to; without the choice
    in the prompt, V at turn 2 is a mean over choices that were not made."""
    models = games.fitted_policies()
    paths = games.all_paths(models, recall=recall)
    known = [games.exact_values(paths, agent, "v", 1.0) for agent in range(2)]
    true = policy_gradient(models, paths)
    found = expected_actor_gradient(models, paths, (0, 1), lambda who, key: known[who][key][0])
    assert low * true.norm() <= (found - true).norm() < high * true.norm()


@pytest.mark.parametrize("case", ["maac v", "iac v"])
def test_the_critic_lowers_the_measured_gradient_variance(trained, case):
    """Against raw REINFORCE on the very samples of the run's second half."""
    run = trained(case)
    steps = run.seen.steps[len(run.seen.steps) // 2 :]
    for agent in range(2):
        own = [step for step in steps if step[0] == agent]
        assert len(own) > 1000
        scores = {step[:3]: score_gradient(run.models[agent], *step[1:3]) for step in {s[:3]: s for s in own}.values()}
        raw, critic = (total_variance(scores, [(step[:3], step[column]) for step in own]) for column in (3, 4))
        assert critic < 0.5 * raw, (critic, raw)


def score_gradient(model, prompt, text):
    """Gradient of log pi(text | prompt), [P]."""
    tokenizer = tiny_tokenizer()
    log_p = games.log_probabilities(model, tokenizer, [prompt])[0, tokenizer.convert_tokens_to_ids(text)]
    return gradient(log_p, [model])


def total_variance(scores, samples):
    """Of weight * score over samples [(key of scores, weight)], summed over all parameters."""
    weights = defaultdict(list)
    for key, weight in samples:
        weights[key].append(weight)
    mean = sum(sum(row) * scores[key] for key, row in weights.items()) / len(samples)
    square = sum(sum(w * w for w in row) * scores[key].square().sum() for key, row in weights.items()) / len(samples)
    return float(square - mean.square().sum())
