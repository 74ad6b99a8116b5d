"""Finding, sorting, paging and exporting completions; before and after with their words."""

from __future__ import annotations

import io
import itertools
import json
import math
import time
from pathlib import Path

import pandas as pd
import pytest
from real_runs import magrpo_run  # noqa: F401 - a fixture

from workbench.insight import completions
from workbench.insight.completions import Search, export, search
from workbench.insight.texts import TOO_FEW, Segment, before_after, recurring_items, step_of_checkpoint, word_diff
from workbench.tracking import trace
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord

TEXTS = {  # node -> text and reward of agent 0's two completions; agent 1 writes "other"
    0: (("A red boat", 1.0), ("no", 0.0)),
    1: (("the RED mill", None), ("grün ÄPFEL", 3.0)),
    2: (("红色的船", 2.0), ("100%_sure", -1.0)),
}


def node(node_id, texts, turn=1, phase="train", parent=None, item=0, prompt="a prompt"):
    rows = [CompletionRecord(0, k, prompt, text, 3 + k, True, -float(k), reward=reward, advantage=reward)
            for k, (text, reward) in enumerate(texts)]  # fmt: skip
    rows += [CompletionRecord(1, k, "Prompt two", "other", 9, True, -0.5, reward=0.0) for k in range(len(texts))]
    joints = tuple(JointRecord(k, (k, k), 0.0, 0.0) for k in range(len(texts)))
    parent_joint = None if parent is None else 0
    step = 10 * (node_id + 1)
    return NodeRecord(node_id, phase, step, 0, item, turn, parent, parent_joint, False, joints, tuple(rows))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "trace.db"
    TraceWriter(file).nodes([node(0, TEXTS[0]), node(1, TEXTS[1], phase="eval"), node(2, TEXTS[2], turn=2, parent=0)])
    return file


def keys(page: completions.Page) -> list[tuple[int, int, int]]:
    return list(page.rows[["node_id", "agent", "k"]].itertuples(index=False, name=None))


@pytest.mark.parametrize(("filters", "expected"), [
    ({"text": "red"}, [(1, 0, 0), (0, 0, 0)]),
    ({"text": "äpfel"}, [(1, 0, 1)]),
    ({"text": "色"}, [(2, 0, 0)]),
    ({"text": "%_"}, [(2, 0, 1)]),
    ({"text": "' OR 1"}, []),
    ({"text": "prompt TWO", "in_prompt": True, "turn": 2}, [(2, 1, 0), (2, 1, 1)]),
    ({"agent": 0, "phase": "train"}, [(2, 0, 0), (2, 0, 1), (0, 0, 0), (0, 0, 1)]),
    ({"agent": 0, "step_from": 20, "step_to": 20}, [(1, 0, 0), (1, 0, 1)]),
    ({"agent": 0, "min_reward": 1.0}, [(2, 0, 0), (1, 0, 1), (0, 0, 0)]),
    ({"agent": 0, "min_reward": 0.0, "max_reward": 2.0, "descending": False}, [(0, 0, 0), (0, 0, 1), (2, 0, 0)]),
    ({"turn": 3}, []),
])  # fmt: skip
def test_filters(path: Path, filters: dict, expected: list) -> None:
    page = search(path, Search(**filters))
    assert keys(page) == expected
    assert page.more is None
    assert page.scanned == page.total
    assert list(page.rows.columns) == list(completions.COLUMNS)


@pytest.mark.parametrize(("sort", "descending", "expected"), [
    ("reward", True, [(1, 0, 1), (2, 0, 0), (0, 0, 0), (0, 0, 1), (2, 0, 1), (1, 0, 0)]),
    ("reward", False, [(2, 0, 1), (0, 0, 1), (0, 0, 0), (2, 0, 0), (1, 0, 1), (1, 0, 0)]),
    ("advantage", True, [(1, 0, 1), (2, 0, 0), (0, 0, 0), (0, 0, 1), (2, 0, 1), (1, 0, 0)]),
    ("tokens", True, [(2, 0, 1), (1, 0, 1), (0, 0, 1), (2, 0, 0), (1, 0, 0), (0, 0, 0)]),
    ("logprob", False, [(2, 0, 1), (1, 0, 1), (0, 0, 1), (2, 0, 0), (1, 0, 0), (0, 0, 0)]),
    ("step", False, [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1)]),
])  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 4, 6, 50])
def test_pages_in_order_are_the_whole(path: Path, sort: str, descending: bool, expected: list, size: int) -> None:
    wanted = Search(agent=0, sort=sort, descending=descending, size=size)
    page = search(path, wanted)
    pages = [keys(page)]
    while page.more is not None:
        page = search(path, wanted, page.more)
        pages.append(keys(page))
    assert list(itertools.chain(*pages)) == expected
    assert [len(rows) for rows in pages[:-1]] == [size] * (len(pages) - 1)
    assert page.scanned == page.total == 3


