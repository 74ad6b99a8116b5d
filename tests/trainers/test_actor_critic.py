"""MAAC and IAC on a real, tiny model."""

import math
import re
import warnings
from collections import Counter, defaultdict

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from workbench.models import workers as model_workers
from workbench.models.critic import Critic, load_critic
from workbench.models.learner import Learner, TrainingDiverged
from workbench.models.policy import Policy
from workbench.models.shared import SharedPolicy
from workbench.models.tiny import tiny_model, tiny_tokenizer
from workbench.models.value import last_hidden
from workbench.tasks.rendezvous import RENDEZVOUS
from workbench.tracking.base import NullMonitor, NullTracker
from workbench.trainers import setup as trainer_setup
from workbench.trainers.actor_critic import IACTrainer, MAACConfig, MAACTrainer

TINY = "builtin:tiny"
KINDS = {
    "MAAC": (MAACTrainer, {}),
    "IAC": (IACTrainer, {}),
    "shared IAC": (IACTrainer, {"use_separate_critic": False}),
}
kinds = pytest.mark.parametrize("kind", KINDS)
critic_types = pytest.mark.parametrize("critic_type", ["v", "q"])


def items(count):
    return [{"prompt": f"item {i}"} for i in range(count)]


def lengths(*completions):
    """How many different characters the team wrote: shared, varied, deterministic."""
    return [float(len(set("".join(texts)))) for texts in zip(*completions)]


def own_lengths(*completions):
    """[n, J]: agent i gets i * 10 + its own number of different characters."""
    return [[10.0 * i + len(set(text)) for text in texts] for i, texts in enumerate(completions)]


def follow(agent_completions, **context):
    return [f"then {text[:2]} for {i}" for i, text in enumerate(agent_completions)]


def formatters(count=2):
    """Each agent reads a prompt of its own."""
    return [lambda item, external_prompts=None, i=i: f"{external_prompts or item['prompt']}, {i}" for i in range(count)]


def config(trainer, **values):
    settings = {"num_turns": 1, "num_train_epochs": 1, "max_new_tokens": 3, "eval_interval": 0, "logging_steps": 1000,
                "agent_learning_rate": 1e-3, "critic_learning_rate": 1e-2, "early_termination_threshold": None,
                }  # fmt: skip
    return trainer.config_class(**settings | values)


def make(kind="MAAC", dataset=4, **arguments):
    """A trainer of two tiny agents; config fields and constructor arguments by name."""
    trainer, fields = KINDS[kind]
    names = trainer.config_class.__dataclass_fields__
    fields = fields | {name: arguments.pop(name) for name in list(arguments) if name in names}
    given = {"reward_func": lengths, "train_dataset": items(dataset), "formatters": formatters()} | arguments
    given.setdefault("args", config(trainer, **fields))
    if "agents" not in given:
        given.setdefault("agent_model", TINY)
    if given["args"].num_turns > 1:
        given.setdefault("external_transition", follow)
    if kind != "shared IAC" and not given.keys() & {"critic_model", "critics"}:
        given["critic_model"] = TINY
    built = trainer(**given)
    built.seen = Recorder()
    built.tracker.trackers.append(built.seen)
    return built


class Recorder(NullTracker):
    def __init__(self):
        self.records, self.points, self.late = [], [], []

    def nodes(self, records):
        self.records += records

    def normalized(self, rows):
        self.late += rows

    def metrics(self, step, values):
        self.points.append((step, dict(values)))

    def of(self, agent):
        """[(record, completion)] of one agent in environment order."""
        return [(r, c) for r in self.records if r.phase == "train" for c in r.completions if c.agent == agent]

    def normalized_of(self, record, row):
        (value,) = [w for node, agent, k, w in self.late if (node, agent, k) == (record.node_id, row.agent, row.k)]
        return value


class StopAt(NullMonitor):
    def __init__(self, item, trainer):
        self.item, self.trainer = item, trainer

    def stop_requested(self):
        return self.trainer.cursor.done >= self.item


def state(trainer):
    """All tensors that learning changes, of agents and critics: name -> copy."""
    found = {}
    for i, handle in enumerate(trainer.workers()):
        for part in ("model", "head"):
            for name, value in handle.worker.state().get(part, {}).items():
                found[f"{i}/{part}/{name}"] = value.clone()
    return found


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def heads(trainer):
    return [h.worker.head for h in (trainer.critics or trainer.team.policies)]


def stir(trainer):
    """Critics that do not start at zero."""
    for i, head in enumerate(heads(trainer)):
        torch.manual_seed(i)
        for p in head.parameters():
            torch.nn.init.normal_(p, std=0.3)
    return trainer


@pytest.fixture
def no_loading(monkeypatch):
    def refuse(*_):
        raise AssertionError("a model was loaded before the arguments were checked")

    monkeypatch.setattr(model_workers, "load_model", refuse)
    monkeypatch.setattr(trainer_setup, "load_tokenizer", refuse)


@pytest.fixture
def steps(monkeypatch):
    """(worker name, terms) of every optimizer step of actors and critics, in order."""
    seen = []

    def watch(cls):
        original = cls.update
        monkeypatch.setattr(
            cls, "update", lambda self, terms: (seen.append((self.name, terms)), original(self, terms))[1]
        )

    watch(Policy), watch(Critic)
    return seen


