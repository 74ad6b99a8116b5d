"""Every line of every explanation agrees with what real runs stored, and a spoilt number is pointed out."""

import shutil
from collections import Counter, defaultdict

import pytest
from explaining import by_key, change, config

from workbench.insight.tree import list_episodes, rollout
from workbench.insight.why import explain
from workbench.tracking.trace import read_completions, read_nodes
from workbench.tracking.trace_writer import TraceWriter
from workbench.trainers import algorithm

MEASURED = {"part", "given", "unknown"}


def lengths(*completions):
    return [float(len(set("".join(texts)))) for texts in zip(*completions)]


def sometimes(*completions):
    """Unscored when the team's texts have an even number of different characters."""
    return [None if value % 2 == 0 else value for value in lengths(*completions)]


def own_lengths(*completions):
    return [[10.0 * i + len(set(text)) for text in texts] for i, texts in enumerate(completions)]


def often_unscored(*completions):
    return [[None if len(set(text)) % 3 == 0 else 1.0 * len(set(text)) for text in row] for row in completions]


def follow(agent_completions, **context):
    return [f"then {text[:2]} for {i}" for i, text in enumerate(agent_completions)]


KL = {"reference_kl_enabled": True, "reference_kl_coef": 0.5}
RUNS = {  # trainer, reward, settings
    "raw": ("mareinforce", lengths, {"advantage_normalization": False}),
    "mean, normalised": ("magrpo", lengths, {"num_generations": 3, "early_termination_threshold": 5.0}),
    "rloo, cross, KL": ("marloo", lengths, {"joint_mode": "cross", "advantage_normalization": False, **KL}),
    "max, KL": ("maremax", lengths, {"num_generations": 3, "advantage_normalization": False, **KL}),
    "cross, unscored": ("magrpo", sometimes, {"joint_mode": "cross"}),
    "rloo, unscored": ("marloo", sometimes, {"advantage_normalization": False}),
    "three agents, cross": ("magrpo", lengths, {"joint_mode": "cross", "num_agents": 3, "num_turns": 1}),
    "maac, KL": ("maac", own_lengths, {"discount": 0.9, "rollout_buffer_size": 2, **KL}),
    "maac, q": ("maac", lengths, {"critic_type": "q", "advantage_normalization": False, "rollout_buffer_size": 2}),
    "iac, unscored": ("iac", often_unscored, {"advantage_normalization": False, "rollout_buffer_size": 2}),
    "iac, leaves": ("iac", own_lengths, {"num_turns": 1, "num_generations": 3, "use_separate_critic": False}),
}


