"""The reward function's calling contract: who gets what, and that it is called exactly once."""

import functools
import math

import numpy as np
import pytest
import torch

from workbench.rewards import RewardFunction, RewardProcessors

TEXTS = [["a0", "a1"], ["b0", "b1"]]
ITEM = {"prompt": "go", "answer": 42}
PROMPTS, ITEMS = ["<go>"] * 2, [ITEM] * 2


def call(function, texts=TEXTS, **options):
    return RewardFunction(function, len(texts), **options)(texts, "<go>", ITEM, "item 7, turn 2")


def returning(value):
    return lambda *completions: value


# --- what the function is given -----------------------------------------------------------------

SEEN = []


def note(**seen):
    SEEN.append(seen)
    return [0.0, 0.0]


class Callable:
    def __call__(self, a, b, prompts):
        return note(a=a, b=b, prompts=prompts)

    def method(self, a, b, batch_items):
        return note(a=a, b=b, batch_items=batch_items)


def plain(a, b):
    return note(a=a, b=b)


def both(a, b, prompts, batch_items):
    return note(a=a, b=b, prompts=prompts, batch_items=batch_items)


def swapped(a, b, batch_items=None, prompts=None):
    return note(a=a, b=b, prompts=prompts, batch_items=batch_items)


def prompts_first(prompts, a, b):
    return note(a=a, b=b, prompts=prompts)


def between(a, batch_items, b):
    return note(a=a, b=b, batch_items=batch_items)


def keyword_only(a, b, *, batch_items):
    return note(a=a, b=b, batch_items=batch_items)


def star(*completions):
    a, b = completions
    return note(a=a, b=b)


def star_and_keywords(*completions, **context):
    a, b = completions
    return note(a=a, b=b, **context)


def star_then_named(*completions, prompts=None):
    a, b = completions
    return note(a=a, b=b, prompts=prompts)


def one_then_star(a, *rest):
    (b,) = rest
    return note(a=a, b=b)


def with_keywords(a, b, **context):
    return note(a=a, b=b, **context)


def positional_only(a, b, /, batch_items):
    return note(a=a, b=b, batch_items=batch_items)


def with_weight(a, b, weight=2.0, verbose=False):
    return note(a=a, b=b, weight=weight, verbose=verbose)


def weight_then_prompts(a, b, weight=2.0, prompts=None):
    return note(a=a, b=b, weight=weight, prompts=prompts)


def required_weight(weight, a, b, prompts):
    return note(a=a, b=b, weight=weight, prompts=prompts)


A, B = TEXTS
PROMPT, GIVEN, AB = {"prompts": PROMPTS}, {"batch_items": ITEMS}, {"a": A, "b": B}
CALLS = [
    (plain, AB),
    (both, AB | PROMPT | GIVEN),
    (swapped, AB | PROMPT | GIVEN),
    (prompts_first, AB | PROMPT),
    (between, AB | GIVEN),
    (keyword_only, AB | GIVEN),
    (star, AB),
    (star_and_keywords, AB | PROMPT | GIVEN),
    (star_then_named, AB | PROMPT),
    (one_then_star, AB),
    (with_keywords, AB | PROMPT | GIVEN),
    (positional_only, AB | GIVEN),
    (with_weight, AB | {"weight": 2.0, "verbose": False}),
    (weight_then_prompts, AB | PROMPT | {"weight": 2.0}),
    (functools.partial(with_weight, weight=3.0), AB | {"weight": 3.0, "verbose": False}),
    (functools.partial(required_weight, 5.0), AB | PROMPT | {"weight": 5.0}),
    (Callable(), AB | PROMPT),
    (Callable().method, AB | GIVEN),
]


def name_of(value):
    return getattr(getattr(value, "func", value), "__name__", type(value).__name__) if callable(value) else ""


@pytest.mark.parametrize(("function", "expected"), CALLS, ids=name_of)
def test_arguments_follow_the_signature(function, expected):
    SEEN.clear()
    call(function)
    assert [expected] == SEEN


def test_one_agent():
    assert call(lambda completions, prompts: [len(c) for c in completions], [["x", "yyy"]]) == ((1.0, 3.0),)


