"""The code reward at every edge of every level, worked by hand, and the structure checks behind it."""

from __future__ import annotations

import ast

import pytest

from workbench.tasks.code_pair import CodePair
from workbench.tasks.code_reward import Problem, assess, read_structure
from workbench.tasks.code_structure import (
    MAX_CODE,
    compile_error,
    definition,
    extract_code,
    is_thin_wrapper,
    join,
    parse,
    prelude,
    returns_value,
    throws_away,
)
from workbench.tasks.sandbox import Limits, split_tests

ITEM = {
    "prompt": 'import math\n\ndef square(x):\n    """The square of x."""\n',
    "entry_point": "square",
    "test": "def check(candidate):\n" + "".join(f"    assert candidate({x}) == {x * x}\n" for x in (0, 1, 2, 3)),
}
AUX = "def aux(x):\n    return x * x"
ALONE = "def square(x):\n    return x * x"
TWO_STEPS = "def square(x):\n    y = aux(x)\n    return abs(y)"


def main(body: str) -> str:
    return "def square(x):\n" + "".join(f"    {line}\n" for line in body.split("; "))


# 0.4 aux | 0.6 main, gate | 0.5 compiles, gate | 0..1 tests | 0.5 calls aux | 1.0 more than a wrapper | -0.5 wasted
@pytest.mark.parametrize(
    ("aux", "square", "expected"),
    [
        # level 1: aux
        ("", "", 0.0),
        (AUX, "", 0.4),
        ("def aux(x):\n    print(x)", "", 0.0),  # returns nothing
        ("def aux(x):\n    return", "", 0.0),  # nor here
        (
            "def aux(x):\n    def inner():\n        return 1\n    print(inner)",
            "",
            0.0,
        ),  # an inner return is not its own
        ("if True:\n    def aux(x):\n        return x", "", 0.0),  # not on the top level
        ("class A:\n    def aux(x):\n        return x", "", 0.0),
        ("aux = lambda x: x", "", 0.0),
        ("# def aux(x): return x", "", 0.0),
        ('"""def aux(x):\n    return x"""', "", 0.0),
        ("def auxiliary(x):\n    return x", "", 0.0),
        ("def aux(x):\n    if x:\n        return x", "", 0.4),  # a return further inside is its own
        ("def aux(x):\n    return x\ndef aux(x):\n    pass", "", 0.0),  # the last definition is what counts
        # level 2: main, a gate
        ("", "def square(x):\n    print(x)", 0.0),
        (AUX, "def square(x):\n    print(x)", 0.4),
        (AUX, "def square(x:\n    return x * x", 0.4),  # does not parse
        (AUX, "def cube(x):\n    return x ** 3", 0.4),  # another name
        # level 3: compiles, a gate: 0.6, 0.4 + 0.6
        ("def aux(x:", ALONE, 0.6),
        ("Sure! Here is a helper.", ALONE, 0.6),
        (AUX, f"{ALONE}\nreturn 1", 1.0),  # parses, but a return at the top does not compile
        (f"{AUX}\nnonlocal x", ALONE, 1.0),
        # level 4: tests, 0.6 + 0.5 + fraction, and 0.4 with aux
        ("", ALONE, 2.1),
        (AUX, ALONE, 2.5),
        ("", main("return -1"), 1.1),  # none
        (AUX, main("return -1"), 1.5),
        (AUX, main("return 0"), 1.75),  # 1 of 4
        (AUX, main("return x"), 2.0),  # 2 of 4: 0 and 1
        (AUX, main("return x * x if x < 3 else 0"), 2.25),  # 3 of 4
        (AUX, main("return x * x if x else 1 / 0"), 2.25),  # raises in one
        (AUX, main("return math.prod([x, x])"), 2.5),  # the prompt's import is there
        ("1 / 0\n" + AUX, ALONE, 1.5),  # compiles, but loading it raises
        ("raise SystemExit\n" + AUX, ALONE, 1.5),
        (AUX, main("while True: pass; return 1"), 1.5),
        # level 5: calls aux, with at least one test passed
        (AUX, main("return aux(x)"), 3.0),  # 2.5 + 0.5, a thin wrapper
        (AUX, TWO_STEPS, 4.0),  # 2.5 + 0.5 + 1.0
        (AUX, main("aux(x); return x * x"), 3.5),  # 2.5 + 0.5 + 1.0 - 0.5
        (AUX, main("y = aux(x); return x * x"), 3.5),
        (AUX, main("return aux(x) * 0"), 3.25),  # 0.4 + 0.6 + 0.5 + 1/4 + 0.5 + 1.0
        (AUX, main("return aux(x) * 0 - 1"), 1.5),  # none passed: no bonus
        (AUX, main("aux(x); return -1"), 1.5),  # and no penalty
        ("def aux(x):\n    print(x)", main("aux(x); return x * x"), 3.1),  # 0 + 0.6 + 0.5 + 1 + 0.5 + 1.0 - 0.5
        ("", main("return aux(x)"), 1.1),  # no aux: the call fails
        ("", f"{AUX}\n{TWO_STEPS}", 2.1),  # its own aux is not the partner's
        (AUX, f"{AUX}\n{TWO_STEPS}", 2.5),
        (AUX, f"{TWO_STEPS}\naux = abs", 2.0),  # shadowed: abs solves 0 and 1; 0.4 + 0.6 + 0.5 + 0.5
        (AUX, "def square(aux):\n    return aux * aux", 2.5),  # a parameter of that name is no call
        (AUX, main("return x * x  # aux(x)"), 2.5),
        (AUX, main("aux; return x * x"), 2.5),  # named, not called
        # chat around the code
        (f"Here it is:\n```python\n{AUX}\n```\nHope it helps.", f"```\n{TWO_STEPS}\n```", 4.0),
    ],
)
def test_reward(aux: str, square: str, expected: float) -> None:
    pair = CodePair(limits=Limits(cpu_s=1, wall_s=30))
    assert pair.reward([aux], [square], [ITEM]) == pytest.approx([expected], abs=1e-9)