@pytest.fixture
def reads(monkeypatch):
    """(worker name, inputs) of every call of `values`."""
    seen = []

    def watch(cls):
        original = cls.values
        monkeypatch.setattr(
            cls, "values", lambda self, given: (seen.append((self.name, given)), original(self, given))[1]
        )

    watch(Critic), watch(SharedPolicy)
    return seen


def wheres(terms):
    """[(item, turn)] of policy terms."""
    return [tuple(map(int, re.findall(r"\d+", t.where))) for t in terms]


# --- constructor: which critics ------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "critics", "message"), [
    ("MAAC", {"critic_model": None, "critics": None}, "critic_model or critics, but neither"),
    ("MAAC", {"critic_model": TINY, "critics": [TINY]}, "critic_model or critics, but both"),
    ("MAAC", {"critics": [TINY, TINY]}, "list of 1.*2 critics"),
    ("MAAC", {"critics": []}, "list of 1.*0 critics"),
    ("MAAC", {"critics": TINY}, "list of 1.*a name"),
    ("IAC", {"critic_model": None, "critics": None}, "critic_model or critics, but neither"),
    ("IAC", {"critic_model": TINY, "critics": [TINY, TINY]}, "critic_model or critics, but both"),
    ("IAC", {"critics": [TINY]}, "list of 2.*1 critics"),
    ("IAC", {"critics": [TINY] * 3}, "list of 2.*3 critics"),
    ("shared IAC", {"critic_model": TINY}, "use_separate_critic=False.*pass no critics"),
    ("shared IAC", {"critics": [TINY, TINY]}, "use_separate_critic=False.*pass no critics"),
])  # fmt: skip
def test_wrong_critics_are_refused_before_loading(kind, critics, message, no_loading):
    with pytest.raises(ValueError, match=message):
        make(kind, **critics)


@pytest.mark.parametrize("kind", ["MAAC", "IAC"])
@pytest.mark.parametrize("wrong", ["model as critics", "list as critic_model", "number"])
def test_critics_of_a_wrong_kind_are_refused_by_name(kind, wrong):
    critics = {"model as critics": {"critics": tiny_model()}, "list as critic_model": {"critic_model": [TINY] * 2},
               "number": {"critic_model": 3}}[wrong]  # fmt: skip
    with pytest.raises(ValueError, match="critic"):
        make(kind, **critics)


@pytest.mark.parametrize("given", ["name", "list of a name", "object", "list of an object"])
def test_maac_takes_one_critic_in_any_form(given):
    model = tiny_model(5)
    critics = {"name": {"critic_model": TINY}, "list of a name": {"critics": [TINY]},
               "object": {"critic_model": model}, "list of an object": {"critics": [model]}}[given]  # fmt: skip
    built = make("MAAC", **critics)
    assert len(built.critics) == 1
    assert (built.critics[0].worker.model is model) == ("object" in given)
    assert built.agents[0] is not built.critics[0].worker.model
    assert len(built.workers()) == 3


def test_a_name_is_loaded_once_per_agent():
    built = make("IAC", agents=[TINY] * 3, formatters=formatters(3))
    models = [*built.agents, *(c.worker.model for c in built.critics)]
    assert len({id(m) for m in models}) == 6 == len(built.workers())
    assert len({id(c.worker.learner) for c in built.critics}) == 3


def test_a_list_of_critics_goes_to_the_agents_in_order():
    models = [tiny_model(5), tiny_model(6)]
    assert [c.worker.model for c in make("IAC", critics=models).critics] == models


@pytest.mark.parametrize("given", ["critic_model", "critics"])
def test_a_broadcast_object_is_one_critic_with_one_optimizer(given, steps):
    model = tiny_model(5)
    built = make("IAC", dataset=4, rollout_buffer_size=4, **{given: model if given == "critic_model" else [model] * 2})
    assert built.critics[0] is built.critics[1] and built.critics[0].worker.model is model
    assert len(built.workers()) == 3
    built.train()
    assert Counter(name for name, _ in steps) == {"agent 0": 1, "agent 1": 1, "critic 0": 2}  # one per agent's batch


def test_shared_mode_has_a_head_on_each_agent():
    built = make("shared IAC")
    assert built.critics == [] and len(built.workers()) == 2
    assert all(isinstance(h.worker, SharedPolicy) for h in built.team.policies)


@pytest.mark.parametrize("kind", ["MAAC", "IAC"])
def test_a_critic_with_another_vocabulary_is_refused(kind):
    with pytest.raises(ValueError, match=r"critic 0 \(builtin:storyteller\) has another vocabulary"):
        make(kind, critic_model="builtin:storyteller")


@pytest.mark.parametrize("kind", ["MAAC", "IAC"])
def test_a_critic_with_too_few_tokens_is_refused(kind):
    small = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=64, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(ValueError, match=r"critic 0 knows 100 tokens.*259"):
        make(kind, critic_model=small)


def test_a_broadcast_critic_must_fit_every_agents_tokenizer():
    tokenizers = [tiny_tokenizer(), tiny_tokenizer()]
    tokenizers[1].add_tokens(["<one>", "<two>"])
    large = tiny_model()
    large.resize_token_embeddings(261)
    with pytest.raises(ValueError, match="critic"):  # agent 1 writes tokens the critic has no embedding for
        make("IAC", agents=[tiny_model(), large], tokenizer=tokenizers, critic_model=tiny_model(5))


