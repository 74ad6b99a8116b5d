"""Why a completion got its number, line by line, against numbers worked out by hand."""

import math
import time

import pytest
from explaining import by_key, change, config

from workbench.config import IACConfig, MAACConfig, TrainingConfig
from workbench.insight.sampling import sample_nodes
from workbench.insight.why import explain
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord

NAN = pytest.approx(math.nan, nan_ok=True)


def completion(agent, k, **numbers):
    numbers["return_"] = numbers.pop("returns", None)
    return CompletionRecord(agent, k, "prompt", f"text {agent}{k}", 3, True, -1.0, **numbers)


def node(node_id, joints, completions, parent=(None, None), phase="train", turn=1):
    rows = tuple(JointRecord(j, *joint) for j, joint in enumerate(joints))
    return NodeRecord(node_id, phase, 2 * node_id + 2, 0, 7, turn, *parent, False, rows, tuple(completions))


@pytest.fixture
def two_turns(tmp_path):
    """Two agents, K = 2, aligned, mean baseline, normalised. The root's joint response 1 led to a half unscored child.

    R0 = 0.7 + (0.2 + 0.4) / 2 = 1.0     R1 = 0.1 + 0.5 = 0.6     mean 0.8, advantages +-0.2, std 0.2, weights +-1
    """
    numbers = [
        {"reward": 0.7, "returns": 1.0, "baseline": 0.8, "advantage": 0.2, "normalized": 1.0, "kl": 2.0},
        {"reward": 0.1, "returns": 0.6, "baseline": 0.8, "advantage": -0.2, "normalized": -1.0, "kl": 1.0},
    ]
    root = [completion(agent, k, **numbers[k]) for agent in range(2) for k in range(2)]
    pairs = ((0, 0), (1, 1))
    leaf = [
        completion(agent, k, **row)
        for agent in range(2)
        for k, row in enumerate(
            [{"reward": 0.5, "returns": 0.5, "baseline": 0.5, "advantage": 0.0, "normalized": 0.0}, {}]
        )
    ]
    full = [completion(agent, k, reward=r, returns=r) for agent in range(2) for k, r in enumerate((0.2, 0.4))]
    writer = TraceWriter(tmp_path / "trace.db")
    writer.nodes([
        node(0, [(pairs[0], 0.7, 1.0), (pairs[1], 0.1, 0.6)], root),
        node(1, [(pairs[0], 0.2, 0.2), (pairs[1], 0.4, 0.4)], full, (0, 0), turn=2),
        node(2, [(pairs[0], 0.5, 0.5), (pairs[1], None, None)], leaf, (0, 1), turn=2),
        node(3, [(pairs[0], 9.0, 9.0), (pairs[1], 9.0, 9.0)], root),  # another tree: none of its business
    ])  # fmt: skip
    return writer.path


def test_the_lines_of_an_aligned_completion_by_hand(two_turns):
    found = explain(two_turns, 0, agent=1, k=0, config=config())
    assert found.agree and found.remark == ""
    assert [(line.key, line.symbol, line.numbers) for line in found.lines] == [
        ("reward", "reward", "0.7"),
        ("joint_return", "R[0]", "0.7 + mean(0.2, 0.4)"),
        ("return_aligned", "return", "1"),
        ("baseline_mean", "baseline", "mean(1, 0.6)"),
        ("advantage", "A", "1 - 0.8"),
        ("normalized", "weight", "(0.2 - 0) / 0.2"),
    ]
    assert [line.result for line in found.lines] == pytest.approx([0.7, 1.0, 1.0, 0.8, 0.2, 1.0])
    assert [line.stored for line in found.lines] == pytest.approx([0.7, 1.0, 1.0, 0.8, 0.2, 1.0])
    assert {line.verdict for line in found.lines} == {"same"}


def test_an_unscored_branch_is_left_out_of_the_mean(two_turns):
    lines = by_key(explain(two_turns, 0, agent=0, k=1, config=config()))
    assert lines["joint_return"].numbers == "0.1 + mean(0.5, unscored)"
    assert lines["joint_return"].result == pytest.approx(0.6)


def test_an_unscored_completion_has_nothing_and_its_sibling_is_a_group_of_one(two_turns):
    found = explain(two_turns, 2, agent=0, k=1, config=config())
    assert found.agree and found.remark == "unscored"
    assert [line.result for line in found.lines] == [NAN] * len(found.lines)
    sibling = explain(two_turns, 2, agent=0, k=0, config=config(advantage_mode="rloo"))
    assert sibling.agree
    assert by_key(sibling)["baseline_rloo"].formula == "return, as there are no others"
    assert by_key(sibling)["normalized_single"].result == 0.0


