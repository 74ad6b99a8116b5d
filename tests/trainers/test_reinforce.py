"""The four REINFORCE trainers on a real, tiny model."""

import random
import warnings
from itertools import pairwise, product

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from workbench.models import workers as model_workers
from workbench.models.learner import Learner, TrainingDiverged
from workbench.models.policy import Policy
from workbench.models.tiny import tiny_model, tiny_tokenizer
from workbench.tracking.base import NullMonitor, NullTracker
from workbench.trainers import setup as trainer_setup
from workbench.trainers.reinforce import (
    MAGRPOConfig,
    MAGRPOTrainer,
    MAREINFORCEConfig,
    MAREINFORCETrainer,
    MAReMaxConfig,
    MAReMaxTrainer,
    MARLOOConfig,
    MARLOOTrainer,
)
from workbench.types import Term

TINY = "builtin:tiny"


def items(count):
    return [{"prompt": f"item {i}"} for i in range(count)]


def lengths(*completions, batch_items=None):
    """How many different characters the team wrote: varied, deterministic, and never a tie for long."""
    return [float(len(set("".join(texts)))) for texts in zip(*completions)]


def follow(agent_completions, **context):
    return [f"then {text[:2]}" for text in agent_completions]


def config(cls=MAGRPOConfig, **values):
    settings = {"num_turns": 1, "num_train_epochs": 1, "num_generations": 2, "max_new_tokens": 3, "eval_interval": 0,
                "agent_learning_rate": 1e-3, "early_termination_threshold": None}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(**settings | values)


def make(trainer=MAGRPOTrainer, dataset=4, **arguments):
    """A trainer of two tiny agents; config fields and constructor arguments by name."""
    names = trainer.config_class.__dataclass_fields__
    fields = {name: arguments.pop(name) for name in list(arguments) if name in names}
    given = {"reward_func": lengths, "train_dataset": items(dataset)} | arguments
    if "args" not in given:
        given["args"] = config(trainer.config_class, **fields)
    if "agents" not in given:
        given.setdefault("agent_model", TINY)
    if given["args"] is not None and getattr(given["args"], "num_turns", 1) > 1:
        given.setdefault("external_transition", follow)
    built = trainer(**given)
    built.seen = Recorder()
    built.tracker.trackers.append(built.seen)
    return built


class Recorder(NullTracker):
    def __init__(self):
        self.records, self.points = [], []

    def nodes(self, records):
        self.records += records

    def metrics(self, step, values):
        self.points.append((step, dict(values)))

    def of(self, phase):
        return [r for r in self.records if r.phase == phase]


class StopAt(NullMonitor):
    """Asks to stop once `item` items are done."""

    def __init__(self, item, trainer):
        self.item, self.trainer = item, trainer

    def stop_requested(self):
        return self.trainer.cursor.done >= self.item


def weights(trainer):
    return [{name: value.clone() for name, value in agent.state_dict().items()} for agent in trainer.agents]


def same(first, second):
    return all(torch.equal(a[name], b[name]) for a, b in zip(first, second, strict=True) for name in a)


def workers(trainer):
    return [handle.worker for handle in trainer.team.policies]


@pytest.fixture
def no_loading(monkeypatch):
    """Loading a model is an error: the mistake must be found before."""

    def refuse(*_):
        raise AssertionError("a model was loaded before the arguments were checked")

    monkeypatch.setattr(model_workers, "load_model", refuse)
    monkeypatch.setattr(trainer_setup, "load_tokenizer", refuse)


@pytest.fixture
def updates(monkeypatch):
    """(worker name, number of completions) of every optimizer step."""
    seen = []
    original = Policy.update

    def update(self, terms):
        seen.append((self.name, len(terms), sum(t.share for t in terms)))
        return original(self, terms)

    monkeypatch.setattr(Policy, "update", update)
    return seen


# --- the family --------------------------------------------------------------------------------

FAMILY = [
    (MAGRPOTrainer, MAGRPOConfig, "mean"),
    (MAREINFORCETrainer, MAREINFORCEConfig, "raw"),
    (MARLOOTrainer, MARLOOConfig, "rloo"),
    (MAReMaxTrainer, MAReMaxConfig, "max"),
]


@pytest.mark.parametrize(("trainer", "args", "mode"), FAMILY)
def test_family(trainer, args, mode):
    assert issubclass(trainer, MAGRPOTrainer) and issubclass(args, MAGRPOConfig)
    assert trainer.config_class is args
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert args().advantage_mode == mode