@pytest.mark.parametrize("kind", ["MAAC", "IAC"])
def test_an_agent_cannot_be_its_critic(kind):
    agents = [tiny_model(1), tiny_model(2)]
    critics = {"critic_model": agents[1]} if kind == "MAAC" else {"critics": [tiny_model(3), agents[0]]}
    with pytest.raises(ValueError, match="very model object of an agent"):
        make(kind, agents=agents, tokenizer=tiny_tokenizer(), **critics)


@pytest.mark.parametrize("kind", ["MAAC", "IAC"])
def test_special_tokens_are_added_to_agents_and_critics(kind):
    tokens = {"additional_special_tokens": ["<|turn|>"]}
    built = make(kind, model_config={"special_tokens": tokens})
    rooms = [h.worker.model.get_input_embeddings().weight.shape[0] for h in built.workers()]
    assert min(rooms) >= 260


@pytest.mark.parametrize("trainer", [MAACTrainer, IACTrainer])
def test_several_generations_need_a_single_turn(trainer):
    assert config(trainer, num_generations=3).num_generations == 3
    with pytest.raises(ValueError, match="num_generations must be 1"):
        config(trainer, num_generations=2, num_turns=2)


@pytest.mark.parametrize("kind", ["MAAC", "IAC"])
def test_the_other_algorithms_arguments_are_refused(kind, no_loading):
    other = config(IACTrainer if kind == "MAAC" else MAACTrainer)
    with pytest.raises(ValueError, match=f"args must be a {kind}Config"):
        make(kind, args=other)


def test_maac_has_no_value_clip():
    with pytest.raises(ValueError, match="value_clip_range"):
        MAACConfig.from_dict({"value_clip_range": 0.2})


def test_several_turns_need_a_transition(no_loading):
    with pytest.raises(ValueError, match="external_transition"):
        make("MAAC", num_turns=2, external_transition=None)


# --- constructor: value heads --------------------------------------------------------------------


def widths(trainer):
    """Hidden units of each head, None for a linear one."""
    return [None if isinstance(h.layers, torch.nn.Linear) else h.layers[0].out_features for h in heads(trainer)]


@pytest.mark.parametrize(("kind", "fields", "expected"), [
    ("MAAC", {}, [None]),
    ("MAAC", {"model_config": {"critic_value_head_hidden_dim": 5}}, [5]),
    ("IAC", {}, [None, None]),
    ("IAC", {"critic_value_head_hidden_dim": 5, "value_head_hidden_dim": 9}, [5, 5]),
    ("shared IAC", {"critic_value_head_hidden_dim": 5, "value_head_hidden_dim": 9}, [9, 9]),
])  # fmt: skip
def test_head_widths(kind, fields, expected):
    assert widths(make(kind, **fields)) == expected


@pytest.mark.parametrize("width", [0, -3, "wide", 2.5])
def test_a_wrong_head_width_in_model_config_is_refused_by_name(width):
    with pytest.raises(ValueError, match="critic_value_head_hidden_dim"):
        make("MAAC", model_config={"critic_value_head_hidden_dim": width})


def test_a_head_width_that_nothing_uses_is_refused():
    with pytest.raises(ValueError, match="critic_value_head_hidden_dim"):
        make("shared IAC", model_config={"critic_value_head_hidden_dim": 5})


# --- what critics read ---------------------------------------------------------------------------


@critic_types
def test_the_central_critic_reads_every_agents_prompt(critic_type, reads):
    built = make("MAAC", dataset=2, num_turns=2, critic_type=critic_type)
    built.train()
    assert [name for name, _ in reads] == ["critic 0"] * 2  # one call per rollout
    texts = [text for _, given in reads for text in given]
    assert len(texts) == 4
    for record, text in zip(built.seen.records, texts):
        assert isinstance(text, str)
        prompts, answers = ([getattr(c, n) for c in record.completions] for n in ("prompt", "text"))
        assert [text.index(p) for p in prompts] == sorted(text.index(p) for p in prompts)
        if critic_type == "v":
            assert text.endswith(prompts[1])
        else:
            assert text.index(answers[0], text.index(prompts[1])) and text.endswith(answers[1])


@critic_types
@pytest.mark.parametrize("kind", ["IAC", "shared IAC"])
def test_an_independent_critic_reads_its_actors_token_ids(kind, critic_type, reads):
    built = make(kind, dataset=2, num_turns=2, critic_type=critic_type)
    built.train()
    who = "critic" if kind == "IAC" else "agent"
    assert [name for name, _ in reads] == [f"{who} 0", f"{who} 1"] * 2
    tokenizer = tiny_tokenizer()
    for agent in range(2):
        given = [ids for name, rows in reads if name == f"{who} {agent}" for ids in rows]
        for (_, row), ids in zip(built.seen.of(agent), given, strict=True):
            prompt = tuple(tokenizer(row.prompt).input_ids)
            assert ids[: len(prompt)] == prompt
            rest = ids[len(prompt) :]
            assert len(rest) == (row.tokens if critic_type == "q" else 0)
            assert tokenizer.decode(rest, skip_special_tokens=True) == (row.text if critic_type == "q" else "")


def test_equal_histories_are_read_once(reads):
    make("MAAC", dataset=1, num_generations=5).train()
    assert [len(given) for _, given in reads] == [1]  # five completions of one history
    reads.clear()
    make("MAAC", dataset=1, num_generations=5, critic_type="q").train()
    assert [len(given) for _, given in reads] == [5]