@pytest.mark.parametrize(
    ("mode", "baseline", "numbers"),
    [("raw", 0.0, "0"), ("rloo", 0.6, "mean(0.6)"), ("max", 1.0, "max(1, 0.6)")],
)
def test_another_baseline_than_the_stored_one_differs_in_its_own_line_only(two_turns, mode, baseline, numbers):
    found = explain(two_turns, 0, agent=0, k=0, config=config(advantage_mode=mode))
    line = by_key(found)[f"baseline_{mode}"]
    assert (line.verdict, line.result, line.stored, line.numbers) == ("differs", pytest.approx(baseline), 0.8, numbers)
    assert not found.agree
    assert [line.verdict for line in found.lines].count("differs") == 1


def test_the_kl_penalty_by_hand(two_turns):
    lines = by_key(explain(two_turns, 0, 0, 0, config(reference_kl_enabled=True, reference_kl_coef=0.1)))
    assert (lines["kl_penalty"].numbers, lines["kl_penalty"].result) == ("0.1 * 2", pytest.approx(0.2))
    assert lines["return_penalised"].result == pytest.approx(0.8)  # 1.0 - 0.2, but the trace says 1.0
    assert lines["return_penalised"].verdict == "differs"
    assert lines["return_aligned"].verdict == "part"


def test_normalisation_off_weighs_with_the_advantage(two_turns):
    line = by_key(explain(two_turns, 0, 0, 0, config(advantage_normalization=False)))["normalized_off"]
    assert (line.result, line.stored, line.verdict) == (pytest.approx(0.2), 1.0, "differs")


def test_cross_sums_by_hand(tmp_path):
    # joint returns 1, 2, 3 and one unscored, which counts as the mean of the scored ones of the same completion
    responses = [(0, 0), (0, 1), (1, 0), (1, 1)]
    joints = [(pair, r, r) for pair, r in zip(responses, (1.0, 2.0, 3.0, None))]
    returns = [[1.0 + 2.0, 2 * 3.0], [1.0 + 3.0, 2 * 2.0]]  # [agent][k]
    rewards = [[1.5, 3.0], [2.0, 2.0]]
    rows = [
        completion(a, k, reward=rewards[a][k], returns=returns[a][k], baseline=0.0, advantage=returns[a][k],
                   normalized=returns[a][k], kl=3.0)
        for a in range(2) for k in range(2)
    ]  # fmt: skip
    writer = TraceWriter(tmp_path / "trace.db")
    writer.nodes([node(0, joints, rows)])
    settings = {"joint_mode": "cross", "advantage_mode": "raw", "advantage_normalization": False}
    for agent, k, key, numbers in [
        (0, 0, "return_cross", "1 + 2"),
        (0, 1, "return_cross_unscored", "mean(3) * 2"),
        (1, 0, "return_cross", "1 + 3"),
        (1, 1, "return_cross_unscored", "mean(2) * 2"),
    ]:
        found = explain(writer.path, 0, agent, k, config(**settings))
        assert found.agree
        assert (by_key(found)[key].numbers, by_key(found)[key].result) == (numbers, returns[agent][k])
        assert sum(line.key == "joint_return_last" for line in found.lines) == 2
    penalty = by_key(explain(writer.path, 0, 0, 0, config(reference_kl_enabled=True, **settings)))["kl_penalty"]
    assert (penalty.numbers, penalty.result) == ("2 * 0.1 * 3", pytest.approx(0.6))


def test_many_joint_responses_are_cut_but_never_a_wrong_one(tmp_path):
    # agent 0's only completion takes part in 40 joint responses of reward 1; the trace is wrong about number 30
    joints = [((0, k), 1.0, 5.0 if k == 30 else 1.0) for k in range(40)]
    rows = [completion(0, 0, reward=1.0, returns=44.0)] + [completion(1, k) for k in range(40)]
    writer = TraceWriter(tmp_path / "trace.db")
    writer.nodes([node(0, joints, rows)])
    found = explain(writer.path, 0, 0, 0, config(joint_mode="cross"))
    shown = [line for line in found.lines if line.key == "joint_return_last"]
    assert (len(shown), found.more_joints) == (17, 23)
    assert [(line.symbol, line.result, line.stored) for line in shown if line.verdict == "differs"] == [
        ("R[30]", 1.0, 5.0)
    ]
    assert by_key(found)["return_cross"].result == 44.0  # 39 * 1 + 5, from what the trace says of the joints
    assert by_key(found)["return_cross"].numbers.endswith("+ ... 40 numbers")