# advantages of the K = 4 returns 1 2 3 6, as in test_objectives
ADVANTAGES = {
    "mean": [-2.0, -1.0, 0.0, 3.0],
    "raw": [1.0, 2.0, 3.0, 6.0],
    "rloo": [-8 / 3, -4 / 3, 0.0, 4.0],
    "max": [-5.0, -4.0, -3.0, 0.0],
}
BASELINES = {"mean": [3.0] * 4, "raw": [0.0] * 4, "rloo": [11 / 3, 10 / 3, 3.0, 2.0], "max": [6.0] * 4}


def known_returns(*_):
    return [1.0, 2.0, 3.0, 6.0]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("trainer", "args", "mode"), FAMILY)
def test_trace_holds_return_baseline_advantage_and_weight(trainer, args, mode, normalize):
    built = make(trainer, dataset=1, num_generations=4, reward_func=known_returns, advantage_normalization=normalize)
    built.train()
    (node,) = built.seen.records
    # normalised: deviations -2 -1 0 3 over the population std 1.8708287, whatever the baseline
    expected = [-1.0690450, -0.5345225, 0.0, 1.6035675] if normalize else ADVANTAGES[mode]
    for agent in range(2):
        rows = [c for c in node.completions if c.agent == agent]
        assert [c.return_ for c in rows] == [1.0, 2.0, 3.0, 6.0]
        assert [c.baseline for c in rows] == pytest.approx(BASELINES[mode])
        assert [c.advantage for c in rows] == pytest.approx(ADVANTAGES[mode])
        assert [c.normalized for c in rows] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("trainer", "args", "mode"), FAMILY)
def test_normalised_trainers_learn_the_same(trainer, args, mode):
    built, magrpo = make(trainer, dataset=2), make(dataset=2)
    built.train(), magrpo.train()
    for a, b in zip(weights(built), weights(magrpo)):
        for name in a:
            torch.testing.assert_close(a[name], b[name], atol=1e-4, rtol=0)


# --- constructor -------------------------------------------------------------------------------


def test_two_agents_by_default():
    built = make()
    assert built.num_agents == 2 == len(built.agents)
    assert built.agents[0] is not built.agents[1]
    assert built.env_step == 0


def test_length_of_agents_decides():
    built = make(agents=[TINY] * 3, num_agents=3, args=config())
    assert built.num_agents == 3 and built.args.num_agents == 3


def test_length_of_agents_decides_whatever_num_agents_says():
    arguments = {"agents": [TINY] * 3, "reward_func": lengths, "args": config()}
    assert MAGRPOTrainer(**arguments, num_agents=2).num_agents == 3


def test_a_different_num_agents_in_args_warns_and_yields():
    args = config(num_agents=4)
    with pytest.warns(UserWarning, match=r"args.num_agents is 4.*3 agents"):
        built = make(agents=[TINY] * 3, args=args)
    assert built.args.num_agents == 3
    assert args.num_agents == 4  # the user's object is left alone


def test_three_agents_with_three_formatters_and_default_args():
    formatters = [lambda item, i=i: f"{i}: {item['prompt']}" for i in range(3)]
    built = make(agents=[TINY] * 3, formatters=formatters, dataset=1)
    built.train()
    prompts = {c.agent: c.prompt for c in built.seen.records[0].completions}
    assert prompts == {0: "0: item 0", 1: "1: item 0", 2: "2: item 0"}


def test_one_agent():
    built = make(num_agents=1, reward_func=lambda texts: [float(len(t)) for t in texts], dataset=2)
    before = weights(built)
    built.train()
    assert built.num_agents == 1 and not same(weights(built), before)


def test_one_object_listed_twice_has_one_optimizer(updates):
    model = tiny_model()
    built = make(agents=[model, model], tokenizer=tiny_tokenizer(), dataset=2)
    first, second = workers(built)
    assert first is second and built.agents[0] is built.agents[1] is model
    built.train()
    assert [name for name, *_ in updates] == ["agent 0", "agent 0"]  # both agents' samples, one after the other
    assert len(built.workers()) == 1


def test_equal_but_distinct_objects_are_two_models():
    built = make(agents=[tiny_model(), tiny_model()], tokenizer=tiny_tokenizer())
    assert workers(built)[0] is not workers(built)[1]