def test_the_maximum_is_exact() -> None:
    assert CodePair().reward([AUX], [TWO_STEPS], [ITEM]) == [4.0]


def test_one_reward_per_joint_response_in_order() -> None:
    rewards = CodePair().reward([AUX, "", AUX], [TWO_STEPS, "", main("return aux(x)")], [ITEM] * 3)
    assert rewards == pytest.approx([4.0, 0.0, 3.0])


def test_equal_programs_are_judged_once() -> None:
    memory = {}
    problem = Problem("square", split_tests(ITEM["test"], "square"))
    answers = [(AUX, TWO_STEPS), (AUX + "\n", TWO_STEPS), (AUX, ALONE)]  # the first two differ in white space only
    assess(answers, [problem] * 3, Limits(), 2, memory)
    assert len(memory) == 2
    [program] = [program for program in memory if "abs" in program.source]
    memory[program] = memory[program].__class__((True, False, False, False))  # a verdict that no run would give
    [again] = assess(answers[:1], [problem], Limits(), 2, memory)
    assert again.verdict is not None and again.verdict.fraction == 0.25


@pytest.mark.parametrize(
    ("body", "thin"),
    [
        ("return aux(x)", True),
        ("return aux(x + 1, key=2)", True),
        ("'''text'''; return aux(x)", True),
        ("y = aux(x); return y", True),
        ("y: int = aux(x); return y", True),
        ("pass; y = aux(x); return y", True),
        ("return abs(aux(x))", False),
        ("return aux(x) + 1", False),
        ("y = aux(x); return y + 1", False),
        ("y = aux(x); return x", False),
        ("y = z = aux(x); return y", False),
        ("x += 1; return aux(x)", False),
        ("return other(x)", False),
        ("if x: return aux(x); return 1", False),
    ],
)
def test_thin_wrappers(body: str, thin: bool) -> None:
    function = ast.parse(main(body)).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert is_thin_wrapper(function, "aux") is thin