@pytest.fixture
def critic(tmp_path):
    """Two agents with rewards of their own, discount 0.9, a chain of two turns.

    agent 0: target 0.5 + 0.9 * 0.4 = 0.86, V 0.36, TD error 0.5; last turn: target 0.3
    """
    root = [
        completion(0, 0, reward=0.5, returns=0.86, baseline=0.36, advantage=0.5, value=0.36, target=0.86, td_error=0.5,
                   kl=2.0, normalized=1.5),
        completion(1, 0, reward=0.7, returns=0.79, baseline=0.0, advantage=0.79, value=0.0, target=0.79, td_error=0.79),
    ]  # fmt: skip
    last = [
        completion(agent, 0, reward=0.3, returns=0.3, baseline=v, advantage=0.3 - v, value=v, target=0.3,
                   td_error=0.3 - v)
        for agent, v in enumerate((0.4, 0.1))
    ]  # fmt: skip
    writer = TraceWriter(tmp_path / "trace.db")
    writer.nodes([node(0, [((0, 0), 0.6, 0.9)], root), node(1, [((0, 0), 0.3, 0.3)], last, (0, 0), turn=2)])
    return writer.path


def test_a_td_target_by_hand(critic):
    found = explain(critic, 0, 0, 0, config(MAACConfig, discount=0.9))
    assert found.agree and found.remark == ""
    lines = by_key(found)
    assert (lines["target"].numbers, lines["target"].result) == ("0.5 + 0.9 * 0.4", pytest.approx(0.86))
    assert (lines["td_error"].numbers, lines["td_error"].result) == ("0.86 - 0.36", pytest.approx(0.5))
    assert (lines["team_reward"].numbers, lines["team_reward"].result) == ("mean(0.5, 0.7)", pytest.approx(0.6))
    weight = lines["normalized_buffer"]
    assert (weight.verdict, weight.result, weight.stored) == ("unknown", NAN, 1.5)
    assert by_key(explain(critic, 1, 0, 0, config(MAACConfig, discount=0.9)))["target_last"].result == 0.3


def test_a_completion_that_no_update_used_yet_is_pending(critic):
    found = explain(critic, 0, 1, 0, config(IACConfig, discount=0.9, advantage_normalization=False))
    assert found.agree and found.remark == "pending"
    assert by_key(found)["normalized_off"].verdict == "unknown"


def test_the_kl_penalty_lowers_an_actor_critic_s_reward(critic):
    settings = {"discount": 0.9, "reference_kl_enabled": True, "reference_kl_coef": 0.1}
    lines = by_key(explain(critic, 0, 0, 0, config(MAACConfig, **settings)))
    assert lines["reward_penalised"].result == pytest.approx(0.3)  # 0.5 - 0.1 * 2
    assert (lines["target"].result, lines["target"].verdict) == (pytest.approx(0.66), "differs")  # 0.3 + 0.36


@pytest.mark.parametrize("copy", ["return", "target"])
def test_both_places_of_a_target_are_compared(critic, copy):
    change(critic, f'UPDATE completions SET "{copy}" = 7 WHERE node_id = 0 AND agent = 0')
    line = by_key(explain(critic, 0, 0, 0, config(MAACConfig, discount=0.9)))["target"]
    assert (line.verdict, line.stored) == ("differs", 7.0)


def test_a_next_value_that_is_not_stored_is_said_so(critic):
    change(critic, "UPDATE completions SET value = NULL WHERE node_id = 1")
    line = by_key(explain(critic, 0, 0, 0, config(MAACConfig, discount=0.9)))["target"]
    assert line.verdict == "unknown"
    assert "not in the trace" in line.numbers


def test_bad_questions_are_one_sentence(two_turns):
    with pytest.raises(ValueError, match=r"^Node 0 has no completion 5 of agent 1\.$"):
        explain(two_turns, 0, 1, 5, config())
    with pytest.raises(ValueError, match=r"^The trace has no node 77"):
        explain(two_turns, 77, 0, 0, config())
    with pytest.raises(ValueError, match="TrainingConfig"):
        explain(two_turns, 0, 0, 0, TrainingConfig())


def test_a_long_trace_is_explained_quickly(big_trace):
    ids = sample_nodes(big_trace, limit=20).ids
    start = time.process_time()
    assert all(explain(big_trace, node_id, 1, 2, config()).agree for node_id in ids)
    assert (time.process_time() - start) / len(ids) < 2.0