def test_pages_do_not_move_while_the_run_goes_on(path: Path) -> None:
    for sort in ("step", "reward"):
        wanted = Search(agent=0, sort=sort, size=2)
        first = search(path, wanted)
        with trace.reading(path) as database:
            (count,) = database.execute("SELECT count(*) FROM nodes").fetchone()
        TraceWriter(path).nodes([node(count, (("new", 99.0), ("new", 99.0)))])
        second = search(path, wanted, first.more)
        assert "new" not in second.rows["text"].tolist()
        assert not set(keys(first)) & set(keys(second))


@pytest.mark.parametrize("sort", ["step", "tokens"])
def test_a_search_without_time_goes_on_where_it_stopped(path: Path, monkeypatch: pytest.MonkeyPatch, sort: str) -> None:
    monkeypatch.setattr(completions, "CHUNK_NODES", 1)
    page = search(path, Search(text="boat", sort=sort), seconds=-1)
    assert (page.rows.empty, page.scanned, page.total) == (True, 1, 3)
    if sort == "step":  # newest first: node 0 is the third
        page = search(
            path, Search(text="boat"), search(path, Search(text="boat"), page.more, seconds=-1).more, seconds=-1
        )
        assert (keys(page), page.scanned, page.more) == ([(0, 0, 0)], 3, None)


def test_unknown_sorts_sizes_and_forms_are_one_sentence(path: Path) -> None:
    with pytest.raises(ValueError, match="sorted by 'text'; use one of step, reward"):
        Search(sort="text")
    with pytest.raises(ValueError, match="size of at least 1, got 0"):
        Search(size=0)
    with pytest.raises(ValueError, match="exported as 'xls'; use one of csv, jsonl"):
        export(path, Search(), "xls")


def test_exports_read_back(path: Path) -> None:
    wanted = Search(agent=0, sort="step", descending=False)
    table = pd.read_csv(io.StringIO(export(path, wanted)))
    assert table["text"].tolist() == [text for texts in TEXTS.values() for text, _ in texts]
    rows = [json.loads(line) for line in export(path, wanted, "jsonl", limit=3).splitlines()]
    assert [row["text"] for row in rows] == ["A red boat", "no", "the RED mill"]
    assert (rows[2]["reward"], rows[0]["reward"], rows[0]["phase"]) == (None, 1.0, "train")
    empty = export(path, Search(text="nowhere"))
    assert empty.splitlines() == [",".join(completions.COLUMNS)]


def test_a_real_run_is_found_whole(magrpo_run) -> None:  # noqa: F811
    expected = trace.read_completions(magrpo_run.trace_file)
    page = search(magrpo_run.trace_file, Search(size=10_000, descending=False))
    pd.testing.assert_frame_equal(page.rows[expected.columns], expected)


@pytest.mark.parametrize("wanted", [
    Search(), Search(text="little zebra"), Search(sort="reward", phase="train"),
    Search(sort="tokens", descending=False),
    Search(text="MILL", agent=1, turn=2, min_reward=0.9, sort="logprob"),
])  # fmt: skip
def test_a_page_of_a_long_trace_is_quick(big_trace: Path, wanted: Search) -> None:
    start = time.process_time()
    page = search(big_trace, wanted)
    assert time.process_time() - start < 2
    assert page.total > 10_000
    assert len(page.rows) == (0 if "zebra" in wanted.text else 50)


def test_the_best_of_a_long_trace_is_the_best(big_trace: Path) -> None:
    page = search(big_trace, Search(sort="reward", size=3), seconds=60)
    assert page.scanned == page.total == 100_000
    rewards = trace.read_completions(big_trace, columns=("reward",))["reward"]
    assert page.rows["reward"].tolist() == rewards.nlargest(3).tolist()


# --- before and after ----------------------------------------------------------------------------


