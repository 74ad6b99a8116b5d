"""Alarms: each one fires on a trace made for it, stays silent just below its threshold, and names the right nodes.

The healthy trace has 80 nodes of 2 agents with 2 completions each. The newest half is the recent window: nodes 40
to 79, per agent 40 groups and 80 completions, whose `number` (2 * node + k) is 80 to 159; the oldest half is the early.
"""

from __future__ import annotations

import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_runs import maac_run, magrpo_run  # noqa: F401 - fixtures

from workbench.insight.health import RULES, SEVERITIES, Alarm, Settings, check, settings_of
from workbench.insight.health_words import WORDS
from workbench.runs.spec import RunSpec
from workbench.tracking import trace
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord

NODES, K = 80, 2
Change = Callable[[int, int, int, int], dict[str, Any]]  # (node, agent, k, number) -> changed columns
BASES = ["river", "mill", "boat", "goat", "moon", "tree", "lamp", "road", "bird", "fish", "stone", "wind", "cloud"]


def healthy(node: int, agent: int, k: int) -> dict[str, Any]:
    number = 2 * node + k
    words = [BASES[(number * 7 + i * (1 + agent)) % len(BASES)] for i in range(7)]
    text = " ".join([*words, f"n{number}"])
    reward = ((number * 37) % 100) / 100
    return {"text": text, "tokens": 10 + number % 3, "finished": True, "reward": reward, "return_": reward}


