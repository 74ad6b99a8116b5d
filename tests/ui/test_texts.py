"""The table of texts: every text the code asks for exists, in both languages, with the same places; none is left over.

Keys are read out of the syntax trees of workbench/ui: t("key"), say("key") and has("key"), and the same with an
f-string. Any plain string that is a key counts as used, since some keys stand in a registry first.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest
import yaml

from workbench.ui import text
from workbench.ui.text import FOLDER, LANGUAGES, table

UI = Path(text.__file__).parent
ASKING = ("t", "say", "has")
"""Names of the functions whose first argument is a key."""
DYNAMIC = (
    "adv.axis_", "adv.axis_whatif_", "adv.column_", "adv.flip_", "adv.mode_", "adv.number_", "adv.phase_",
    "adv.signal_", "adv.whatif_", "algorithm.", "choice.", "completions.ba_end_", "completions.ba_side_",
    "completions.ba_title_",
    "completions.column_", "completions.download_", "completions.help_", "completions.order_", "completions.phase_",
    "completions.view_", "curves.axis_", "curves.by_", "device.automatic.", "field.", "health.number_",
    "health.rule_", "health.severity_", "health.todo_",
    "help.", "lab.", "lab.lesson_", "lab.preset_", "lab.says_", "lab.unit_", "launch.group.", "launch.machine.",
    "launch.memory.", "memory.", "model.", "page.", "phase.", "play.source_", "play.stage_", "preset.", "run.stop_",
    "runs.", "state.", "tab.", "task.", "td.", "td.column_", "td.help_", "td.title_", "why.line_", "why.mark_",
    "why.push_", "why.remark_",
)  # fmt: skip
"""Beginnings of keys whose ending the code puts in. A text under them counts as used when the code names its ending."""
ENDINGS = ("", "_help", ".about", ".note")
"""What the code may write behind the name it puts in."""
FREE = ("why.phrase.", "why.line_baseline_")
"""Texts that are found by their beginning alone, or whose ending is put together from several names."""
CHINESE_ONLY = re.compile(r"help\..+|task\..+\.about")
"""The English of these is the config field's or the task's own description."""
PLOTLY = re.compile(r"%\{[^}]*\}")
MAY_BE_EMPTY = ("td.axis_place",)


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted(UI.rglob("*.py")):
        yield file, ast.parse(file.read_text(encoding="utf-8"))


def questions() -> Iterator[tuple[str, ast.Call]]:
    """Every call that asks for a text, with where it stands."""
    for file, tree in trees():
        for part in ast.walk(tree):
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in ASKING and part.args:
                yield f"{file.relative_to(UI)}:{part.lineno}", part


def plain(argument: ast.expr) -> list[str]:
    """The keys an argument names as they are: one, or either of `a if ... else b`."""
    if isinstance(argument, ast.IfExp):
        return plain(argument.body) + plain(argument.orelse)
    return [argument.value] if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else []


def beginning(argument: ast.expr) -> str | None:
    """What an f-string begins with; None for anything else."""
    if not isinstance(argument, ast.JoinedStr):
        return None
    first = argument.values[0]
    return first.value if isinstance(first, ast.Constant) else ""


@functools.cache
def names() -> frozenset[str]:
    """Every string in the package and every declared field: what an ending of a key can be."""
    found = set()
    for file in UI.parent.rglob("*.py"):
        for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                found.add(part.value)
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                found.add(part.target.id)
    return frozenset(found)


def is_used(key: str) -> bool:
    endings = [key[len(start) :] for start in DYNAMIC if key.startswith(start)]
    bare = {end.removesuffix(more) for end in endings for more in ENDINGS}
    spoken = {end.replace("_", " ") for end in bare}
    return key in names() or key.startswith(FREE) or bool((bare | spoken) & names())


def places(words: str) -> set[str]:
    """The names that t() fills in; %{...} is filled in by a chart."""
    return {name for _, name, _, _ in Formatter().parse(PLOTLY.sub("", words)) if name is not None}


def test_every_text_that_is_asked_for_exists():
    asked = [(where, key) for where, call in questions() for key in plain(call.args[0]) if call.func.id != "has"]
    assert len(asked) > 100, "the search itself is broken"
    assert [(where, key) for where, key in asked if key not in table()] == []


def test_every_place_of_a_text_is_filled():
    wrong = []
    for where, call in questions():
        given = {word.arg for word in call.keywords}
        if None in given or call.func.id == "has":  # **values: not to be known here
            continue
        for key in plain(call.args[0]):
            wanted = set().union(*(places(words) for words in table().get(key, {}).values()))
            if wanted != given:
                wrong.append((where, key, wanted ^ given))
    assert wrong == []


def test_dynamic_keys_are_listed_and_exist():
    begun = {(where, beginning(call.args[0])) for where, call in questions()}
    found = {(where, start) for where, start in begun if start is not None}
    assert [place for place in sorted(found) if place[1] not in DYNAMIC] == [], "add its beginning to DYNAMIC"
    assert [start for start in DYNAMIC if start not in names()] == [], "no code builds such a key any more"
    assert [start for start in DYNAMIC if not any(key.startswith(start) for key in table())] == []


def test_no_text_is_left_over():
    assert [key for key in table() if not is_used(key)] == []
    assert not is_used("health.rule_of_a_rule_that_is_gone")
    assert not is_used("runs.title_nobody_asks_for")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.name)
def test_both_languages_say_the_same(file):
    keys = yaml.safe_load(file.read_text(encoding="utf-8"))
    for key, words in keys.items():
        wanted = {"zh"} if CHINESE_ONLY.fullmatch(key) else set(LANGUAGES)
        assert set(words) == wanted, key
        assert key in MAY_BE_EMPTY or all(word.strip() for word in words.values()), key
        assert len({frozenset(places(word)) for word in words.values()}) == 1, key


def test_words_of_others_are_never_markdown():
    from workbench.ui.text import plain

    hostile = "![x](http://a.b/c.png) [click](http://a.b) $x$ `y` <b>z</b> *w*"
    for opening in "[$`<*":
        assert f"\\{opening}" in plain(hostile)
    assert "![" not in plain(hostile)


TERMS = {
    "词元": re.compile(r"(?<![a-z_{])[Tt]okens?(?![a-z_}])"),
    "轮": re.compile(r"(第|本|下一|每个?|最后一个) ?(\{turn\} |\d )?回合(?!的轮数)"),
}
"""The Chinese for token and turn, and what stands for them by mistake: an episode, not a turn, is a 回合."""


@pytest.mark.parametrize("term", TERMS)
def test_a_thing_has_one_name_in_chinese(term: str) -> None:
    assert {key: texts["zh"] for key, texts in table().items() if TERMS[term].search(texts.get("zh", ""))} == {}


BROKEN_BOLD = re.compile(r"[。：，；！？）」”]\*\*(?=[^\s\W])")


def test_bold_ends_where_markdown_sees_its_end() -> None:
    """Stars between a punctuation mark and a letter do not close: they would be shown as stars."""
    found = {key for key, texts in table().items() for said in texts.values() if BROKEN_BOLD.search(said)}
    assert found == set()