def told(path: Path, *nodes: NodeRecord) -> Path:
    TraceWriter(path).nodes(nodes)
    return path


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """Item 7 four times at steps 10, 20, 40, 50 (50: an evaluation), item 8 once at 30."""
    return told(
        tmp_path / "trace.db",
        node(0, (("a red boat", 0.5), ("x", 0.0)), item=7),
        node(1, (("a blue boat", 0.75), ("y", None)), item=7),
        node(2, (("z", 0.0),), item=8),
        node(3, (("a blue boat sinks", 1.0), ("y", 0.25)), item=7),
        node(4, (("eval", 1.0),), item=7, phase="eval"),
    )


def test_first_and_last_answer_of_one_prompt(story: Path) -> None:
    found = before_after(story, item=7, agent=0)
    assert (found.steps, found.nodes, found.same_prompt, found.prompt) == ((10, 40), (0, 3), True, "a prompt")
    first, second = found.pairs
    assert (first.before, first.after, first.reward_before, first.reward_after) == (
        "a red boat",
        "a blue boat sinks",
        0.5,
        1,
    )
    assert [(s.change, s.text) for s in first.segments] == [
        ("equal", "a "), ("delete", "red"), ("insert", "blue"), ("equal", " boat"), ("insert", " sinks"),
    ]  # fmt: skip
    assert [(s.change, s.text) for s in second.segments] == [("delete", "x"), ("insert", "y")]


def test_the_nearest_steps_are_taken(story: Path) -> None:
    found = before_after(story, 7, agent=0, early=22, late=1000)
    assert found.steps == (20, 40)
    assert math.isnan(found.pairs[1].reward_before)
    assert before_after(story, 7, agent=0, early=20, late=20).steps == (10, 20)  # never a node with itself
    assert before_after(story, 7, agent=1).pairs[0].segments == (Segment("equal", "other"),)


def test_an_item_met_once_is_a_reason(story: Path) -> None:
    assert before_after(story, 8, agent=0).reason == TOO_FEW
    assert before_after(story, 7, agent=0, phase="eval").reason == TOO_FEW
    assert recurring_items(story).to_dict("list") == {
        "item": [7], "visits": [3], "first_step": [10], "last_step": [40],
    }  # fmt: skip


def test_a_later_turn_is_compared_at_the_same_prompt_where_there_is_one(tmp_path: Path) -> None:
    path = told(
        tmp_path / "trace.db",
        node(0, (("a", 0.0),), turn=2, parent=9, prompt="heard A"),
        node(1, (("b", 0.0),), turn=2, parent=9, prompt="heard A"),
        node(2, (("c", 0.0),), turn=2, parent=9, prompt="heard B"),
    )
    assert before_after(path, 0, agent=0, turn=2).nodes == (0, 1)
    other = before_after(path, 0, agent=0, turn=2, early=30)  # nobody else heard B
    assert other.nodes is not None and not other.same_prompt


def test_checkpoints_are_numbered_by_items(tmp_path: Path) -> None:
    path = told(tmp_path / "trace.db", node(0, TEXTS[0], phase="eval"), node(1, TEXTS[0]),
                node(2, TEXTS[0], turn=2, parent=1), node(3, TEXTS[0]))  # fmt: skip
    # items: node 1 and 2 (step 30), node 3 (step 40)
    assert [step_of_checkpoint(path, done) for done in (0, 1, 2, 3)] == [0, 30, 40, 40]


@pytest.mark.parametrize(("before", "after"), [
    ("", ""), ("", "new words"), ("old", ""), ("the cat sat.", "The cat, it sat!\n"), ("红色的船很小", "蓝色的船很大"),
    ("a b " * 900, "b a " * 900), ("x" * 10_000, "y z"),
])  # fmt: skip
def test_a_diff_loses_no_letter(before: str, after: str) -> None:
    segments = word_diff(before, after)
    assert "".join(s.text for s in segments if s.change != "insert") == before
    assert "".join(s.text for s in segments if s.change != "delete") == after


def test_chinese_is_compared_by_character() -> None:
    assert [(s.change, s.text) for s in word_diff("红色的船", "蓝色的船")] == [
        ("delete", "红"), ("insert", "蓝"), ("equal", "色的船"),
    ]  # fmt: skip


def test_before_and_after_of_a_long_trace_is_quick(big_trace: Path) -> None:
    start = time.process_time()
    items = recurring_items(big_trace)
    found = before_after(big_trace, item=int(items["item"].iloc[0]), agent=1)
    assert step_of_checkpoint(big_trace, 10_000) > 0
    assert time.process_time() - start < 2
    assert len(found.pairs) == 4