def test_a_joint_text_longer_than_the_context_is_an_error():
    torch.manual_seed(0)
    short = GPT2LMHeadModel(GPT2Config(vocab_size=259, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(ValueError, match=r"critic 0 would read a joint text of \d+ tokens, but its context is 32"):
        make("MAAC", critic_model=short).train()


# --- targets in a real training ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "discount", "reward"), [(1, 0.9, own_lengths), (2, 0.9, lengths), (3, 0.5, own_lengths)]
)
@critic_types
@kinds
def test_trace_holds_values_targets_and_errors(kind, critic_type, turns, discount, reward):
    built = stir(make(kind, 3, num_turns=turns, discount=discount, critic_type=critic_type, reward_func=reward,
                      rollout_buffer_size=3))  # fmt: skip
    built.train()
    assert len(built.seen.records) == 3 * turns
    for agent in range(2):
        rows = built.seen.of(agent)
        for start in range(0, len(rows), turns):
            branch = [row for _, row in rows[start : start + turns]]
            following = [*(discount * c.value for c in branch[1:]), 0.0]
            for row, future in zip(branch, following):
                assert row.target == pytest.approx(row.reward + future, abs=1e-9)
                assert row.td_error == row.advantage == pytest.approx(row.target - row.value, abs=1e-9)
                assert (row.return_, row.baseline) == (row.target, row.value)
                assert row.normalized is None  # known at the update
        assert len({row.value for _, row in rows}) > 2
    team, other = ([row for _, row in built.seen.of(agent)] for agent in range(2))
    if reward is own_lengths:
        assert [c.reward for c in team] == [float(len(set(c.text))) for c in team]
        assert [c.reward for c in other] == [10.0 + len(set(c.text)) for c in other]
        means = [r.joints[0].reward for r in built.seen.records]
        assert means == [(a.reward + b.reward) / 2 for a, b in zip(team, other)]
    else:
        assert [c.reward for c in team] == [c.reward for c in other] == [r.joints[0].reward for r in built.seen.records]
    if kind == "MAAC":
        assert [c.value for c in team] == [c.value for c in other]
        assert ([c.td_error for c in team] == [c.td_error for c in other]) == (reward is lengths)


@critic_types
@kinds
def test_values_are_the_critics_own(kind, critic_type):
    built = stir(make(kind, dataset=1, critic_type=critic_type))
    before = {a: built._critic_of(a).worker for a in range(2)}
    tree = built.rollout.expand([(0, items(1)[0])], built._shape(), 0, 0)[0]
    (samples,) = built._tree_samples(tree, 0)
    for s in samples:
        assert s.values[0] == pytest.approx(before[s.agent].values([built._critic_input(tree.root, s.agent, 0)])[0])
        assert abs(s.values[0]) > 1e-3


@pytest.mark.parametrize("shape", ["[n, J]", "n numbers"])
@kinds
def test_both_forms_of_rewards_per_agent(kind, shape):
    reward = (lambda a, b: [[1.0], [-2.0]]) if shape == "[n, J]" else (lambda a, b: [1.0, -2.0])
    built = make(kind, dataset=1, reward_func=reward)
    built.train()
    assert [c.target for c in built.seen.records[0].completions] == [1.0, -2.0]
    assert built.seen.records[0].joints[0].reward == -0.5


@kinds
def test_rewards_per_agent_and_generation(kind):
    built = make(kind, dataset=1, num_generations=3, reward_func=lambda a, b: [[1.0, 2.0, 3.0], [6.0, 5.0, 4.0]])
    built.train()
    assert [(c.agent, c.k, c.target) for c in built.seen.records[0].completions] == [
        (0, 0, 1.0), (0, 1, 2.0), (0, 2, 3.0), (1, 0, 6.0), (1, 1, 5.0), (1, 2, 4.0),
    ]  # fmt: skip
    assert built.env_step == 3


@kinds
def test_early_termination_ends_the_rollout_without_bootstrapping(kind):
    rewards = iter([1.0, 0.0, 0.0, 0.0, 1.0])  # items 0 and 2 stop after turn 1, item 1 runs all three
    built = stir(make(kind, dataset=3, num_turns=3, early_termination_threshold=0.5,
                      reward_func=lambda a, b: [next(rewards)]))  # fmt: skip
    built.train()
    assert [(r.item, r.turn, r.terminated) for r in built.seen.records] == [
        (0, 1, True), (1, 1, False), (1, 2, False), (1, 3, False), (2, 1, True),
    ]  # fmt: skip
    for agent in range(2):
        rows = [c for _, c in built.seen.of(agent)]
        assert [rows[0].target, rows[3].target, rows[4].target] == [1.0, 0.0, 1.0]
        assert rows[1].target == pytest.approx(rows[2].value)  # 0 + 1.0 * V(h_2)


def test_termination_uses_the_mean_over_agents():
    built = make("IAC", dataset=1, num_turns=2, early_termination_threshold=0.4, reward_func=lambda a, b: [1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built.train()
    assert built.seen.records[0].terminated  # 0.5 > 0.4


def test_a_run_that_never_reaches_turn_two_warns():
    built = make("MAAC", num_turns=2, early_termination_threshold=-0.2)
    with pytest.warns(UserWarning, match="early_termination_threshold"):
        built.train()


@kinds
def test_the_reference_penalty_is_taken_from_each_agents_reward(kind):
    built = make(kind, dataset=6, reference_kl_enabled=True, reference_kl_coef=0.5, rollout_buffer_size=2,
                 reward_func=own_lengths, agent_learning_rate=1e-2)  # fmt: skip
    built.train()
    last = built.seen.records[-1]
    assert max(c.kl for c in last.completions) > 1e-4
    for c in last.completions:
        assert c.target == pytest.approx(c.reward - 0.5 * c.kl, abs=1e-6)
    assert last.joints[0].reward == pytest.approx(sum(c.reward for c in last.completions) / 2)  # without the penalty


def test_the_reward_processor_comes_first():
    built = make("IAC", dataset=1, reward_func=lambda a, b: [2.0, 3.0], reward_processor=lambda r: 10 * r)
    built.train()
    assert [c.target for c in built.seen.records[0].completions] == [20.0, 30.0]


# --- unscored ------------------------------------------------------------------------------------


@kinds
def test_unscored_rewards_give_no_sample(kind, steps):
    def reward(a, b, batch_items):
        return [None if batch_items[0]["prompt"] == "item 1" else 1.0 + len(a[0])]

    built = make(kind, dataset=4, reward_func=reward, rollout_buffer_size=3)
    built.train()
    assert [wheres(t) for name, t in steps if name == "agent 0"] == [[(0, 1), (2, 1), (3, 1)]]
    unscored = built.seen.records[1]
    assert unscored.joints[0].reward is None
    for c in unscored.completions:
        assert (c.reward, c.target, c.td_error, c.return_, c.advantage) == (None,) * 5
    assert built.env_step == 4
    assert built.seen.points[-1][1]["turn_1/unscored_fraction"] == 0.25


def test_one_agents_missing_reward_costs_only_its_own_sample(steps):
    make("IAC", dataset=2, reward_func=lambda a, b: [[1.0], [None]]).train()
    assert Counter(name for name, _ in steps) == {"agent 0": 1, "critic 0": 1}


@kinds
def test_nothing_scored_is_no_update(kind, steps):
    built = make(kind, reward_func=lambda a, b: [None])
    before = state(built)
    built.train()
    assert steps == [] and same(state(built), before) and built.cursor.finished


# --- buffers, groups and optimizer steps ---------------------------------------------------------

SCHEDULES = {
    # fields, sizes of agent 0's steps in order as [(turns in it, size)]
    "full buffers and a flush": ({"dataset": 10, "rollout_buffer_size": 4}, [(1, 4), (1, 4), (1, 2)]),
    "smaller batches": ({"dataset": 10, "rollout_buffer_size": 4, "train_batch_size": 3},
                        [(1, 3), (1, 1), (1, 3), (1, 1), (1, 2)]),
    "two epochs": ({"dataset": 3, "rollout_buffer_size": 2, "num_train_epochs": 2}, [(1, 2), (1, 1)] * 2),
    "generations": ({"dataset": 2, "num_generations": 3, "rollout_buffer_size": 3}, [(1, 3), (1, 3)]),
    "default buffer": ({"dataset": 9}, [(1, 8), (1, 1)]),
    # the buffer holds turns in environment order: 1 2 1 2 | 1 2
    "two turns": ({"dataset": 3, "num_turns": 2, "rollout_buffer_size": 4}, [(1, 2), (2, 2), (1, 1), (2, 1)]),
    # 1 2 1 | 2 1 2
    "odd buffer": ({"dataset": 3, "num_turns": 2, "rollout_buffer_size": 3}, [(1, 2), (2, 1), (1, 1), (2, 2)]),
    "two turns, batches of one": ({"dataset": 2, "num_turns": 2, "rollout_buffer_size": 4, "train_batch_size": 1},
                                  [(1, 1), (1, 1), (2, 1), (2, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEDULES)
@kinds
def test_optimizer_steps(kind, case, steps):
    fields, expected = SCHEDULES[case]
    make(kind, **fields).train()
    for agent in range(2):
        seen = [terms for name, terms in steps if name == f"agent {agent}"]
        assert [(wheres(terms)[0][1], len(terms)) for terms in seen] == expected
        assert all(len({turn for _, turn in wheres(terms)}) == 1 for terms in seen)
        assert all(sum(t.share for t in terms) == pytest.approx(1.0) for terms in seen)
    critics = [(name, len(terms)) for name, terms in steps if name.startswith("critic")]
    sizes = [size for _, size in expected]
    if kind == "shared IAC":
        assert critics == []
    elif kind == "IAC":
        assert [s for name, s in critics if name == "critic 0"] == sizes
        assert [s for name, s in critics if name == "critic 1"] == sizes
    else:
        assert Counter(critics) == Counter({("critic 0", s): 2 * sizes.count(s) for s in sizes})


@pytest.mark.parametrize("critic_type", ["v", "q"])
def test_the_central_critic_learns_each_agents_batch_in_turn(critic_type, steps):
    built = make("MAAC", dataset=4, rollout_buffer_size=4, train_batch_size=2, reward_func=own_lengths,
                 critic_type=critic_type)  # fmt: skip
    built.train()
    assert [name for name, _ in steps if name.startswith("agent")] == ["agent 0"] * 2 + ["agent 1"] * 2
    targets = [[t.target for t in terms] for name, terms in steps if name == "critic 0"]
    own = [[c.target for _, c in built.seen.of(agent)] for agent in range(2)]
    assert targets == [own[0][:2], own[0][2:], own[1][:2], own[1][2:]]
    assert all(t.share == 0.5 for name, terms in steps if name == "critic 0" for t in terms)


def test_critics_and_shared_heads_learn_the_targets_of_the_rollout(steps):
    """Targets and old values are those of sampling, although earlier steps of the buffer moved the critic."""
    built = make("shared IAC", dataset=6, num_turns=2, rollout_buffer_size=6, train_batch_size=1)
    built.train()
    for agent in range(2):
        traced = {(r.item, r.turn): c for r, c in built.seen.of(agent)}
        for name, terms in steps:
            if name == f"agent {agent}":
                for where, t in zip(wheres(terms), terms):
                    assert (t.target, t.old_value) == (traced[where].target, traced[where].value)


@pytest.mark.parametrize("normalize", [True, False])
@kinds
def test_weights_are_normalised_within_agent_and_turn(kind, normalize, steps):
    built = stir(make(kind, dataset=5, num_turns=2, rollout_buffer_size=6, train_batch_size=2, reward_func=own_lengths,
                      advantage_normalization=normalize))  # fmt: skip
    built.train()
    assert len(built.seen.late) == 20  # every completion once
    used = defaultdict(dict)
    for name, terms in steps:
        if name.startswith("agent"):
            used[int(name[-1])] |= {where: t.weight for where, t in zip(wheres(terms), terms)}
    for agent in range(2):
        rows = {(r.item, r.turn): (c.td_error, built.seen.normalized_of(r, c)) for r, c in built.seen.of(agent)}
        assert {where: weight for where, (_, weight) in rows.items()} == pytest.approx(used[agent])
        for turn in (1, 2):
            for group in (range(3), range(3, 5)):  # buffers: items 0 1 2, then 3 4
                errors, weights = zip(*(rows[item, turn] for item in group))
                mean = sum(errors) / len(errors)
                std = math.sqrt(sum((e - mean) ** 2 for e in errors) / len(errors))
                expected = [(e - mean) / max(std, 1e-6) for e in errors] if normalize else errors
                assert weights == pytest.approx(expected, abs=1e-5)


@kinds
def test_a_group_of_one_is_not_normalised(kind):
    built = make(kind, dataset=1, reward_func=lambda a, b: [5.0])
    built.train()
    assert [w for *_, w in built.seen.late] == [5.0, 5.0]


@kinds
def test_identical_rewards_move_no_actor_but_everything_else(kind):
    built = make(kind, dataset=4, reward_func=lambda a, b: [0.1], rollout_buffer_size=4)
    agents = [{n: p.clone() for n, p in a.state_dict().items()} for a in built.agents]
    built.train()
    assert [w for *_, w in built.seen.late] == [0.0] * 8
    assert built.env_step == 4 and built.cursor.finished
    assert any(head_weight.abs().sum() > 0 for h in heads(built) for head_weight in h.parameters())
    if kind != "shared IAC":
        for agent, before in zip(built.agents, agents):
            assert all(torch.equal(p, before[n]) for n, p in agent.state_dict().items())


@kinds
def test_agents_that_are_one_model_learn_from_both(kind, steps):
    model = tiny_model()
    built = make(kind, agents=[model, model], tokenizer=tiny_tokenizer(), dataset=2)
    built.train()
    assert len([1 for name, _ in steps if name == "agent 0"]) == 2
    assert len(built.workers()) == {"MAAC": 2, "IAC": 3, "shared IAC": 1}[kind]


RATES = {
    "MAAC": ("MAAC", {}),
    "IAC": ("IAC", {}),
    "shared IAC": ("shared IAC", {}),
    "broadcast critic": ("IAC", {"critic_model": "object"}),
    "two turns": ("MAAC", {"num_turns": 2}),
    "smaller batches": ("IAC", {"train_batch_size": 2}),
    "two turns, smaller batches": ("IAC", {"num_turns": 2, "train_batch_size": 2}),
}


@pytest.mark.parametrize("case", RATES)
def test_a_schedule_ends_with_the_run(case, monkeypatch):
    """linear: step i of N uses lr * (1 - i / N), for the agents and for the critics."""
    rates = defaultdict(list)
    step = Learner.step
    monkeypatch.setattr(Learner, "step", lambda self: (rates[id(self)].append(self.optimizer.param_groups[0]["lr"]),
                                                       step(self))[1])  # fmt: skip
    kind, fields = RATES[case]
    fields = {name: tiny_model(5) if value == "object" else value for name, value in fields.items()}
    built = make(kind, dataset=4, rollout_buffer_size=4, lr_scheduler="linear", num_train_epochs=2, **fields)
    built.train()
    for handle in built.workers():
        learner = handle.worker.learner
        seen = rates[id(learner)]
        expected = [learner.learning_rate * (1 - i / len(seen)) for i in range(len(seen))]
        assert seen == pytest.approx(expected, abs=1e-9), handle.worker.name


# --- metrics -------------------------------------------------------------------------------------

AGENT_METRICS = {"loss", "grad_norm", "entropy", "completion_tokens", "truncated_fraction", "advantage_std",
                 "zero_variance_fraction", "value_loss", "td_error_mean", "td_error_abs",
                 "explained_variance"}  # fmt: skip


@pytest.mark.parametrize("turns", [1, 2])
@kinds
def test_metrics_are_the_documented_ones(kind, turns):
    built = make(kind, num_turns=turns, logging_steps=1)
    built.train()
    keys = {key for _, point in built.seen.points for key in point}
    expected = {f"agent_{i}/turn_{t}/{n}" for i in range(2) for t in range(1, turns + 1) for n in AGENT_METRICS}
    assert {k for k in keys if k.startswith("agent_")} == expected
    for t in range(1, turns + 1):
        assert {f"turn_{t}/reward_mean", f"turn_{t}/expected_return"} <= keys
    assert {"time/rollout_s", "time/reward_s", "tokens_per_s"} <= keys


@kinds
def test_the_time_of_updates_is_logged(kind):
    built = make(kind, logging_steps=1, rollout_buffer_size=2)
    built.train()
    assert "time/update_s" in {key for _, point in built.seen.points for key in point}


@kinds
def test_metric_values_of_one_update(kind):
    built = stir(make(kind, dataset=4, reward_func=own_lengths, value_loss_coef=0.3, advantage_normalization=False))
    built.train()
    ((_, point),) = built.seen.points
    for agent in range(2):
        rows = [c for _, c in built.seen.of(agent)]
        errors, targets = [c.td_error for c in rows], [c.target for c in rows]

        def variance(values):
            return sum((v - sum(values) / len(values)) ** 2 for v in values) / len(values)

        expected = {
            "td_error_mean": sum(errors) / 4,
            "td_error_abs": sum(map(abs, errors)) / 4,
            "explained_variance": 1 - variance(errors) / variance(targets),
            "advantage_std": variance(errors) ** 0.5,
            "zero_variance_fraction": 0.0,
            "completion_tokens": sum(c.tokens for c in rows) / 4,
            "loss": -sum(c.td_error * c.logprob for c in rows) / 4,  # no step between sampling and update
        }
        if not (kind == "MAAC" and agent == 1):  # by then agent 0's batch has moved the critic
            expected["value_loss"] = sum(e * e for e in errors) / 4  # without value_loss_coef
        for name, value in expected.items():
            assert point[f"agent_{agent}/turn_1/{name}"] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    rewards = [r.joints[0].reward for r in built.seen.records]
    assert point["turn_1/reward_mean"] == pytest.approx(sum(rewards) / 4)


def test_expected_return_is_undiscounted():
    rewards = iter([1.0, 10.0])
    built = make("MAAC", dataset=1, num_turns=2, discount=0.5, reward_func=lambda a, b: [next(rewards)])
    built.train()
    point = built.seen.points[-1][1]
    assert (point["turn_1/expected_return"], point["turn_2/expected_return"]) == (11.0, 10.0)


def test_a_reward_that_is_always_the_same_logs_no_explained_variance():
    built = make("IAC", dataset=7, reward_func=lambda a, b: [0.1])
    built.train()
    values = {k: v for k, v in built.seen.points[-1][1].items() if k.endswith("explained_variance")}
    assert values == {}


@kinds
def test_metrics_callback_sees_samples_and_is_logged(kind):
    calls = []

    def callback(samples):
        calls.append(list(samples))
        return {"mine/count": len(samples), "mine/best": max(s.targets[0] for s in samples)}

    built = make(kind, dataset=4, num_turns=2, rollout_buffer_size=4, metrics_callback=callback)
    built.train()
    # two buffers, each of two agents and two turns
    assert [len(c) for c in calls] == [2] * 8
    assert Counter((c[0].agent, c[0].turn) for c in calls) == {(a, t): 2 for a in range(2) for t in (1, 2)}
    seen = {s.targets[0] for c in calls for s in c}
    assert seen == {c.target for r in built.seen.records for c in r.completions}
    assert all(s.completions[0].text is not None and s.values for c in calls for s in c)
    point = built.seen.points[-1][1]
    assert point["mine/count"] == 2.0
    assert point["mine/best"] == pytest.approx(sum(max(s.targets[0] for s in c) for c in calls) / 8)


@kinds
def test_evaluation_has_the_documented_keys(kind):
    built = make(kind, num_turns=2, eval_dataset=items(3))
    assert set(built.evaluate()) == {f"eval/turn_{t}/{n}" for t in (1, 2) for n in ("reward_mean", "expected_return")}
    assert all(r.phase == "eval" for r in built.seen.records)
    assert all(c.value is None and c.target is None for r in built.seen.records for c in r.completions)


@pytest.mark.parametrize("kind", ["MAAC", "IAC", "shared IAC"])
def test_training_raises_no_warning(kind):
    built = make(kind)
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            built.train()
    finally:
        torch.set_warn_always(False)


# --- what goes wrong -----------------------------------------------------------------------------


@kinds
def test_an_infinite_value_loss_names_the_sample(kind):
    # 1e30 is finite in float32, its square is not; equal rewards leave the actors' weights at zero
    built = make(kind, dataset=2, reward_func=lambda a, b: [1e30])
    before = state(built)
    with pytest.raises(TrainingDiverged, match=r"item \d, turn 1"):
        built.train()
    critics_part = {n: v for n, v in state(built).items() if "/head/" in n}
    assert all(torch.equal(v, before[n]) for n, v in critics_part.items())


def test_a_wrong_shape_names_both_that_are_allowed():
    with pytest.raises(ValueError, match=r"list of 1 numbers or 2 rows of 1"):
        make("IAC", reward_func=lambda a, b: [1.0, 2.0, 3.0]).train()


# --- saving and resuming -------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "folders", "with_head"), [
    ("MAAC", ["agent_0", "agent_1", "critic"], ["critic"]),
    ("IAC", ["agent_0", "agent_1", "critic_0", "critic_1"], ["critic_0", "critic_1"]),
    ("shared IAC", ["agent_0", "agent_1"], ["agent_0", "agent_1"]),
])  # fmt: skip
def test_saved_folders_load_back_bit_equal(tmp_path, kind, folders, with_head):
    built = stir(make(kind, dataset=2))
    built.train()
    built.save_model(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == folders
    assert sorted(p.parent.name for p in tmp_path.glob("*/value_head.safetensors")) == with_head
    sequences = [(1, 50, 60), (1, 70)]
    for name, handle in zip(with_head, built.critics or built.team.policies):
        model, head = load_critic(tmp_path / name)
        with torch.no_grad():
            loaded = head(last_hidden(model.eval(), sequences, 0, torch.device("cpu"))).tolist()
        assert loaded == handle.worker.values(sequences)
    again = make(kind, agents=[str(tmp_path / "agent_0"), str(tmp_path / "agent_1")])
    for first, second in zip(again.agents, built.agents):
        assert all(torch.equal(p, second.state_dict()[n]) for n, p in first.state_dict().items())


RESUME = {
    "dataset": 8,
    "rollout_buffer_size": 3,  # the buffer is partly full when the run stops
    "shuffle": True,
    "agent_learning_rate": 1e-2,
    "eval_interval": 4,
    "logging_steps": 3,
    "lr_scheduler": "linear",
    "weight_decay": 0.01,
}
VARIANTS = {
    "MAAC v": ("MAAC", {}),
    "MAAC q, two turns": ("MAAC", {"critic_type": "q", "num_turns": 2, "rollout_buffer_size": 5}),
    "IAC q": ("IAC", {"critic_type": "q", "reward_func": own_lengths}),
    "IAC v, KL, hidden head": ("IAC", {"reference_kl_enabled": True, "critic_value_head_hidden_dim": 4}),
    "IAC v, one critic object": ("IAC", {"critic_model": "object"}),
    "shared v": ("shared IAC", {}),
    "shared q, two turns": ("shared IAC", {"critic_type": "q", "num_turns": 2, "rollout_buffer_size": 5}),
    "shared v, two epochs": ("shared IAC", {"dataset": 4, "num_train_epochs": 2}),  # stops between epochs
}


def timeless(points):
    return [(s, {k: v for k, v in p.items() if not k.startswith("time/") and k != "tokens_per_s"}) for s, p in points]


@pytest.mark.parametrize("variant", VARIANTS)
def test_resumed_equals_unbroken_bit_for_bit(tmp_path, variant):
    kind, options = VARIANTS[variant]
    options = RESUME | options

    def fresh():
        fields = {name: tiny_model(5) if value == "object" else value for name, value in options.items()}
        return make(kind, **fields, eval_dataset=items(2))

    whole = fresh()
    whole.train()
    half = fresh()
    half.checkpoint_dir, half.monitor = tmp_path, StopAt(4, half)
    half.train()
    assert half.stopped
    rest = fresh()
    rest.train(resume_from_checkpoint=tmp_path / "step-00000004")
    assert half.seen.records + rest.seen.records == whole.seen.records
    assert half.seen.late + rest.seen.late == whole.seen.late
    assert same(state(rest), state(whole))
    assert not same(state(rest), state(half))
    assert timeless(half.seen.points + rest.seen.points) == timeless(whole.seen.points)


def test_resuming_with_another_critic_is_refused(tmp_path):
    built = make("MAAC", save_interval=2)
    built.checkpoint_dir = tmp_path
    built.train()
    with pytest.raises(ValueError, match="checkpoint is of maac, not of iac"):
        make("IAC").train(resume_from_checkpoint=tmp_path / "step-00000002")


def test_the_same_seed_gives_the_same_run():
    first, second, third = (make("IAC", seed=seed) for seed in (0, 0, 1))
    for built in (first, second, third):
        built.train()
    assert first.seen.records == second.seen.records and same(state(first), state(second))
    assert first.seen.records != third.seen.records


# --- learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "epochs"), [("MAAC", 28), ("IAC", 36), ("shared IAC", 28)])
def test_rendezvous_is_learned(kind, epochs):
    """From a random byte-level model; chance is about 0.04. Not normalised, so that the critic's value matters."""
    torch.set_num_threads(1)
    built = make(kind, train_dataset=RENDEZVOUS.load_train_items(), reward_func=RENDEZVOUS.reward, formatters=None,
                 num_generations=16, rollout_buffer_size=16, max_new_tokens=2, agent_learning_rate=3e-3,
                 critic_learning_rate=1e-3, num_train_epochs=epochs, logging_steps=1,
                 advantage_normalization=False)  # fmt: skip
    built.train()
    curve = [p["turn_1/reward_mean"] for _, p in built.seen.points if "turn_1/reward_mean" in p]
    tenth = len(curve) // 10
    assert sum(curve[:tenth]) / tenth < 0.2
    assert sum(curve[-tenth:]) / tenth > 0.9
    errors = [p["agent_0/turn_1/td_error_mean"] for _, p in built.seen.points if "agent_0/turn_1/td_error_mean" in p]
    assert sum(map(abs, errors[-tenth:])) / tenth < 0.2  # the critic followed from 0.04 to 1
