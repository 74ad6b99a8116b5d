"""Trees worked by hand: scripted texts and rewards instead of a model."""

import pytest
import torch

from workbench import objectives
from workbench.callbacks import Transition, default_formatter, resolve_formatters
from workbench.rewards import RewardFunction
from workbench.rollout import Environment, Rollout, Shape, derive_seed
from workbench.stopwatch import Stopwatch
from workbench.types import Completion, Sampling

ITEM = {"prompt": "go"}


class ScriptedTeam:
    """Agent i's k-th completion for a prompt p is "<letter><turn>.<node><k>", as in a1.00."""

    def __init__(self):
        self.calls = []

    def generate(self, prompts, count, sampling, seeds):
        self.calls.append((prompts, count, sampling, list(seeds)))
        turn = len(self.calls)
        return [
            [
                [
                    Completion(f"<{prompt}>", (1,), f"{'abc'[agent]}{turn}.{node}{k}", (5, 2), True, -1.0)
                    for k in range(count)
                ]
                for node, prompt in enumerate(row)
            ]
            for agent, row in enumerate(prompts)
        ]


class ScriptedReward:
    """Hands out the given reward lists, one per node in environment order, and remembers the calls."""

    def __init__(self, *script):
        self.script = list(script)
        self.calls = []

    def __call__(self, *completions, prompts, batch_items):
        self.calls.append((completions, prompts, batch_items))
        return self.script.pop(0)