def test_three_agents():
    texts = [["a"], ["b"], ["c"]]
    assert call(lambda a, b, c, batch_items: [batch_items[0]["answer"]], texts) == ((42.0,),) * 3


def test_wrapped_function_keeps_its_contract():
    @functools.wraps(both)
    def wrapper(*args, **kwargs):
        return both(*args, **kwargs)

    SEEN.clear()
    call(wrapper)
    assert SEEN == [AB | PROMPT | GIVEN]


@pytest.mark.parametrize(
    "function",
    [
        lambda a: [0.0, 0.0],  # two agents, one parameter
        lambda prompts, a: [0.0, 0.0],  # prompts are not completions
        lambda **kwargs: [0.0, 0.0],
        lambda a, b, reference: [0.0, 0.0],  # nothing fills it
        lambda a, b, *, reference: [0.0, 0.0],
        lambda a, b, c: [0.0, 0.0],  # three agents' function
    ],
)
def test_wrong_arity_is_refused_at_construction(function):
    with pytest.raises(ValueError, match="reward_func"):
        RewardFunction(function, 2)


def test_a_default_is_never_filled_with_completions():
    # two agents, but only one parameter is meant for completions: weight must not become a list of texts
    with pytest.raises(ValueError, match="reward_func"):
        RewardFunction(lambda a, weight=2.0: [0.0, 0.0], 2)


def test_arity_errors_name_the_argument_or_the_counts():
    with pytest.raises(ValueError, match="'reference'"):
        RewardFunction(lambda a, b, reference: [], 2)
    with pytest.raises(ValueError, match=r"takes 1 .*2 agents"):
        RewardFunction(lambda a: [], 2)


def test_not_callable():
    with pytest.raises(ValueError, match="reward_func must be callable"):
        RewardFunction([1.0], 2)


# --- called once --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [TypeError("reward() got an unexpected keyword argument"), KeyError("x"), ValueError])
def test_exceptions_pass_through_and_nothing_is_tried_twice(error):
    calls = []

    def reward(a, b, prompts=None, **kwargs):
        calls.append(a)
        raise error

    expected = error if isinstance(error, type) else type(error)
    with pytest.raises(expected) as caught:
        call(reward)
    assert len(calls) == 1
    if not isinstance(error, type):
        assert caught.value is error


def test_a_good_function_is_called_once():
    calls = []
    call(lambda a, b: calls.append(a) or [0.0, 0.0])
    assert len(calls) == 1


# --- what it returns ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.5],
        (1, 2.5),
        np.array([1.0, 2.5]),
        np.array([1.0, 2.5], dtype=np.float32),
        [np.float64(1.0), np.float32(2.5)],
        torch.tensor([1.0, 2.5]),
        torch.tensor([1.0, 2.5], requires_grad=True),
        torch.tensor([1.0, 2.5], dtype=torch.bfloat16),
        [torch.tensor(1.0), torch.tensor(2.5)],
    ],
)
def test_numbers_of_many_kinds(value):
    result = call(returning(value))
    assert result == ((1.0, 2.5), (1.0, 2.5))
    assert all(type(r) is float for row in result for r in row)


def test_booleans_are_zero_and_one():
    assert call(returning([True, False])) == ((1.0, 0.0),) * 2


def test_none_is_unscored_and_skips_the_processor():
    result = call(returning([None, 2.0]), processor=RewardProcessors.shift(value=1.0))
    assert result == ((None, 3.0), (None, 3.0))


@pytest.mark.parametrize("value", [[1.0], [1.0, 2.0, 3.0], [], 1.0, None, "ok", {"a": 1.0}])
def test_wrong_length_or_type_names_the_node(value):
    with pytest.raises(ValueError, match=r"item 7, turn 2") as caught:
        call(returning(value))
    assert "2" in str(caught.value)


def test_wrong_length_names_the_completions():
    # the contract: "Wrong length, NaN or inf: an error naming the item and the completions"
    with pytest.raises(ValueError, match=r"item 7") as caught:
        call(returning([1.0]))
    assert "a0" in str(caught.value) and "b1" in str(caught.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.nan, torch.tensor(math.nan)])
def test_non_finite_names_item_and_completions(bad):
    with pytest.raises(ValueError, match=r"item 7, turn 2.*joint response 1") as caught:
        call(returning([0.0, bad]))
    assert "'a1'" in str(caught.value) and "'b1'" in str(caught.value)


