"""Test code in Python, split into the single tests that a score can count.

A test text is what HumanEval and MBPP ship: a function `check(candidate)`, or bare assertions that call the entry
function. Assertions on the top level count one each, as do calls of a helper function that asserts; a loop or
another block that holds any counts as one; what asserts nothing (imports, assignments) becomes the setup of the test
after it. Left out, because every program passes them: assertions of a constant (`assert True`) and assertions that
compare the function with itself.
A body that cannot be split (it returns, or declares names global) stays one test. Nothing is run here.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import dataclass

CANDIDATE = "candidate"


@dataclass(frozen=True)
class Case:
    """One test: statements to run before it, then either one statement (right is "") or left == right."""

    text: str  # as shown to people
    left: str
    right: str = ""
    setup: str = ""
    left_is_got: bool = True  # False: the right side is what the program computed


def split_tests(test: str | Sequence[str], entry_point: str) -> tuple[Case, ...]:
    """The cases of a test text, or of a list of assertions; SyntaxError when it is not Python."""
    body = ast.parse(test if isinstance(test, str) else "\n".join(test)).body
    check = _last_check(body)
    if check is None:
        return _cases(body, entry_point)
    module = [statement for statement in body if statement is not check]
    inner = list(check.body)
    if any(isinstance(node, (ast.Return, ast.Global, ast.Nonlocal)) for part in inner for node in ast.walk(part)):
        whole = ast.unparse(ast.Module([*body], type_ignores=[]))
        return (Case(text=f"check({entry_point})", left=f"check({CANDIDATE})", setup=whole),)
    parameter = check.args.args[0].arg if check.args.args else CANDIDATE
    renamed = [] if parameter == CANDIDATE else [ast.parse(f"{parameter} = {CANDIDATE}").body[0]]
    return _cases([*module, *renamed, *inner], entry_point)


def first_called(test: str | Sequence[str]) -> str | None:
    """The function that bare assertions are about: the first called name that is no builtin, None if there is none."""
    for statement in ast.parse(test if isinstance(test, str) else "\n".join(test)).body:
        if isinstance(statement, ast.Assert):
            for node in ast.walk(statement):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and not hasattr(builtins, node.func.id)
                ):
                    return node.func.id
    return None


def _last_check(body: Sequence[ast.stmt]) -> ast.FunctionDef | None:
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    return found[-1] if found else None


def _cases(body: Sequence[ast.stmt], entry_point: str) -> tuple[Case, ...]:
    cases: list[Case] = []
    setup: list[str] = []
    helpers = {part.name for part in body if isinstance(part, ast.FunctionDef) and _asserts(part, set())}
    for statement in body:
        source = ast.unparse(statement)
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) or not _asserts(statement, helpers):
            setup.append(source)
        elif not _is_void(statement, entry_point):
            cases.append(_case(statement, source, "\n".join(setup), entry_point))
            setup = []
    return tuple(cases)


def _asserts(statement: ast.stmt, helpers: set[str]) -> bool:
    """True if it holds an assertion, or calls one of the helpers that do."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and getattr(node.func, "id", "") in helpers):
            return True
    return False


def _case(statement: ast.stmt, source: str, setup: str, entry_point: str) -> Case:
    if isinstance(statement, ast.Assert):
        source = ast.unparse(ast.Assert(test=statement.test))  # without the message
        sides = _equality(statement.test)
        if sides is not None:
            left, right = map(ast.unparse, sides)
            in_left = _mentions(sides[0], entry_point)
            return Case(source, left, right, setup, left_is_got=in_left or not _mentions(sides[1], entry_point))
    return Case(text=source, left=source, setup=setup)


def _equality(test: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        return test.left, test.comparators[0]
    return None


def _mentions(node: ast.AST, entry_point: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id in (CANDIDATE, entry_point) for part in ast.walk(node))


class _EntryAsCandidate(ast.NodeTransformer):
    def __init__(self, entry_point: str) -> None:
        self.entry_point = entry_point

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(CANDIDATE if node.id == self.entry_point else node.id, node.ctx)


def _is_void(statement: ast.stmt, entry_point: str) -> bool:
    """True for an assertion that holds whatever the program does."""
    if not isinstance(statement, ast.Assert):
        return False
    sides = _equality(statement.test)
    if sides is None:
        return isinstance(statement.test, ast.Constant)
    rename = _EntryAsCandidate(entry_point)
    left, right = (ast.dump(rename.visit(ast.parse(ast.unparse(side), mode="eval"))) for side in sides)
    return left == right
