"""What a text of Python says about itself without being run: definitions, returns, calls, wrappers.

All checks read the syntax tree, so spelling, comments and strings cannot fool them. They do not follow data or
control flow: a call inside `if False` is a call.
"""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

MAX_CODE = 20_000  # characters; longer texts are not parsed, which bounds the parser's time and stack
FENCE = "```"
PYTHON_TAGS = ("", "python", "py", "python3")
# What the parser and compiler raise for text that is no program: null bytes, too deep nesting, too large numbers.
COMPILE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, eq=False)
class Part:
    """One agent's code: the text, its tree (None when it does not parse), and the error in one sentence."""

    code: str
    tree: ast.Module | None
    error: str = ""


@lru_cache(maxsize=4096)
def read_part(text: str, name: str) -> Part:
    """The code in a completion that should define `name`, parsed; see `extract_code`."""
    code = extract_code(text, name)
    tree, error = parse(code)
    return Part(code, tree, error)


def extract_code(text: str, name: str) -> str:
    """The Python in a completion: the first Markdown block that defines `name`, else the first block, else all of it.

    A block left open (a completion cut short) reaches to the end; a lone closing fence ends the code before it;
    blocks in other languages are not code.
    """
    lines = text.splitlines()
    fences = [index for index, line in enumerate(lines) if line.strip().startswith(FENCE)]
    if not fences:
        return textwrap.dedent(text)
    blocks = []
    for first, last in zip(fences[::2], [*fences[1::2], len(lines)]):
        if lines[first].strip().removeprefix(FENCE).strip().lower() in PYTHON_TAGS:
            blocks.append(textwrap.dedent("\n".join(lines[first + 1 : last])))
    before = "\n".join(lines[: fences[0]])
    for code in (*blocks, before):
        tree, _ = parse(code)
        if tree is not None and definition(tree, name):
            return code
    return next((code for code in blocks if code.strip()), before)


def parse(code: str) -> tuple[ast.Module | None, str]:
    """The tree, or None and what is wrong, with the line."""
    try:
        return _compiled(code, ast.PyCF_ONLY_AST), ""
    except COMPILE_ERRORS as error:
        return None, describe(error)


def compile_error(code: str) -> str:
    """What the compiler has against a program, "" for nothing; finds more than `parse`, such as a return at the top."""
    try:
        _compiled(code, 0)
    except COMPILE_ERRORS as error:
        return describe(error)
    return ""


def _compiled(code: str, flags: int):  # type: ignore[no-untyped-def]  # a tree or code, as the flags say
    if len(code) > MAX_CODE:
        raise ValueError(f"the code has more than {MAX_CODE} characters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the candidate's style, not ours
        return compile(code, "<program>", "exec", flags=flags, dont_inherit=True)


def describe(error: BaseException) -> str:
    """An error of the compiler in one sentence, with line and text where known."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        line = (error.text or "").strip()
        return f"syntax error on line {error.lineno}: {error.msg}" + (f" in `{line}`" if line else "")
    return f"the code cannot be compiled: {error or type(error).__name__}"


def definition(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The last function `name` on the top level, the one that a program ends up with; None without one."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def returns_value(function: ast.FunctionDef) -> bool:
    """True if a `return` with an expression belongs to this function itself, not to one inside it."""
    return any(isinstance(node, ast.Return) and node.value is not None for node in _own_nodes(function))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, SCOPES):
            yield child
            yield from _own_nodes(child)


def binds(node: ast.AST, name: str) -> bool:
    """True if `name` gets a meaning of its own anywhere in this tree: defined, assigned, imported or a parameter."""
    for part in ast.walk(node):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and part.name == name:
            return True
        if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store):
            return True
        if isinstance(part, ast.arg) and part.arg == name:
            return True
        if isinstance(part, ast.alias) and (part.asname or part.name.split(".")[0]) == name:
            return True
    return False


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    """All calls of the plain name in this tree."""
    return [part for part in ast.walk(node) if is_call(part, name) and isinstance(part, ast.Call)]


def is_call(node: ast.AST | None, name: str) -> bool:
    """True for `name(...)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def is_thin_wrapper(function: ast.FunctionDef, name: str) -> bool:
    """True if the body is only `return name(...)`, also by way of one variable; docstring and `pass` aside."""
    body = [node for node in function.body if not _does_nothing(node)]
    if len(body) == 1 and isinstance(body[0], ast.Return):
        return is_call(body[0].value, name)
    if len(body) != 2 or not isinstance(body[1], ast.Return) or not isinstance(body[1].value, ast.Name):
        return False
    return is_call(getattr(body[0], "value", None), name) and _assigned_names(body[0]) == [body[1].value.id]


def throws_away(function: ast.FunctionDef, name: str) -> bool:
    """True if `name` is called and no result is used: bare statements, or variables that are never read."""
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    wasted = 0
    for node in ast.walk(function):
        if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign)) and is_call(node.value, name):
            targets = _assigned_names(node)
            wasted += targets is not None and not read.intersection(targets)
    found = len(calls(function, name))
    return found > 0 and wasted == found


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _assigned_names(node: ast.stmt) -> list[str] | None:
    """Names that a statement stores its value in: [] for a bare expression, None where it goes elsewhere, too."""
    if isinstance(node, ast.Expr):
        return []
    targets: Sequence[ast.expr] = node.targets if isinstance(node, ast.Assign) else ()
    if isinstance(node, ast.AnnAssign):
        targets = (node.target,)
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return names if names and len(names) == len(targets) else None


def prelude(prompt: str, entry_point: str) -> str:
    """What a prompt in Python gives the program: imports, constants, helpers; not the function to be written.

    "" for a prompt in English.
    """
    tree, _ = parse(prompt)
    if tree is None:
        return ""
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    given = [node for node in tree.body if isinstance(node, kept) and getattr(node, "name", None) != entry_point]
    return "\n\n".join(map(ast.unparse, given))


def join(parts: Sequence[str]) -> str:
    """One program out of several; `from __future__` imports move to the top, where alone they are allowed."""
    futures: list[str] = []
    kept = []
    for part in parts:
        tree, _ = parse(part)
        lines = part.splitlines()
        for node in tree.body if tree else ():
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                futures.append(ast.unparse(node))
                lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
        kept.append("\n".join(lines))
    return "\n\n".join([*dict.fromkeys(futures), *filter(str.strip, kept)]) + "\n"