class Moves:
    """A transition that names each agent's next prompt after its last completion and remembers the calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, **given):
        self.calls.append(given)
        return [f"next {text}" for text in given["agent_completions"]]


class Grown:
    """Everything around one grown tree."""

    def __init__(self, script, n=2, k=2, turns=2, join="aligned", threshold=None, formatters=None, passthrough=False,
                 transition=None, items=((0, ITEM),), step=0):  # fmt: skip
        self.team, self.reward, self.moves = ScriptedTeam(), ScriptedReward(*script), transition or Moves()
        environment = Environment(
            formatters=resolve_formatters(formatters, n),
            reward=RewardFunction(self.reward, n),
            transition=Transition(self.moves, n),
            passthrough=passthrough,
        )
        rollout = Rollout(self.team, environment, Sampling(max_new_tokens=4), Stopwatch())
        shape = Shape(turns, k, objectives.JOINT_MODES[join], threshold)
        self.trees = rollout.expand(list(items), shape, seed=7, step=step)
        self.nodes = self.trees[0].nodes


def returns_of(*rows):
    return [pytest.approx(row) for row in rows]


# --- returns -----------------------------------------------------------------------------------


def test_one_turn_returns_are_the_rewards():
    grown = Grown([[1.0, 2.0, 6.0]], k=3, turns=1)
    assert [n.returns for n in grown.nodes] == [(1.0, 2.0, 6.0)]
    assert grown.moves.calls == []


def test_two_turns_aligned():
    # root rewards 1 2; child of response 0 earns 3 5 (mean 4), child of response 1 earns 10 0 (mean 5)
    grown = Grown([[1.0, 2.0], [3.0, 5.0], [10.0, 0.0]])
    assert [n.returns for n in grown.nodes] == returns_of((1 + 4, 2 + 5), (3, 5), (10, 0))
    assert [(n.turn, n.parent_joint) for n in grown.nodes] == [(1, None), (2, 0), (2, 1)]


def test_three_turns_aligned():
    # turn 3 means 1 2 3 4; turn 2 rewards (10 20) (30 40) -> returns (11 22) (33 44), means 16.5 and 38.5;
    # root 100 + 16.5, 200 + 38.5
    script = [[100.0, 200.0], [10.0, 20.0], [30.0, 40.0], [0.0, 2.0], [1.0, 3.0], [3.0, 3.0], [8.0, 0.0]]
    grown = Grown(script, turns=3)
    assert [n.returns for n in grown.nodes[:3]] == returns_of((116.5, 238.5), (11, 22), (33, 44))
    assert [n.turn for n in grown.nodes] == [1, 2, 2, 3, 3, 3, 3]


def test_two_turns_cross_and_the_sums_per_completion():
    # J = 4; children's means 1 2 3 4 -> root returns 10+1 20+2 30+3 40+4
    script = [[10.0, 20.0, 30.0, 40.0], [1.0] * 4, [0.0, 4.0, 0.0, 4.0], [3.0] * 4, [16.0, 0.0, 0.0, 0.0]]
    grown = Grown(script, join="cross")
    root = grown.nodes[0]
    assert root.returns == pytest.approx((11, 22, 33, 44))
    assert root.responses == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert len(grown.nodes) == 5
    joint, rows = torch.tensor(root.returns), torch.tensor(root.responses)
    # agent 0: 11 + 22, 33 + 44; agent 1: 11 + 33, 22 + 44
    assert objectives.completion_returns(joint, rows, 0, 2).tolist() == pytest.approx([33, 77])
    assert objectives.completion_returns(joint, rows, 1, 2).tolist() == pytest.approx([44, 66])


def test_cross_reward_sees_every_combination():
    grown = Grown([[0.0] * 4], turns=1, join="cross")
    (completions, _, _) = grown.reward.calls[0]
    assert completions == (["a1.00", "a1.00", "a1.01", "a1.01"], ["b1.00", "b1.01", "b1.00", "b1.01"])


# --- unscored ----------------------------------------------------------------------------------


def test_unscored_response_is_none_and_leaves_no_trace_in_the_means():
    # root None 2; child of response 1 earns None 4: mean of the scored one is 4
    grown = Grown([[None, 2.0], [1.0, 1.0], [None, 4.0]])
    assert grown.nodes[0].returns == (None, 6.0)
    assert grown.nodes[0].reward_mean == 2.0
    assert grown.nodes[2].returns == (None, 4.0)


def test_wholly_unscored_child_makes_its_branch_unscored():
    grown = Grown([[1.0, 2.0], [None, None], [3.0, 5.0]])
    assert grown.nodes[0].returns == (None, 6.0)
    assert grown.nodes[1].reward_mean is None


def test_wholly_unscored_node_does_not_terminate():
    grown = Grown([[None, None], [0.0, 0.0], [0.0, 0.0]], threshold=-100.0)
    assert not grown.nodes[0].terminated
    assert len(grown.nodes) == 3


# --- early termination -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "nodes", "terminated"),
    [
        (1.4, 1, True),  # mean of 1 and 2 is 1.5 > 1.4
        (1.5, 3, False),  # equal is not greater
        (None, 3, False),
    ],
)
def test_early_termination_is_strictly_greater(threshold, nodes, terminated):
    # the children earn -9, so that only the root can be stopped
    grown = Grown([[1.0, 2.0], [-9.0, -9.0], [-9.0, -9.0]], threshold=threshold)
    assert len(grown.nodes) == nodes
    assert grown.nodes[0].terminated is terminated
    assert grown.nodes[0].returns == pytest.approx((1, 2) if terminated else (-8, -7))


def test_only_the_good_branch_terminates():
    # turn 2: child 0 has mean 5 > 0 and stops, child 1 has mean -5 and grows two nodes of turn 3
    script = [[-1.0, -1.0], [4.0, 6.0], [-5.0, -5.0], [1.0, 3.0], [2.0, 2.0]]
    grown = Grown(script, turns=3, threshold=0.0)
    assert [(n.turn, n.terminated) for n in grown.nodes] == [
        (1, False),
        (2, True),
        (2, False),
        (3, True),  # a leaf of the last turn above the threshold is marked too
        (3, True),
    ]
    # child 1: -5 + 2, -5 + 2; root: -1 + 5, -1 - 3
    assert [n.returns for n in grown.nodes[:3]] == returns_of((4, -4), (4, 6), (-3, -3))


def test_termination_uses_the_mean_of_the_scored_rewards():
    grown = Grown([[None, 1.0]], threshold=0.9)
    assert grown.nodes[0].terminated


# --- one generate call per turn ----------------------------------------------------------------


@pytest.mark.parametrize(("join", "sizes"), [("aligned", [1, 2, 4]), ("cross", [1, 4, 16])])
def test_one_generate_call_per_turn_whatever_the_number_of_nodes(join, sizes):
    joint = 2 if join == "aligned" else 4
    grown = Grown([[0.0] * joint] * sum(sizes), turns=3, join=join)
    assert [len(prompts[0]) for prompts, *_ in grown.team.calls] == sizes
    assert all(count == 2 for _, count, *_ in grown.team.calls)


def test_no_call_after_every_branch_ended():
    grown = Grown([[1.0, 1.0]], turns=3, threshold=0.0)
    assert len(grown.team.calls) == 1


def test_several_items_grow_together_and_stay_apart():
    items = [(3, {"prompt": "x"}), (5, {"prompt": "y"})]
    # all turn-1 nodes are rewarded before any turn-2 node; item 3's tree stops at once
    grown = Grown([[1.0, 1.0], [-1.0, -1.0], [0.0, 2.0], [4.0, 4.0]], threshold=0.5, items=items, step=100)
    first, second = grown.trees
    assert [n.item for n in first.nodes] == [3]
    assert [n.item for n in second.nodes] == [5, 5, 5]
    assert second.root.returns == pytest.approx((-1 + 1, -1 + 4))
    assert [len(prompts[0]) for prompts, *_ in grown.team.calls] == [2, 2]


def test_seeds_differ_between_agents_and_turns():
    grown = Grown([[0.0, 0.0]] * 3)
    seeds = [seed for *_, row in grown.team.calls for seed in row]
    assert len(set(seeds)) == 4


def test_derived_seed_is_stable_and_depends_on_every_part():
    assert derive_seed(0, "train", 1) == derive_seed(0, "train", 1)
    parts = [(0, "train", 1), (0, "train", 2), (0, "eval", 1), (1, "train", 1), (0, 1), (1, 0), (11,), (1, 1)]
    assert len({derive_seed(*p) for p in parts}) == len(parts)
    assert 0 <= derive_seed(0) < 2**63


# --- counting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("join", "steps"),
    [
        ("aligned", [12, 14, 16]),  # 10, then two joint rewards per node
        ("cross", [14, 18, 22, 26, 30]),  # four joint rewards per node
    ],
)
def test_steps_count_joint_rewards(join, steps):
    joint = 2 if join == "aligned" else 4
    grown = Grown([[0.0] * joint] * len(steps), join=join, step=10)
    assert [n.step for n in grown.nodes] == steps


def test_unscored_responses_count_as_steps():
    assert Grown([[None, None]], turns=1).nodes[0].step == 2


# --- what callbacks are told -------------------------------------------------------------------


def test_reward_gets_agent_0s_actual_prompt_and_the_item():
    formatters = [lambda item: "for a", lambda item: "for b"]
    grown = Grown([[0.0, 0.0]], turns=1, formatters=formatters)
    _, prompts, items = grown.reward.calls[0]
    assert prompts == ["<for a>", "<for a>"]  # the model saw angle brackets added by the scripted team
    assert items == [ITEM, ITEM]


def test_transition_of_turn_one():
    grown = Grown([[0.5, 0.7]] + [[0.0, 0.0]] * 2)
    assert grown.moves.calls[1] == {
        "prompt": "go",
        "agent_completions": ["a1.01", "b1.01"],
        "num_agents": 2,
        "prompt_history_per_agent": [["<go>"], ["<go>"]],
        "response_history_per_agent": [["a1.01"], ["b1.01"]],
    }


def test_histories_follow_their_own_branch():
    grown = Grown([[0.0, 0.0]] * 7, turns=3)
    # turn-2 node 1 comes from response 1 of the root; its response 0 leads on
    call = grown.moves.calls[4]
    assert call["agent_completions"] == ["a2.10", "b2.10"]
    assert call["response_history_per_agent"] == [["a1.01", "a2.10"], ["b1.01", "b2.10"]]
    assert call["prompt_history_per_agent"] == [["<go>", "<next a1.01>"], ["<go>", "<next b1.01>"]]


def test_cross_branches_carry_their_combination():
    grown = Grown([[0.0] * 4] * 5, join="cross")
    assert [c["agent_completions"] for c in grown.moves.calls] == [
        ["a1.00", "b1.00"],
        ["a1.00", "b1.01"],
        ["a1.01", "b1.00"],
        ["a1.01", "b1.01"],
    ]


def test_transition_gets_item_and_rewards_when_it_names_them():
    seen = []

    def transition(prompt, agent_completions, num_agents, prompt_history_per_agent, response_history_per_agent, item,
                   rewards):  # fmt: skip
        seen.append((item, rewards))
        return ["p", "q"]

    Grown([[0.5, None]] + [[0.0, 0.0]] * 2, transition=transition)
    assert seen == [(ITEM, [0.5, 0.5]), (ITEM, [None, None])]  # one reward per agent of this branch


@pytest.mark.parametrize("answer", [["one"], "text", None, ["a", "b", "c"], ["a", 3]])
def test_transition_with_a_wrong_answer_is_an_error_naming_the_item(answer):
    with pytest.raises(ValueError, match=r"external_transition.*item 4, turn 1"):
        Grown([[0.0, 0.0]], transition=lambda **given: answer, items=[(4, ITEM)])


# --- prompts -----------------------------------------------------------------------------------


def prompts_of_turn_two(**options):
    grown = Grown([[0.0, 0.0]] * 3, **options)
    return [n.prompts for n in grown.nodes[1:]]


def test_default_formatter_uses_the_transitions_prompt():
    assert prompts_of_turn_two() == [("next a1.00", "next b1.00"), ("next a1.01", "next b1.01")]


def test_formatter_with_two_arguments():
    def formatter(item, external_prompts=None):
        return f"[{external_prompts}]" if external_prompts else item["prompt"]

    assert prompts_of_turn_two(formatters=formatter)[0] == ("[next a1.00]", "[next b1.00]")


def test_formatter_with_one_argument_finds_the_new_prompt_in_the_item():
    assert prompts_of_turn_two(formatters=lambda item: f"({item['prompt']})")[0] == ("(next a1.00)", "(next b1.00)")
    assert ITEM == {"prompt": "go"}  # the dataset's row is not changed


def test_passthrough_skips_the_formatter_after_turn_one():
    def formatter(item, external_prompts=None):
        return f"[{external_prompts or item['prompt']}]"

    grown = Grown([[0.0, 0.0]] * 3, formatters=formatter, passthrough=True)
    assert grown.nodes[0].prompts == ("[go]", "[go]")
    assert grown.nodes[1].prompts == ("next a1.00", "next b1.00")


def test_default_formatter_without_a_prompt_column():
    with pytest.raises(ValueError, match=r"no column 'prompt'.*'question'.*formatters"):
        default_formatter({"question": "?"})


@pytest.mark.parametrize("bad", [None, 3, [], ["hi"], [{"role": "user"}]])
def test_formatter_must_return_text_or_messages(bad):
    with pytest.raises(ValueError, match="formatter of agent 0 for item 0, turn 1"):
        Grown([[0.0, 0.0]], turns=1, formatters=lambda item: bad)


def test_formatters_must_match_the_agents():
    with pytest.raises(ValueError, match="formatters must be one callable or 3"):
        resolve_formatters([default_formatter] * 2, 3)


# --- other team sizes --------------------------------------------------------------------------


def test_three_agents_with_three_formatters():
    formatters = [lambda item, i=i: f"{item['prompt']} {i}" for i in range(3)]
    grown = Grown([[1.0, 2.0], [3.0, 3.0], [4.0, 6.0]], n=3, formatters=formatters)
    assert grown.nodes[0].prompts == ("go 0", "go 1", "go 2")
    assert grown.nodes[0].returns == pytest.approx((4, 7))
    assert grown.reward.calls[0][0] == (["a1.00", "a1.01"], ["b1.00", "b1.01"], ["c1.00", "c1.01"])


def test_three_agents_cross_have_k_to_the_n_branches():
    grown = Grown([[0.0] * 8] * 9, n=3, join="cross")
    assert len(grown.nodes) == 9  # the root and 2**3 branches
    assert [len(prompts[0]) for prompts, *_ in grown.team.calls] == [1, 8]


def test_single_agent():
    grown = Grown([[1.0, 2.0], [3.0, 3.0], [4.0, 6.0]], n=1)
    assert grown.nodes[0].returns == pytest.approx((4, 7))
    assert grown.reward.calls[0][0] == (["a1.00", "a1.01"],)
    assert grown.nodes[0].responses == ((0,), (1,))


def test_reward_error_names_item_and_turn():
    with pytest.raises(ValueError, match=r"item 9, turn 2"):
        Grown([[0.0, 0.0], [0.0]], items=[(9, ITEM)])