@pytest.mark.parametrize(
    ("body", "wasted"),
    [
        ("aux(x); return x", True),
        ("y = aux(x); return x", True),
        ("_ = aux(x); aux(x); return x", True),
        ("y: int = aux(x); return x", True),
        ("for i in range(x): aux(i); return x", True),
        ("y = aux(x); return y", False),
        ("aux(x); return aux(x)", False),  # one of them is used
        ("if aux(x): return 1; return 2", False),
        ("print(aux(x)); return x", False),
        ("y[0] = aux(x); return x", False),  # may be read elsewhere
        ("return x", False),  # not called
    ],
)
def test_results_thrown_away(body: str, wasted: bool) -> None:
    function = ast.parse(main(body)).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert throws_away(function, "aux") is wasted


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def aux(): return 1", "def aux(): return 1"),
        ("  def aux(): return 1", "def aux(): return 1"),
        ("Well:\n```python\ndef aux(): return 1\n```\nDone.", "def aux(): return 1"),
        ("```py\ndef aux(): return 1", "def aux(): return 1"),  # cut short
        ("```\nx = 1\n```\nand\n```\ndef aux(): return 1\n```", "def aux(): return 1"),  # the block that defines it
        ("```\nx = 1\n```\nand\n```\ny = 1\n```", "x = 1"),  # none does: the first
        ("```bash\npip install x\n```\n```Python\ny = 1\n```", "y = 1"),
        ("def aux(): return 1\n```\nThis works because ...", "def aux(): return 1"),  # only the closing fence
        ("   ```python\n   def aux():\n       return 1\n   ```", "def aux():\n    return 1"),  # in a list
        ("I do not know.", "I do not know."),
        ("", ""),
    ],
)
def test_the_code_in_a_completion(text: str, code: str) -> None:
    assert extract_code(text, "aux") == code


def test_errors_name_their_line() -> None:
    assert parse("x = 1\ny = (")[1] == "syntax error on line 2: '(' was never closed in `y = (`"
    assert compile_error("x = 1\nreturn x") == "syntax error on line 2: 'return' outside function"
    assert compile_error("x = 1") == ""


@pytest.mark.parametrize("code", ["x = '\0'", "(" * 1000, "-" * 10_000 + "1", "a" + ".a" * 9_000, "x" * (MAX_CODE + 1),
                                  "x = " + "9" * 5000, "é = '\ud800'", "[" * 150 + "]" * 150])  # fmt: skip
def test_text_that_strains_the_parser_is_an_error_or_a_tree(code: str) -> None:
    tree, error = parse(code)
    assert (tree is None) == bool(error)
    read_structure(code, code, "square")


def test_no_warning_about_a_candidate_s_style(recwarn: pytest.WarningsRecorder) -> None:
    assert compile_error("x = 1 is 1\ny = '\\d'") == ""
    assert not recwarn.list


def test_what_a_prompt_gives_the_program() -> None:
    prompt = 'import math\nLIMIT = 3\ndef helper(x):\n    return x\n\ndef f(x):\n    """Text."""\n'
    assert prelude(prompt, "f") == "import math\n\nLIMIT = 3\n\ndef helper(x):\n    return x"
    assert prelude("Write a function that adds.", "f") == ""
    assert prelude("Hello", "f") == ""  # parses as Python, gives nothing


def test_future_imports_move_to_the_top() -> None:
    joined = join(["import math", "from __future__ import annotations\ndef aux(x: Later): return x", ALONE])
    assert compile_error(joined) == ""
    assert joined.startswith("from __future__ import annotations\n\nimport math\n")
    assert joined.count("__future__") == 1


def test_async_and_nested_functions_are_not_definitions() -> None:
    tree = ast.parse("async def f():\n    return 1\ndef g():\n    def f():\n        return 1")
    assert definition(tree, "f") is None
    outer = definition(tree, "g")
    assert outer is not None and not returns_value(outer)