def train(name, path):
    """A tiny run with its trace at `path`; returns its config."""
    kind, reward, settings = RUNS[name]
    trainer_class = algorithm(kind).load_trainer()
    is_critic, turns = kind in ("maac", "iac"), settings.get("num_turns", 2)
    defaults = {"num_turns": 2, "num_train_epochs": 1, "max_new_tokens": 3, "agent_learning_rate": 1e-2,
                "early_termination_threshold": None, "eval_interval": 2, "eval_num_samples": 1}  # fmt: skip
    defaults |= {} if is_critic else {"num_generations": 2}
    args = config(trainer_class.config_class, **defaults | settings)
    items = [{"prompt": f"item {i}"} for i in range(3)]
    critics = {"critic_model": "builtin:tiny"} if is_critic and settings.get("use_separate_critic", True) else {}
    trainer = trainer_class(
        agent_model="builtin:tiny", num_agents=args.num_agents, reward_func=reward, args=args, train_dataset=items,
        eval_dataset=items[:1], external_transition=follow if turns > 1 else None, **critics,
    )  # fmt: skip
    trainer.tracker.trackers.append(TraceWriter(path))
    trainer.train()
    return trainer.args


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Name -> (trace, config) of a real run, trained when first asked for."""
    folder, done = tmp_path_factory.mktemp("runs"), {}

    def run(name):
        if name not in done:
            path = folder / name / "trace.db"
            done[name] = (path, train(name, path))
        return done[name]

    return run


def explained(path, args):
    """(phase, explanation) of every completion in the trace."""
    phases = read_nodes(path).set_index("node_id")["phase"]
    rows = read_completions(path, columns=("node_id", "agent", "k")).itertuples(index=False)
    return [(phases[row.node_id], explain(path, row.node_id, row.agent, row.k, args)) for row in rows]


EXPECTED = {  # lines that must occur in training, so that nothing passes for not being looked at
    "raw": {"joint_return", "joint_return_last", "return_aligned", "baseline_raw", "normalized_off"},
    "mean, normalised": {"joint_return", "joint_return_last", "baseline_mean", "normalized"},
    "rloo, cross, KL": {"return_cross", "kl_penalty", "return_penalised", "baseline_rloo"},
    "max, KL": {"return_aligned", "kl_penalty", "return_penalised", "baseline_max"},
    "cross, unscored": {"return_cross", "return_cross_unscored", "baseline_mean", "normalized"},
    "rloo, unscored": {"joint_return", "return_aligned", "baseline_rloo", "normalized_off"},
    "three agents, cross": {"return_cross", "joint_return_last", "normalized"},
    "maac, KL": {"team_reward", "reward_penalised", "target", "target_last", "td_error", "normalized_buffer"},
    "maac, q": {"target", "target_last", "value", "td_error", "normalized_off"},
    "iac, unscored": {"target", "target_last", "td_error", "normalized_off"},
    "iac, leaves": {"target_last", "value", "td_error", "normalized_buffer"},
}


@pytest.mark.parametrize("name", RUNS)
def test_every_line_of_a_real_run_agrees_with_its_trace(runs, name):
    path, args = runs(name)
    verdicts, remarks = defaultdict(Counter), Counter()
    for phase, found in explained(path, args):
        wrong = [line for line in found.lines if line.verdict == "differs"]
        assert not wrong, wrong
        remarks[found.remark] += 1
        assert (found.remark == "evaluation") == (phase == "eval")
        if phase == "train":
            for line in found.lines:
                verdicts[line.key][line.verdict] += 1
    assert EXPECTED[name] <= set(verdicts)
    assert remarks["evaluation"] > 0
    assert remarks["pending"] == 0
    assert (remarks["unscored"] > 0) == ("unscored" in name)
    measured = {key for key, seen in verdicts.items() if set(seen) & MEASURED}
    allowed = {"reward", "kl_penalty", "return_aligned", "return_cross", "reward_penalised", "normalized_buffer"}
    assert measured <= allowed | ({"target"} if name == "iac, unscored" else set())
    for key in EXPECTED[name] - allowed:
        assert verdicts[key]["same"] > 0, key


@pytest.mark.parametrize("name", ["mean, normalised", "rloo, cross, KL", "maac, KL"])
def test_every_node_of_a_real_run_is_in_the_tree_of_one_root(runs, name):
    path, _ = runs(name)
    page = list_episodes(path, size=1000)
    views = [rollout(path, root) for root in page.rows["node_id"]]
    assert page.older is None
    assert sorted(node for view in views for node in view.nodes["node_id"]) == read_nodes(path)["node_id"].tolist()
    assert [view.tree_nodes for view in views] == [len(view.nodes) for view in views] == page.rows["nodes"].tolist()
    assert max(view.tree_nodes for view in views) > 1


@pytest.mark.parametrize("name", ["rloo, cross, KL", "max, KL", "maac, KL"])
def test_the_penalty_is_not_nothing(runs, name):
    path, _ = runs(name)
    assert read_completions(path, phase="train")["kl"].max() > 0.01


@pytest.mark.parametrize(
    ("name", "table", "column", "key"),
    [
        ("mean, normalised", "joints", "reward", "joint_return_last"),
        ("mean, normalised", "completions", "reward", "reward"),
        ("mean, normalised", "completions", "return", "return_aligned"),
        ("mean, normalised", "completions", "baseline", "baseline_mean"),
        ("mean, normalised", "completions", "advantage", "advantage"),
        ("mean, normalised", "completions", "normalized", "normalized"),
        ("rloo, cross, KL", "joints", "return", "return_penalised"),
        ("rloo, cross, KL", "completions", "kl", "return_penalised"),
        ("maac, KL", "completions", "reward", "target_last"),
        ("maac, KL", "completions", "kl", "target_last"),
        ("maac, KL", "completions", "target", "target_last"),
        ("maac, KL", "completions", "value", "value"),
        ("maac, KL", "completions", "td_error", "td_error"),
        ("maac, KL", "joints", "reward", "team_reward"),
        ("maac, q", "completions", "normalized", "normalized_off"),
    ],
)
def test_a_wrong_number_in_the_trace_is_shown(runs, tmp_path, name, table, column, key):
    source, args = runs(name)
    path = shutil.copy(source, tmp_path / "trace.db")
    nodes = read_nodes(path, phase="train")
    last = int(nodes.loc[nodes["turn"] == nodes["turn"].max(), "node_id"].iloc[-1])
    before = explain(path, last, 0, 0, args)
    assert before.agree
    extra = "" if table == "joints" else "AND agent = 0 AND k = 0"
    change(path, f'UPDATE {table} SET "{column}" = "{column}" + 0.001 WHERE node_id = {last} {extra}')
    after = explain(path, last, 0, 0, args)
    assert not after.agree
    assert by_key(after)[key].verdict == "differs"