def reject(**arguments):
    given = {"agent_model": TINY, "reward_func": lengths, "args": config(), "train_dataset": items(1)} | arguments
    return MAGRPOTrainer(**{name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agent_model": None}, "agent_model"),
        ({"agent_model": tiny_model()}, "agent_model must be a model name"),
        ({"agent_model": None, "agents": []}, "agents must be a non-empty list"),
        ({"agent_model": None, "agents": TINY}, "agents must be a non-empty list"),
        ({"agent_model": None, "agents": [TINY, 3]}, r"agents\[1\]"),
        ({"agent_model": "other", "agents": [TINY, TINY]}, "agent_model .* and agents disagree"),
        ({"agent_model": None, "agents": [tiny_model(), TINY]}, "tokenizer is required"),
        ({"tokenizer": [tiny_tokenizer()]}, "tokenizer has 1 entries for 2 agents"),
        ({"num_agents": 0}, "num_agents must be a whole number of at least 1"),
        ({"reward_func": None}, "reward_func is required"),
        ({"reward_func": lambda a: [0.0]}, "reward_func takes 1"),
        ({"args": config(num_turns=2)}, "external_transition"),
        ({"args": {"num_turns": 1}}, "args must be a MAGRPOConfig"),
        ({"formatters": [follow]}, "formatters must be one callable or 2"),
        ({"external_transition": 3}, "external_transition must be callable"),
        ({"eval_logger": follow}, "eval_aggregator"),
        ({"eval_aggregator": follow}, "eval_logger"),
        ({"model_config": {"atn_implementation": "eager"}}, "'atn_implementation'.*'attn_implementation'"),
        ({"model_config": {"dtype": "float33"}}, "dtype"),
        ({"args": config(agent_devices="cuda:7")}, "agent_devices.*cuda:7"),
        ({"args": config(agent_devices="gpu")}, "agent_devices.*'gpu'"),
        ({"args": config(agent_devices=["cpu", "cuda:0"])}, "agent_devices: there is no device 'cuda:0'"),
        ({"args": config(reference_devices="cuda:7", reference_kl_enabled=True)}, "reference_devices.*cuda:7"),
        ({"train_dataset": ["text"]}, "train_dataset must be a list of items"),
        ({"eval_dataset": ["text"]}, "eval_dataset must be a list of items"),
    ],
)
def test_wrong_arguments_are_refused_before_a_model_loads(no_loading, arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        reject(**arguments)
    assert "\n" not in str(caught.value)


def test_args_of_another_algorithm_are_refused(no_loading):
    with pytest.raises(ValueError, match="args must be a MARLOOConfig, got MAGRPOConfig"):
        make(MARLOOTrainer, args=config())


def test_loading_options_for_a_loaded_model_are_refused_not_dropped():
    with pytest.raises(ValueError, match="no effect on a model that is already loaded"):
        make(agents=[tiny_model()] * 2, tokenizer=tiny_tokenizer(), model_config={"dtype": "bfloat16"})


def made_or_refused(word, **arguments):
    """The trainer, or None when it was refused with a message that holds the word; never a silent drop."""
    try:
        return make(**arguments)
    except ValueError as error:
        if word not in str(error):
            raise
        return None


def test_an_adapter_for_a_loaded_model_is_made_or_refused_not_dropped():
    lora = {"r": 2, "target_modules": ["q_proj"]}
    agents = [tiny_model(), tiny_model()]
    built = made_or_refused("lora", agents=agents, tokenizer=tiny_tokenizer(), model_config={"lora": lora})
    assert built is None or any("lora_" in name for name in weights(built)[0])


def test_loading_options_for_a_built_in_model_are_used_or_refused_not_dropped():
    built = made_or_refused("attn_implementation", model_config={"attn_implementation": "eager"})
    assert built is None or built.agents[0].config._attn_implementation == "eager"


def test_one_model_with_two_tokenizers_uses_both_or_is_refused():
    other = tiny_tokenizer()
    other.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    model = tiny_model()
    built = made_or_refused("tokenizer", agents=[model, model], tokenizer=[tiny_tokenizer(), other], dataset=1,
                            formatters=lambda item: [{"role": "user", "content": item["prompt"]}])  # fmt: skip
    if built is not None:
        built.train()
        assert {c.agent: c.prompt for c in built.seen.records[0].completions}[1] == "item 0"


def test_default_args_need_a_transition(no_loading):
    with pytest.raises(ValueError, match="num_turns is 2"):
        MAGRPOTrainer(agent_model=TINY, reward_func=lengths)


@pytest.mark.parametrize("dataset", [None, []])
def test_train_needs_a_dataset(dataset):
    with pytest.raises(ValueError, match="train_dataset"):
        make(train_dataset=dataset).train()


def test_truncated_sampling_warns_once():
    with pytest.warns(UserWarning, match="top_p and top_k") as seen:
        make(top_p=0.9, top_k=5)
    assert len(seen) == 1


# --- buffers and optimizer steps ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "epochs", "buffer", "batch", "sizes"),
    [
        (4, 1, 2, None, [4, 4]),  # two updates of 2 nodes x 2 completions
        (5, 1, 2, None, [4, 4, 2]),  # what is left is used at the epoch's end
        (3, 2, 2, None, [4, 2, 4, 2]),  # ... of each epoch
        (4, 1, 4, 2, [4, 4]),  # one full buffer, two optimizer steps
        (5, 1, 5, 2, [4, 4, 2]),  # 2 + 2 + 1 nodes
        (2, 1, 8, None, [4]),  # never full
        (2, 1, 1, None, [2, 2]),
    ],
)
def test_number_of_optimizer_steps(updates, dataset, epochs, buffer, batch, sizes):
    built = make(dataset=dataset, num_train_epochs=epochs, rollout_buffer_size=buffer, train_batch_size=batch)
    built.train()
    for agent in ("agent 0", "agent 1"):
        assert [size for name, size, _ in updates if name == agent] == sizes
    assert all(shares == pytest.approx(1.0) for *_, shares in updates)
    assert built.buffers == [[], []]


