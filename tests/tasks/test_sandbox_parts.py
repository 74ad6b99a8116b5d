"""The sandbox's parts without processes: what data may cross, and how a test text is split."""

from __future__ import annotations

import collections
import enum
import math
from typing import Any

import pytest

from workbench.tasks.sandbox import Case, first_called, split_tests
from workbench.tasks.sandbox.codec import MAX_DEPTH, decode, encode
from workbench.tasks.sandbox.confine import refused_calls


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 1, -1, 255, -(10**40), 2**10000, 0.0, -0.5, 0.1, math.inf, -math.inf, 1e-320, 1 + 2j,
        "", "text", "é\n\0 \ud800 😀", b"", b"\x00;\xff", [], (), set(), frozenset(), {}, [[]], (1, (2,)), {1, "a"},
        {"a": [1, 2.5, None], (1, 2): {3: frozenset({4})}}, [0] * 1000,
    ],
)  # fmt: skip
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


def test_what_equality_does_not_show() -> None:
    assert math.isnan(decode(encode(math.nan)))
    assert math.copysign(1, decode(encode(-0.0))) == -1
    assert [type(part) for part in decode(encode([True, 1, 1.0]))] == [bool, int, float]
    assert list(decode(encode({"b": 1, "a": 2}))) == ["b", "a"]


class Colour(enum.IntEnum):
    RED = 3


def test_subclasses_arrive_as_plain_data() -> None:
    point = collections.namedtuple("point", "x y")(1, 2)
    sent = [Colour.RED, point, collections.Counter("aab"), collections.OrderedDict(a=1), bytearray(b"x")]
    assert [(type(part), part) for part in decode(encode(sent))] == [
        (int, 3), (tuple, (1, 2)), (dict, {"a": 2, "b": 1}), (dict, {"a": 1}), (bytes, b"x"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [object(), print, int, range(3), (x for x in "a"), [1, {"a": len}]])
def test_other_data_is_refused_by_type(value: Any) -> None:
    with pytest.raises(TypeError, match="a value of type"):
        encode(value)


def test_deep_data_is_refused() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert decode(encode(value)) == value
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        encode([[value]])
    with pytest.raises(ValueError, match="nested too deep"):
        decode(b"l1;" * 5000 + b"n")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", b"i", b"i;", b"izz;", b"nn", b"s5;abc", b"s-1;", b"l3;nn", b"l999999999999;", b"m1;n", b"dzz;",
        b"d0x1p99999;", b"s1;\xff", b"e1;l0;", b"m1;l0;n", b"l1;", b"i\xff;",
    ],
)  # fmt: skip
def test_malformed_bytes_are_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="malformed data"):
        decode(data)


def test_every_cut_of_a_message_is_malformed() -> None:
    data = encode({"a": [1, 2.5, (None, "é", b"z")], "b": {3, 4}})
    for length in range(len(data)):
        with pytest.raises(ValueError, match="malformed data"):
            decode(data[:length])


def split(test: str | list[str]) -> list[tuple[str, str, str, str]]:
    return [(case.setup, case.left, case.right, case.text) for case in split_tests(test, "f")]


def test_assertions_of_check_count_one_each() -> None:
    test = "META = {}\ndef check(candidate):\n    assert candidate(1) == 2, 'why'\n    assert not candidate(2)\n"
    assert split(test) == [
        ("META = {}", "candidate(1)", "2", "assert candidate(1) == 2"),
        ("", "assert not candidate(2)", "", "assert not candidate(2)"),
    ]


def test_which_side_the_program_computed() -> None:
    cases = split_tests(
        "assert candidate(1) == 2\nassert 2 == f(1)\nassert len(f(1)) == 2\nx = f(1)\nassert x == 2", "f"
    )
    assert [case.left_is_got for case in cases] == [True, False, True, True]


def test_statements_between_belong_to_the_next_test() -> None:
    test = (
        "def check(candidate):\n    import math\n    x = candidate(1)\n    assert x == 1\n    y = 2\n    assert x < y\n"
    )
    assert split(test) == [
        ("import math\nx = candidate(1)", "x", "1", "assert x == 1"),
        ("y = 2", "assert x < y", "", "assert x < y"),
    ]


def test_a_loop_is_one_test() -> None:
    loop = "for i in range(3):\n    assert candidate(i) == i\n    assert candidate(-i) == i"
    assert split(f"assert candidate(9) == 9\n{loop}") == [
        ("", "candidate(9)", "9", "assert candidate(9) == 9"),
        ("", loop, "", loop),
    ]


def test_what_every_program_passes_is_no_test() -> None:
    test = "assert True, 'good for debugging'\nassert f(1) == candidate(1)\nassert [f(2)] == [f(3)]\nassert 1"
    assert [text for *_, text in split(test)] == ["assert [f(2)] == [f(3)]"]
    assert split("assert True") == []


def test_a_helper_that_asserts_is_called_not_counted() -> None:
    helper = "def near(a, b):\n    assert abs(a - b) < 1"
    assert split(f"{helper}\nnear(f(1), 1)\nfor i in (2, 3):\n    near(f(i), i)") == [
        (helper, "near(f(1), 1)", "", "near(f(1), 1)"),
        ("", "for i in (2, 3):\n    near(f(i), i)", "", "for i in (2, 3):\n    near(f(i), i)"),
    ]


def test_a_check_that_returns_stays_whole() -> None:
    test = "def check(candidate):\n    if candidate(1):\n        return\n    assert candidate(2) == 1"
    assert split_tests(test, "f") == (Case(text="check(f)", left="check(candidate)", setup=test),)


def test_a_list_of_assertions_and_another_parameter_name() -> None:
    assert [left for _, left, *_ in split(["assert f(1) == 1", "assert f(2) == 2"])] == ["f(1)", "f(2)"]
    assert split("def check(g):\n    assert g(1) == 1")[0][:3] == ("g = candidate", "g(1)", "1")


def test_the_function_that_assertions_are_about() -> None:
    assert first_called(["assert sorted(set(pairs((1, 2)))) == []"]) == "pairs"
    assert first_called("import math\nassert math.isclose(area(1), 2)") == "area"
    assert first_called("x = 1\nassert x == 1") is None


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_filter_reaches_its_end(machine: str) -> None:
    """Jumps of a filter are one byte long, so the list may not grow for ever; no call is listed twice."""
    numbers = refused_calls(machine)
    assert len(numbers) == len(set(numbers)) < 250