def test_non_finite_from_the_processor_is_caught_too():
    with pytest.raises(ValueError, match="reward_processor gave inf"):
        call(returning([1.0, 1.0]), processor=RewardProcessors.scale(factor=math.inf))


@pytest.mark.parametrize("bad", ["1.0", {"r": 1}, object()])
def test_not_a_number(bad):
    with pytest.raises(ValueError, match="needs numbers"):
        call(returning([1.0, bad]))


# --- shared or per agent ------------------------------------------------------------------------


def test_per_agent_rewards_are_for_the_actor_critics():
    nested = [[1.0, 2.0], [3.0, None]]  # [n, J]
    assert call(returning(nested), per_agent=True) == ((1.0, 2.0), (3.0, None))


@pytest.mark.parametrize("value", [np.array([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])])
def test_per_agent_arrays(value):
    assert call(returning(value), per_agent=True) == ((1.0, 2.0), (3.0, 4.0))


def test_reinforce_refuses_per_agent_rewards():
    with pytest.raises(ValueError, match="one reward per agent for item 7"):
        call(returning([[1.0, 2.0], [3.0, 4.0]]))


def test_two_numbers_for_two_joint_responses_are_shared():
    # K = 2 and two agents: two numbers are joint rewards, never one per agent
    assert call(returning([1.0, 2.0]), per_agent=True) == ((1.0, 2.0), (1.0, 2.0))


def test_k_3_is_read_the_same_way():
    texts = [["a"] * 3, ["b"] * 3]
    assert call(returning([1.0, 2.0, 3.0]), texts, per_agent=True) == ((1.0, 2.0, 3.0),) * 2
    with pytest.raises(ValueError, match="item 7"):
        call(returning([1.0, 2.0]), texts, per_agent=True)


ONE = [["a"], ["b"]]


def test_one_joint_response_takes_one_number_per_agent():
    assert call(returning([1.0, 2.0]), ONE, per_agent=True) == ((1.0,), (2.0,))
    assert call(returning([[1.0], [2.0]]), ONE, per_agent=True) == ((1.0,), (2.0,))


def test_one_joint_response_takes_one_shared_number():
    assert call(returning([1.0]), ONE, per_agent=True) == ((1.0,), (1.0,))


def test_one_joint_response_with_n_numbers_is_refused_by_reinforce():
    with pytest.raises(ValueError, match="item 7"):
        call(returning([1.0, 2.0]), ONE)


@pytest.mark.parametrize("value", [[[1.0, 2.0]], [[1.0], [2.0, 3.0]], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]])
def test_ragged_or_wrongly_nested(value):
    with pytest.raises(ValueError, match="item 7"):
        call(returning(value), per_agent=True)


# --- processors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processor", "reward", "expected"),
    [
        (RewardProcessors.scale(factor=100), 0.5, 50.0),
        (RewardProcessors.shift(value=-1), 0.5, -0.5),
        (RewardProcessors.clip(low=-1, high=1), 7.0, 1.0),
        (RewardProcessors.clip(low=-1, high=1), -7.0, -1.0),
        (RewardProcessors.clip(high=1), -7.0, -7.0),
        (RewardProcessors.scale(factor=2).shift(value=1), 3.0, 7.0),  # 3 * 2 + 1
        (RewardProcessors.shift(value=1).scale(factor=2), 3.0, 8.0),  # (3 + 1) * 2
        (RewardProcessors.scale(factor=10).clip(low=0, high=5).shift(value=1), 3.0, 6.0),  # min(30, 5) + 1
    ],
)
def test_processors(processor, reward, expected):
    assert processor(reward) == expected


def test_chains_are_not_changed_by_extending_them():
    base = RewardProcessors.scale(factor=2)
    base.shift(value=1)
    assert base(3.0) == 6.0


def test_processor_is_applied_to_every_reward():
    assert call(returning([1.0, -3.0]), processor=lambda r: r / 2) == ((0.5, -1.5),) * 2


def test_clip_with_crossed_bounds():
    with pytest.raises(ValueError, match=r"low \(2\) is greater than high \(1\)"):
        RewardProcessors.clip(low=2, high=1)