@pytest.mark.parametrize(("mode", "nodes", "rewards"), [("aligned", 3, 6), ("cross", 5, 20)])
def test_two_turn_nodes_fill_the_buffer_in_environment_order(updates, mode, nodes, rewards):
    # aligned: root and 2 children, 2 joint rewards each; cross: root and 4 children, 4 each
    built = make(dataset=1, num_turns=2, joint_mode=mode, rollout_buffer_size=2)
    built.train()
    steps = -(-nodes // 2)
    assert len(updates) == 2 * steps
    assert built.env_step == rewards
    assert [n.turn for n in built.seen.records] == [1] + [2] * (nodes - 1)


def test_all_agents_learn():
    built = make()
    before = weights(built)
    built.train()
    after = weights(built)
    assert not same(after[:1], before[:1]) and not same(after[1:], before[1:])


def test_identical_rewards_change_nothing_but_the_counters(updates):
    built = make(dataset=4, reward_func=lambda a, b: [0.1] * len(a))
    before = weights(built)
    built.train()
    assert same(weights(built), before)
    assert built.env_step == 8 and len(updates) == 4
    assert built.seen.points[-1][1]["agent_1/turn_1/zero_variance_fraction"] == 1.0


def test_unscored_response_is_left_out(updates):
    built = make(dataset=1, num_generations=3, reward_func=lambda a, b: [1.0, None, 3.0], advantage_normalization=False)
    built.train()
    assert [size for _, size, _ in updates] == [2, 2]
    rows = [c for c in built.seen.records[0].completions if c.agent == 0]
    # mean of 1 and 3 is 2
    assert [(c.return_, c.advantage) for c in rows] == [(1.0, -1.0), (None, None), (3.0, 1.0)]
    assert built.env_step == 3
    assert built.seen.points[-1][1]["turn_1/unscored_fraction"] == pytest.approx(1 / 3)


def test_unscored_fraction_is_averaged_over_all_nodes():
    # item 0: one of two unscored, item 1: none; 1 of 4 joint responses
    def reward(a, b, batch_items):
        return [1.0, None if batch_items[0]["prompt"] == "item 0" else 2.0]

    built = make(dataset=2, reward_func=reward)
    built.train()
    assert built.seen.points[-1][1]["turn_1/unscored_fraction"] == pytest.approx(0.25)


def test_wholly_unscored_node_gives_no_sample(updates):
    built = make(dataset=2, reward_func=lambda a, b: [None] * len(a), num_train_epochs=2)
    with pytest.warns(UserWarning, match=r"Nothing was learned in epoch 1: the reward of each of its 4 joint") as said:
        built.train()
    assert len(said) == 1  # not once more for epoch 2
    assert updates == [] and built.env_step == 8


def test_warns_when_turn_two_is_never_reached():
    built = make(dataset=2, num_turns=2, early_termination_threshold=-0.2)
    with pytest.warns(UserWarning, match=r"No branch reached turn 2 in epoch 1.*early_termination_threshold \(-0.2\)"):
        built.train()


def test_no_warning_when_some_branch_goes_on():
    def reward(a, b, batch_items):
        return [-1.0 if batch_items[0]["prompt"] == "item 1" else 1.0] * len(a)

    built = make(dataset=3, num_turns=2, early_termination_threshold=-0.2, reward_func=reward)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        built.train()


def test_shuffling_visits_every_item_once_per_epoch_in_another_order():
    built = make(dataset=6, num_train_epochs=2, shuffle=True)
    built.train()
    order = [n.item for n in built.seen.records]
    assert sorted(order[:6]) == sorted(order[6:]) == list(range(6))
    assert order[:6] != order[6:]


def test_same_seed_same_run_and_other_seed_other_run():
    def run(seed):
        built = make(seed=seed)
        built.train()
        return built.seen.records

    assert run(1) == run(1)
    assert run(1) != run(2)


# --- cross mode --------------------------------------------------------------------------------


@pytest.mark.parametrize(("alias", "mode"), [("crossed", "cross"), ("align", "aligned")])
def test_joint_mode_aliases_behave_the_same(alias, mode):
    first, second = (make(dataset=2, num_turns=2, joint_mode=m) for m in (alias, mode))
    first.train(), second.train()
    assert first.seen.records == second.seen.records
    assert same(weights(first), weights(second))


def test_cross_returns_are_sums():
    # joint rewards 1 2 3 4 for (0,0) (0,1) (1,0) (1,1); agent 0: 3 7, agent 1: 4 6
    built = make(dataset=1, joint_mode="cross", reward_func=lambda a, b: [1.0, 2.0, 3.0, 4.0])
    built.train()
    (node,) = built.seen.records
    assert [j.responses for j in node.joints] == list(product((0, 1), repeat=2))
    assert [c.return_ for c in node.completions] == [3.0, 7.0, 4.0, 6.0]
    assert [c.reward for c in node.completions] == [1.5, 3.5, 2.0, 3.0]  # own mean reward


# --- reference KL ------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "memberships"), [("aligned", 1), ("cross", 2)])
def test_reference_penalty(mode, memberships):
    """R - memberships * 0.5 * KL, with the KL that the trace shows."""
    joint = 2 if mode == "aligned" else 4
    built = make(dataset=3, joint_mode=mode, reference_kl_enabled=True, reference_kl_coef=0.5, rollout_buffer_size=1,
                 agent_learning_rate=1e-2, reward_func=lambda a, b: [float(j) for j in range(joint)])  # fmt: skip
    built.train()
    first, *_, last = built.seen.records
    assert [c.kl for c in first.completions] == [0.0] * 4  # the reference is the initial model
    # aligned: returns 0 1; cross: rewards 0 1 2 3, agent 0: 1 5, agent 1: 2 4
    plain = [0.0, 1.0, 0.0, 1.0] if mode == "aligned" else [1.0, 5.0, 2.0, 4.0]
    assert [c.return_ for c in first.completions] == plain
    kls = [c.kl for c in last.completions]
    assert min(kls) > 1e-4
    expected = [r - memberships * 0.5 * kl for r, kl in zip(plain, kls)]
    assert [c.return_ for c in last.completions] == pytest.approx(expected, abs=1e-6)


def test_reference_metrics_and_frozen_reference():
    built = make(dataset=3, reference_kl_enabled=True, reference_kl_coef=0.5, rollout_buffer_size=1)
    frozen = built.team.references[0].worker.model
    before = {name: value.clone() for name, value in frozen.state_dict().items()}
    built.train()
    metrics = built.seen.points[-1][1]
    assert metrics["turn_1/reference_kl_penalty_mean"] == pytest.approx(0.5 * metrics["turn_1/reference_kl_mean"])
    assert same([frozen.state_dict()], [before])
    assert not same([frozen.state_dict()], weights(built)[:1])


# --- evaluation --------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 2])
def test_evaluate_returns_the_documented_keys(turns):
    built = make(eval_dataset=items(6), num_turns=turns)
    expected = {f"eval/turn_{t}/{name}" for t in range(1, turns + 1) for name in ("reward_mean", "expected_return")}
    assert set(built.evaluate()) == expected
    assert len({n.item for n in built.seen.of("eval")}) == 4  # eval_num_samples


def test_expected_return_is_the_undiscounted_sum():
    rewards = iter([1.0, 10.0, 3.0, 30.0])  # two items, each evaluated alone: turn 1, turn 2
    built = make(eval_dataset=items(2), num_turns=2, reward_func=lambda a, b: [next(rewards)])
    assert built.evaluate() == {
        "eval/turn_1/reward_mean": 2.0,  # (1 + 3) / 2
        "eval/turn_1/expected_return": 22.0,  # (11 + 33) / 2
        "eval/turn_2/reward_mean": 20.0,
        "eval/turn_2/expected_return": 20.0,
    }


def test_custom_evaluation_hooks():
    seen = {}

    def logger(agent_completions_turns, batch_items, prompts):
        seen.update(turns=agent_completions_turns, items=batch_items, prompts=prompts)
        return [{"x": float(i)} for i in range(len(batch_items))]

    def aggregator(metrics, num_turns):
        return {f"turn_{num_turns}/x": sum(m["x"] for m in metrics)}

    built = make(eval_dataset=items(3), num_turns=2, eval_logger=logger, eval_aggregator=aggregator)
    assert built.evaluate()["eval/turn_2/x"] == 3.0  # 0 + 1 + 2
    assert [len(seen["turns"]), len(seen["turns"][0]), len(seen["turns"][0][0])] == [2, 3, 2]  # agents, items, turns
    assert seen["items"] == items(3) and seen["prompts"] == ["item 0", "item 1", "item 2"]


@pytest.mark.parametrize(("field", "argument"), [(0, None), (4, 0)])
def test_zero_samples_is_no_evaluation(field, argument):
    built = make(eval_dataset=items(2), eval_num_samples=field)
    assert built.evaluate(argument) == {}
    assert built.seen.records == []


def test_no_eval_dataset_is_no_evaluation():
    assert make().evaluate() == {}


@pytest.mark.parametrize(("interval", "evaluations"), [(0, 0), (1, 6), (2, 4), (16, 2)])
def test_evaluation_happens_at_multiples_of_the_interval_in_each_epoch(interval, evaluations):
    # 3 items, 2 epochs: interval 2 -> positions 0 2 0 2; 16 -> 0 0
    built = make(dataset=3, num_train_epochs=2, eval_dataset=items(1), eval_interval=interval)
    built.train()
    assert len(built.seen.of("eval")) == evaluations


def test_evaluating_does_not_change_the_training():
    plain, watched = make(), make(eval_dataset=items(3), eval_interval=1)
    plain.train(), watched.train()
    texts = [[(c.text, c.prompt) for n in t.seen.of("train") for c in n.completions] for t in (plain, watched)]
    assert texts[0] == texts[1]
    assert same(weights(plain), weights(watched))
    assert plain.env_step == watched.env_step == 8
    assert watched.seen.of("eval")[0].step == 0  # an evaluation does not move the x-axis


# --- metrics -----------------------------------------------------------------------------------


def test_metrics_of_a_training():
    built = make(dataset=2, logging_steps=1)
    built.train()
    keys = {key for _, point in built.seen.points for key in point}
    names = ("loss", "grad_norm", "entropy", "completion_tokens", "truncated_fraction", "advantage_std",
             "zero_variance_fraction")  # fmt: skip
    assert {f"agent_{i}/turn_1/{name}" for i in range(2) for name in names} <= keys
    assert {"turn_1/reward_mean", "turn_1/expected_return", "tokens_per_s"} <= keys
    assert {f"time/{phase}_s" for phase in ("rollout", "reward", "update")} <= keys


def test_agents_metrics_do_not_overwrite_each_other():
    other = tiny_model(seed=9)
    other.lm_head.weight.data.mul_(8)
    built = make(agents=[tiny_model(), other], tokenizer=tiny_tokenizer(), dataset=2)
    built.train()
    point = built.seen.points[-1][1]
    assert point["agent_0/turn_1/entropy"] != pytest.approx(point["agent_1/turn_1/entropy"], abs=0.1)


def test_logged_loss_is_the_mean_of_advantage_times_score():
    built = make(dataset=1, advantage_normalization=False, reward_func=lambda a, b: [1.0, 3.0])
    built.train()
    rows = [c for c in built.seen.records[0].completions if c.agent == 0]
    # advantages -1 and 1: loss = -(-s0 + s1) / 2 = (s0 - s1) / 2, scores as sampled (no step in between)
    expected = (rows[0].logprob - rows[1].logprob) / 2
    assert built.seen.points[-1][1]["agent_0/turn_1/loss"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("steps", "points"), [(1, 6), (4, 3), (5, 2), (100, 1)])
def test_logging_steps_is_a_least_distance(steps, points):
    # 6 items, 2 joint rewards each: env_step 2 4 6 8 10 12
    built = make(dataset=6, logging_steps=steps, rollout_buffer_size=1)
    built.train()
    axis = [step for step, values in built.seen.points if "turn_1/reward_mean" in values]
    assert len(axis) == points
    assert all(later - earlier >= steps for earlier, later in pairwise(axis[:-1]))


# --- what goes wrong ---------------------------------------------------------------------------


def test_nan_reward_stops_with_the_item_named():
    def reward(a, b, batch_items):
        return [float("nan") if batch_items[0]["prompt"] == "item 2" else 1.0] * len(a)

    with pytest.raises(ValueError, match=r"nan for item 2, turn 1"):
        make(reward_func=reward).train()


def test_an_exception_in_the_reward_passes_through():
    error = TypeError("mine")

    def reward(a, b):
        raise error

    with pytest.raises(TypeError) as caught:
        make(reward_func=reward).train()
    assert caught.value is error


def test_an_infinite_loss_stops_and_leaves_the_weights():
    # 1e300 is finite as a reward, infinite as a float32 loss
    built = make(reward_func=lambda a, b: [0.0, 1e300], advantage_normalization=False)
    before = weights(built)
    with pytest.raises(TrainingDiverged, match="agent 0"):
        built.train()
    assert same(weights(built), before)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_broken_weights_stop_the_update_and_are_left_as_they_are(value):
    built = make(dataset=1)
    built.train()
    worker = workers(built)[0]
    completion = built.rollout.expand([(0, {"prompt": "x"})], built._shape(), 0, 0)[0].root.completions[0][0]
    with torch.no_grad():
        worker.model.model.norm.weight[0] = value
    before = weights(built)
    with pytest.raises(TrainingDiverged, match="agent 0"):
        worker.update([Term(completion, 1.0, 1.0)])
    for name, tensor in weights(built)[0].items():
        assert torch.equal(torch.nan_to_num(tensor, 7.0, 8.0), torch.nan_to_num(before[0][name], 7.0, 8.0))


def test_a_failed_run_is_reported_as_failed():
    states = []
    built = make(reward_func=lambda a, b: 1 / 0)
    built.seen.end = states.append
    with pytest.raises(ZeroDivisionError):
        built.train()
    assert states == ["FAILED"]


# --- saving and resuming -----------------------------------------------------------------------


def test_saved_models_load_back_bit_equal(tmp_path):
    built = make(dataset=2)
    built.train()
    built.save_model(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["agent_0", "agent_1"]
    ids = torch.tensor([[1, 50, 60, 70]])
    for i, agent in enumerate(built.agents):
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / f"agent_{i}")
        with torch.no_grad():
            assert torch.equal(loaded(input_ids=ids).logits, agent(input_ids=ids).logits)
    again = make(agents=[str(tmp_path / "agent_0"), str(tmp_path / "agent_1")])
    assert same(weights(again), weights(built))


RESUME = {
    "dataset": 20,
    "rollout_buffer_size": 3,  # the buffer is partly full when the run stops
    "shuffle": True,
    "agent_learning_rate": 1e-2,
    "eval_interval": 4,
    "logging_steps": 7,
    "weight_decay": 0.01,
    "lr_scheduler": "linear",
    "warmup_steps": 2,
}
VARIANTS = {
    "aligned": {},
    "two turns": {"num_turns": 2, "dataset": 20},
    "cross, KL": {"joint_mode": "cross", "reference_kl_enabled": True},
    "two epochs": {"dataset": 10, "num_train_epochs": 2},  # stops exactly at the end of an epoch
}


def stopped(path, after=10, **options):
    built = make(**options, eval_dataset=items(2))
    built.checkpoint_dir = path
    built.monitor = StopAt(after, built)
    built.train()
    assert built.stopped and built.cursor.done == after
    return built


def timeless(points):
    return [(s, {k: v for k, v in p.items() if not k.startswith("time/") and k != "tokens_per_s"}) for s, p in points]


@pytest.mark.parametrize("variant", VARIANTS)
def test_resumed_equals_unbroken_bit_for_bit(tmp_path, variant):
    options = RESUME | VARIANTS[variant]
    whole = make(**options, eval_dataset=items(2))
    whole.train()
    half = stopped(tmp_path, **options)
    rest = make(**options, eval_dataset=items(2))
    rest.train(resume_from_checkpoint=tmp_path / "step-00000010")
    assert half.seen.records + rest.seen.records == whole.seen.records
    assert same(weights(rest), weights(whole))
    assert rest.env_step == whole.env_step
    assert timeless(half.seen.points + rest.seen.points) == timeless(whole.seen.points)


def test_resume_uses_a_changed_learning_rate(tmp_path, monkeypatch):
    stopped(tmp_path, 2, dataset=4)
    rates = []
    step = Learner.step
    monkeypatch.setattr(Learner, "step", lambda self: rates.append(self.optimizer.param_groups[0]["lr"]) or step(self))
    make(dataset=4, agent_learning_rate=1e-2).train(resume_from_checkpoint=tmp_path / "step-00000002")
    assert rates == [1e-2, 1e-2]  # one update per agent


def test_resume_restores_the_users_random_numbers(tmp_path):
    drawn = []

    def reward(a, b):
        drawn.append(random.random())
        return lengths(a, b)

    random.seed(1)
    make(dataset=4, reward_func=reward).train()
    whole, drawn[:] = list(drawn), []
    random.seed(1)
    half = make(dataset=4, reward_func=reward)
    half.checkpoint_dir, half.monitor = tmp_path, StopAt(2, half)
    half.train()
    random.seed(99)
    make(dataset=4, reward_func=reward).train(resume_from_checkpoint=tmp_path / "step-00000002")
    assert drawn == whole


def test_save_interval_writes_checkpoints(tmp_path):
    built = make(dataset=5, save_interval=2)
    built.checkpoint_dir = tmp_path
    built.train()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000002", "step-00000004", "step-00000005"]


def test_resuming_with_other_data_is_refused(tmp_path):
    stopped(tmp_path, 2, dataset=4)
    with pytest.raises(ValueError, match="4 training items, but there are 5"):
        make(dataset=5).train(resume_from_checkpoint=tmp_path / "step-00000002")


def test_resuming_another_algorithm_is_refused(tmp_path):
    stopped(tmp_path, 2, dataset=4)
    with pytest.raises(ValueError, match="checkpoint is of magrpo, not of marloo"):
        make(MARLOOTrainer).train(resume_from_checkpoint=tmp_path / "step-00000002")


def test_resuming_from_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a checkpoint"):
        make().train(resume_from_checkpoint=tmp_path)


# --- different agents --------------------------------------------------------------------------


def small_gpt2():
    """Another architecture with its own vocabulary order: pad equals eos."""
    torch.manual_seed(3)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=259, n_positions=128, n_embd=32, n_layer=1, n_head=2,
                                       bos_token_id=1, eos_token_id=2))  # fmt: skip
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = None
    return model, tokenizer