def nothing(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
    return {}


def write(path: Path, change: Change = nothing, metrics: dict[str, list[float]] | None = None, **node: Any) -> Path:
    """node: `terminated` of every node, `turn` and `item` as functions of the node's number."""
    writer = TraceWriter(path)
    writer.nodes([record(i, change, **node) for i in range(NODES)])
    for key, values in (metrics or {}).items():
        for i, value in enumerate(values):
            writer.metrics(2 * (i + 1), {key: value})
    writer.end("FINISHED")
    return path


def record(i: int, change: Change, terminated: Callable[[int], bool] = lambda i: False) -> NodeRecord:
    rows = []
    for agent in range(2):
        for k in range(K):
            values = healthy(i, agent, k) | change(i, agent, k, 2 * i + k)
            rows.append(CompletionRecord(agent, k, "prompt", logprob=-1.0, **values))
    joints = tuple(JointRecord(k, (k, k), rows[k].reward, rows[k].return_) for k in range(K))
    return NodeRecord(i, "train", 2 * (i + 1), 0, i % 8, 1, None, None, terminated(i), joints, tuple(rows))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.db"


def only(alarms: list[Alarm], code: str) -> Alarm:
    assert [alarm.code for alarm in alarms] == [code]
    return alarms[0]


def recent(node: int) -> bool:
    return node >= NODES // 2


def test_a_healthy_run_has_no_alarm(path: Path) -> None:
    write(path, metrics={"agent_0/turn_1/entropy": [1.0] * 40, "turn_1/reference_kl_mean": [0.1] * 40})
    assert check(path, Settings(max_new_tokens=12, num_turns=2)) == []


def test_an_empty_or_short_run_has_no_alarm(path: Path) -> None:
    TraceWriter(path)
    assert check(path) == []
    TraceWriter(path).nodes([record(0, lambda *_: {"text": "", "finished": False, "reward": 0.0, "return_": 0.0})])
    assert check(path) == []


def with_share(tenths: int, agent_in_question: int, **columns: Any) -> Change:
    """Of the given agent's completions exactly that many tenths get these columns: numbers 80 to 159 end in each digit
    eight times."""

    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        return columns if agent == agent_in_question and number % 10 < tenths else {}

    return change


@pytest.mark.parametrize(("tenths", "severity"), [(1, None), (2, "warning"), (4, "warning"), (5, "alarm")])
@pytest.mark.parametrize(("code", "columns"), [("truncation", {"finished": False}), ("silent_agent", {"text": " \n"})])
def test_cut_off_and_empty_texts(path: Path, tenths: int, severity: str | None, code: str, columns: dict) -> None:
    rows = write(path, with_share(tenths, 1, **columns))
    alarms = [alarm for alarm in check(rows) if alarm.code in ("truncation", "silent_agent")]
    if severity is None:
        assert alarms == []
        return
    alarm = only(alarms, code)
    assert (alarm.severity, alarm.steps) == (severity, (82, 160))
    assert alarm.numbers == {"agent": 1, "turn": 1, "share": tenths / 10, "count": 80}
    ending = {"silent_agent": "are empty", "truncation": "were cut off"}[code]
    assert alarm.text["en"].startswith(f"Agent 1, turn 1: {tenths}0% of the 80 newest completions {ending}")
    assert alarm.node_ids[0] == (149 + tenths) // 2  # 150 + tenths - 1 is the newest number with such a last digit
    assert f"{tenths}0%" in alarm.text["zh"] and "智能体 1" in alarm.text["zh"]


@pytest.mark.parametrize(("groups", "severity"), [(19, None), (20, "warning"), (35, "warning"), (36, "alarm")])
def test_groups_without_signal(path: Path, groups: int, severity: str | None) -> None:
    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        return {"return_": node / 100} if agent == 0 and recent(node) and node < 40 + groups else {}

    alarms = check(write(path, change))
    if severity is None:
        assert alarms == []
        return
    alarm = only(alarms, "no_signal")
    assert (alarm.severity, alarm.numbers["share"], alarm.numbers["count"]) == (severity, groups / 40, 40)
    assert alarm.node_ids == tuple(range(39 + groups, 27 + groups, -1))


def test_groups_of_one_have_no_signal_to_lose(path: Path) -> None:
    """An actor-critic's completions are compared with a value, not with each other."""

    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        target = (node % 10) / 10
        return {"return_": target, "value": target, "target": target, "td_error": 0.0}

    assert check(write(path, change)) == []


@pytest.mark.parametrize(("count", "severity"), [(19, None), (20, "warning"), (72, "alarm")])
def test_completions_without_a_reward(path: Path, count: int, severity: str | None) -> None:
    """`count` of the 80 recent completions of agent 1: a quarter warns, nine tenths alarm."""

    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        none = {"reward": None, "return_": None}
        return none if agent == 1 and 80 <= number < 80 + count else {}

    alarms = [alarm for alarm in check(write(path, change)) if alarm.code == "unscored"]
    assert [alarm.severity for alarm in alarms] == ([severity] if severity else [])
    if alarms:
        assert alarms[0].numbers == {"agent": 1, "turn": 1, "share": count / 80, "count": 80}


@pytest.mark.parametrize(("odd", "fires"), [(1, False), (0, True)])
def test_a_constant_reward(path: Path, odd: int, fires: bool) -> None:
    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        return {} if not recent(node) else {"reward": 0.25 + 0.5 * (odd and number == 159)}

    alarms = [alarm for alarm in check(write(path, change)) if alarm.code == "reward_constant"]
    if not fires:
        assert alarms == []
        return
    alarm = only(alarms, "reward_constant")
    assert alarm.numbers == {"turn": 1, "count": 160, "reward": 0.25}


@pytest.mark.parametrize(("pairs", "severity"), [(19, None), (20, "warning"), (36, "alarm")])
def test_duplicates_within_groups(path: Path, pairs: int, severity: str | None) -> None:
    """`pairs` of the 40 recent groups of agent 1 consist of one text twice: 2 * pairs of 80 completions."""

    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        same = agent == 1 and recent(node) and node < 40 + pairs
        return {"text": healthy(node, agent, 0)["text"]} if same else {}

    alarms = check(write(path, change))
    if severity is None:
        assert alarms == []
        return
    alarm = only(alarms, "duplicates")
    assert (alarm.severity, alarm.numbers["share"], alarm.numbers["count"]) == (severity, pairs / 40, 80)
    assert alarm.node_ids[0] == 39 + pairs


@pytest.mark.parametrize(("tenths", "items", "fires"), [(4, 8, False), (5, 8, True), (10, 2, False), (10, 3, True)])
def test_one_text_for_everything(path: Path, tenths: int, items: int, fires: bool) -> None:
    """Completion 0 of a node says the same in `tenths` of the nodes; the others say something of their own."""
    text = "yes, " * 20

    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        return {"text": text} if agent == 0 and number % 10 < tenths else {}

    writer = TraceWriter(path)
    for i in range(NODES):
        made = record(i, change)
        writer.nodes(
            [NodeRecord(i, "train", made.step, 0, i % items, 1, None, None, False, made.joints, made.completions)]
        )
    alarms = [alarm for alarm in check(path) if alarm.code == "stuck_text"]
    if not fires:
        assert alarms == []
        return
    alarm = only(alarms, "stuck_text")
    assert alarm.numbers["share"] == tenths / 10
    assert alarm.numbers["items"] == items
    assert len(alarm.numbers["sample"]) == 61 and alarm.numbers["sample"] in alarm.text["zh"]


@pytest.mark.parametrize(
    ("tokens", "cap", "fires"), [(19, 25, True), (14, 20, False), (19, 30, False), (19, None, False)]
)
def test_length_runaway(path: Path, tokens: int, cap: int | None, fires: bool) -> None:
    """Early lengths are 10, 11, 12. 19 is more than half as long again and 76 % of 25, but only 63 % of 30."""

    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        return {"tokens": tokens + (number == 101)} if agent == 1 and recent(node) else {}

    alarms = check(write(path, change), Settings(max_new_tokens=cap))
    if not fires:
        assert alarms == []
        return
    alarm = only(alarms, "length_runaway")
    assert alarm.node_ids[0] == 50  # completion 101 is the longest
    assert alarm.numbers["early"] == pytest.approx(11, abs=0.05)
    assert "76% of the limit of 25" in alarm.text["en"]


@pytest.mark.parametrize(("letters", "fires"), [(5, False), (3, True)])
def test_an_agent_that_hardly_speaks(path: Path, letters: int, fires: bool) -> None:
    """Agent 0 writes some 38 characters."""

    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        names = string.ascii_letters
        return {"text": (names[number % 50] + names[number // 50] + "xyz")[:letters]} if agent == 1 else {}

    alarms = check(write(path, change))
    if not fires:
        assert alarms == []
        return
    alarm = only(alarms, "short_agent")
    assert (alarm.numbers["agent"], alarm.numbers["recent"]) == (1, 3)
    assert alarm.numbers["early"] > 30


LOOP = "very good boat " * 8  # 24 words, 3 different ones; 22 phrases, 3 different ones


@pytest.mark.parametrize(("reward", "loops", "fires"), [(0.5, True, True), (0.5, False, False), (0.0, True, False)])
def test_reward_up_while_texts_get_worse(path: Path, reward: float, loops: bool, fires: bool) -> None:
    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        if agent == 1 or not recent(node):
            return {}
        text = {"text": f"{LOOP} {number}"} if loops else {}
        return {"reward": healthy(node, agent, k)["reward"] + reward, **text}

    alarms = check(write(path, change))
    if not fires:
        assert alarms == []
        return
    alarm = only(alarms, "reward_hacking")
    assert alarm.severity == "alarm"
    # 25 words of which 4 differ; 23 phrases of which 4 differ (the number is the last word)
    assert alarm.numbers["unique"] == pytest.approx(4 / 25)
    assert alarm.numbers["repeat"] == pytest.approx(19 / 23)
    assert (alarm.numbers["unique_early"], alarm.numbers["repeat_early"]) == (1, 0)
    assert alarm.numbers["recent"] - alarm.numbers["early"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("last", "severity"), [(0.6, None), (0.5, "warning"), (0.25, "warning"), (0.125, "alarm")])
def test_entropy_drop(path: Path, last: float, severity: str | None) -> None:
    """From 2 nats; a quarter of it is 0.5, a tenth 0.2."""
    write(
        path,
        metrics={"agent_1/turn_1/entropy": [2.0] * 20 + [1.0] * 20 + [last] * 20, "turn_1/reward_mean": [0.0] * 60},
    )
    alarms = check(path)
    if severity is None:
        assert alarms == []
        return
    alarm = only(alarms, "entropy_drop")
    assert (alarm.severity, alarm.steps, alarm.numbers) == (
        severity, (2, 120), {"agent": 1, "turn": 1, "early": 2.0, "recent": last},
    )  # fmt: skip
    assert alarm.node_ids[0] == 79


@pytest.mark.parametrize(
    ("peak", "base", "fires"), [(0.8, 0.1, True), (0.55, 0.1, False), (2.5, 1.0, False), (3.1, 1.0, True)]
)
def test_kl_jump(path: Path, peak: float, base: float, fires: bool) -> None:
    """Both are needed: three times the median before, and half a nat above it."""
    write(path, metrics={"turn_1/reference_kl_mean": [base] * 30 + [peak] + [base] * 9})
    alarms = check(path)
    if not fires:
        assert alarms == []
        return
    alarm = only(alarms, "kl_jump")
    assert alarm.steps == (60, 62)  # point 31 was logged at step 62
    assert alarm.node_ids == (30,)  # the only node with 60 < step <= 62
    assert alarm.numbers == {"turn": 1, "early": base, "recent": peak, "step": 62}


@pytest.mark.parametrize(("mode", "on", "fires"), [("rloo", True, True), ("rloo", False, False), (None, None, False)])
def test_normalisation_makes_baselines_equal(path: Path, mode: str | None, on: bool | None, fires: bool) -> None:
    alarms = check(write(path), Settings(advantage_mode=mode, normalization=on))
    if not fires:
        assert alarms == []
        return
    alarm = only(alarms, "baselines_equal")
    assert (alarm.severity, alarm.numbers["count"]) == ("info", 80)
    assert alarm.numbers["difference"] < 1e-9


@pytest.mark.parametrize(("going_on", "turns", "fires"), [(2, 2, True), (3, 2, False), (0, 1, False), (0, None, False)])
def test_every_branch_ends_in_turn_1(path: Path, going_on: int, turns: int | None, fires: bool) -> None:
    """2 of 40 recent roots going on are 5 %: as good as none."""
    write(path, terminated=lambda i: i < NODES - going_on)
    alarms = check(path, Settings(num_turns=turns, threshold=-0.2))
    if not fires:
        assert alarms == []
        return
    alarm = only(alarms, "ends_in_turn_1")
    assert alarm.node_ids[0] == 77
    assert "95% of the 40 newest rollouts stopped after turn 1 of 2" in alarm.text["en"]
    assert "early_termination_threshold (-0.2)" in alarm.text["en"]


@pytest.mark.parametrize(
    ("value", "severity"), [("target", None), ("constant", None), ("half", "warning"), ("all", "alarm")]
)
def test_a_critic_worse_than_a_constant(path: Path, value: str, severity: str | None) -> None:
    """Targets are +-1 (variance 1). A value of -c * target leaves the error (1 + c) * target of variance (1 + c)^2:
    explained variance 1 - 1.2^2 = -0.44 for c = 0.2, and 1 - 2^2 = -3 for c = 1."""
    factor = {"target": 1.0, "constant": 0.0, "half": -0.2, "all": -1.0}[value]

    def change(node: int, agent: int, k: int, number: int) -> dict[str, Any]:
        target = 1.0 if node % 2 else -1.0
        guess = factor * target * (3 if node == 61 and severity else 1)
        row = {"return_": target, "target": target, "value": guess, "td_error": target - guess}
        return row if agent == 0 and k == 0 else {"return_": None}

    alarms = check(write(path, change))
    if severity is None:
        assert alarms == []
        return
    alarm = only(alarms, "critic_worse")
    assert (alarm.severity, alarm.numbers["agent"], alarm.numbers["count"]) == (severity, 0, 40)
    assert alarm.node_ids[0] == 61  # the largest error


def test_alarms_come_with_the_most_urgent_first_and_complete_words(path: Path) -> None:
    write(path, with_share(10, 0, finished=False, text=""), terminated=lambda i: True)
    alarms = check(path, Settings(num_turns=2, threshold=0.0, advantage_mode="max", normalization=True))
    assert {"truncation", "silent_agent", "duplicates", "ends_in_turn_1", "baselines_equal"} <= {a.code for a in alarms}
    ranks = [SEVERITIES.index(alarm.severity) for alarm in alarms]
    assert ranks == sorted(ranks)
    for alarm in alarms:
        assert alarm.text.keys() == alarm.title.keys() == {"en", "zh"}
        assert "{" not in alarm.text["en"] + alarm.text["zh"]
        assert set(alarm.node_ids) <= set(range(40, 80)) and alarm.node_ids


def test_every_alarm_has_words_and_a_rule() -> None:
    assert set(RULES) == set(WORDS)


def test_settings_of_a_spec_know_the_defaults_of_its_algorithm() -> None:
    spec = RunSpec(name="r", task="rendezvous", algorithm="marloo", model="builtin:tiny", config={"num_turns": 3})
    assert settings_of(spec) == Settings(256, 3, -0.2, "rloo", True)
    spec = RunSpec(name="r", task="rendezvous", algorithm="maac", model="builtin:tiny", critic="builtin:tiny")
    assert settings_of(spec) == Settings(256, 2, -0.2, None, None)


def test_real_runs_are_judged_and_their_links_exist(maac_run, magrpo_run) -> None:  # noqa: F811
    for run in (maac_run, magrpo_run):
        alarms = check(run.trace_file, settings_of(run.spec()))
        known = set(trace.read_nodes(run.trace_file, phase="train")["node_id"])
        assert all(set(alarm.node_ids) <= known for alarm in alarms)
        assert ("baselines_equal" in {alarm.code for alarm in alarms}) == (run is magrpo_run)


@pytest.mark.parametrize("which", ["big_trace", "big_critic_trace"])
def test_a_long_run_is_judged_quickly(which: str, request: pytest.FixtureRequest) -> None:
    file = request.getfixturevalue(which)
    start = time.process_time()
    alarms = check(file, Settings(max_new_tokens=40, num_turns=2, normalization=True, advantage_mode="mean"))
    assert time.process_time() - start < 2
    # its entropy falls as 1 / (1 + i), and at the end some 60 % of the REINFORCE groups have no signal
    codes = {alarm.code for alarm in alarms}
    assert "entropy_drop" in codes
    assert ("no_signal" in codes) == (which == "big_trace")