@pytest.mark.parametrize("kl", [False, True])
def test_heterogeneous_agents(kl):
    model, tokenizer = small_gpt2()
    formatters = [
        lambda item: [{"role": "user", "content": item["prompt"]}],  # agent 0 has a chat template
        lambda item: item["prompt"],
    ]
    built = make(agents=[tiny_model(), model], tokenizer=[tiny_tokenizer(), tokenizer], formatters=formatters,
                 dataset=3, reference_kl_enabled=kl)  # fmt: skip
    before = weights(built)
    built.train()
    after = weights(built)
    assert not same(after[:1], before[:1]) and not same(after[1:], before[1:])
    prompts = {c.agent: c.prompt for c in built.seen.records[0].completions}
    assert prompts == {0: "<|bos|>user: item 0\nassistant: ", 1: "item 0"}


def test_a_name_and_a_loaded_model_together():
    model, tokenizer = small_gpt2()
    built = make(agents=[TINY, model], tokenizer=[tiny_tokenizer(), tokenizer], dataset=1)
    built.train()
    assert built.num_agents == 2 and built.agents[1] is model


# --- low-rank adapters -------------------------------------------------------------------------


def test_adapter_trains_and_the_base_stays():
    lora = {"r": 2, "target_modules": ["q_proj", "v_proj"]}
    built = make(model_config={"lora": lora}, dataset=3, reference_kl_enabled=True, agent_learning_rate=1e-2)
    before = weights(built)
    built.train()
    changed = {name for name, value in weights(built)[0].items() if not torch.equal(value, before[0][name])}
    assert changed and all("lora_" in name for name in changed)
    assert [c.kl for c in built.seen.records[0].completions] == [0.0] * 4


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(ValueError, match="no trainable parameter"):
        make(agents=[tiny_model().requires_grad_(False)] * 2, tokenizer=tiny_tokenizer())
