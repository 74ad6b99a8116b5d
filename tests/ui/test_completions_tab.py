"""The Completions tab: what a search shows is what the trace holds, texts stay texts, and before and after is right.

The written run has 30 nodes of 2 agents with 2 completions each, so 120 completions on pages of 25; node n is at step
10 * (n + 1) and on item n % 2.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from written_runs import TICK, node, written_run

from workbench.insight.completions import Search
from workbench.runs.workspace import RunFolder
from workbench.tracking.trace import read_completions
from workbench.ui.run_tabs.before_after import _csv, before_after
from workbench.ui.run_tabs.completion_files import _file
from workbench.ui.text import LANGUAGES

NASTY = "  <b>bold</b> & <script>alert(1)</script> ![x](http://no.such.host/x.png)\n\n\tend \n"
NODES = 30


def write(number: int, agent: int, k: int) -> dict[str, Any]:
    if (number, agent, k) == (4, 0, 1):
        return {"text": NASTY, "reward": 9.0, "prompt": "\n Say <i>it</i>:\n"}
    return {"text": ""} if (number, agent, k) == (6, 1, 0) else {}


@pytest.fixture
def run(shown) -> RunFolder:
    return written_run(shown, [node(i, write) for i in range(NODES)])


@pytest.fixture
def opened(run, open_page):
    def opened_with(**address: object) -> AppTest:
        return open_page("run", run=run.id, tab="completions", **address)

    return opened_with


def rows(at: AppTest) -> list[tuple[int, int, int]]:
    """(step, agent, k) of each row of the table."""
    assert not at.exception
    return list(at.dataframe[0].value[["step", "agent", "k"]].itertuples(index=False, name=None))


def says(at: AppTest) -> str:
    return "\n".join(str(e.value) for kind in (at.caption, at.info, at.warning, at.error) for e in kind)


def codes(at: AppTest) -> list[str]:
    return [element.value for element in at.code]


def html(at: AppTest) -> list[str]:
    return [element.proto.body for element in at.get("html")]


def address(at: AppTest, *names: str) -> list[str]:
    """What the address bar says; AppTest keeps what the test set as lists, what the app set as strings."""
    values = [at.query_params[name] for name in names]
    return [value[0] if isinstance(value, list) else value for value in values]


def test_the_newest_come_first_and_pages_go_on(opened):
    at = opened()
    first = rows(at)
    assert len(first) == 25
    assert first[0] == (NODES * TICK, 0, 0)
    assert "showing completions 1–25" in says(at)
    assert at.button("completions-back").disabled
    at.button("completions-next").click().run()
    second = rows(at)
    assert "showing completions 26–50" in says(at)
    assert not set(first) & set(second)
    for _ in range(3):
        at.button("completions-next").click().run()
    assert "showing 101–120 of 120 completions" in says(at), "4 completions of 30 nodes"
    assert at.button("completions-next").disabled
    at.button("completions-back").click().run()
    assert "showing completions 76–100" in says(at)


def test_a_search_starts_at_its_first_page(opened):
    at = opened()
    at.button("completions-next").click().run()
    at.text_input("completions-text").set_value("TEXT 12 0").run()  # "text 12 0 0" and "text 12 0 1"
    assert rows(at) == [(130, 0, 0), (130, 0, 1)]
    assert "showing 1–2 of 2 completions" in says(at)


def test_filters_agree_with_the_trace(opened):
    at = opened()
    at.selectbox("completions-agent").set_value(1)
    at.number_input("completions-from").set_value(250)
    at.number_input("completions-to").set_value(270)
    at.number_input("completions-reward").set_value(0.5)  # rewards are 0 for k = 0 and 1 for k = 1
    at.run()
    assert rows(at) == [(270, 1, 1), (260, 1, 1), (250, 1, 1)]
    at.selectbox("completions-order").set_value("up").run()
    assert rows(at) == [(250, 1, 1), (260, 1, 1), (270, 1, 1)]
    at.selectbox("completions-phase").set_value("eval").run()
    assert not at.dataframe
    assert "No completion" in says(at)


def test_the_largest_reward_comes_first(opened):
    at = opened()
    at.selectbox("completions-sort").set_value("reward").run()
    assert rows(at)[0] == (50, 0, 1), "the only 9.0, of node 4"


def test_a_prompt_can_be_searched(opened):
    at = opened()
    at.toggle("completions-in-prompt").set_value(True)
    at.text_input("completions-text").set_value("<i>it</i>").run()
    assert rows(at) == [(50, 0, 1)]


def test_a_text_is_shown_to_the_last_blank_and_never_as_markup(opened):
    at = opened()
    at.text_input("completions-text").set_value("<SCRIPT>").run()
    assert rows(at) == [(50, 0, 1)]
    # The element takes one line end off each side; what remains is the text itself.
    assert codes(at) == ["\n Say <i>it</i>:\n", NASTY]
    others = [str(e.value) for kind in (at.markdown, at.caption, at.subheader, at.info) for e in kind]
    assert not any("<b>" in words or "![x]" in words for words in others)
    assert html(at) == []
    at.toggle("completions-marks").set_value(True).run()
    assert codes(at)[1].endswith("↵\n→\tend·↵\n")


def test_an_empty_completion_is_said_to_be_empty(opened):
    at = opened(node=6, agent=1, k=0)
    at.selectbox("completions-agent").set_value(1)
    at.number_input("completions-from").set_value(70)
    at.number_input("completions-to").set_value(70).run()
    assert at.dataframe[0].value["text"].tolist() == ["(blank)", "text 6 1 1"]
    assert "no characters at all" in says(at)


def test_the_address_names_the_completion_that_is_read(opened):
    at = opened(node=NODES - 2, agent=1, k=1)
    assert codes(at)[1] == f"text {NODES - 2} 1 1"
    at.selectbox("completions-row").set_value(2).run()  # rows: agents and k of the newest node, then the next
    assert address(at, "node", "agent", "k") == [str(NODES - 1), "1", "0"]
    assert codes(at)[1] == f"text {NODES - 1} 1 0"


def test_its_node_opens_in_the_advantages_tab(opened):
    at = opened(node=5, step=60, joint=1)
    at.text_input("completions-text").set_value("text 12 1 1").run()
    at.session_state["episodes-run"] = "another run"
    at.button("completions-node").click().run()
    assert not at.exception
    assert address(at, "tab", "node", "agent", "k") == ["advantages", "12", "1", "1"]
    assert "joint" not in at.query_params
    assert at.session_state["run-tab"] == "advantages"


def test_files_hold_everything_that_is_found(run):
    wanted = Search(text="text 12", agent=1)
    table = pd.read_csv(io.BytesIO(_file(run, wanted, "csv")))
    assert table[["node_id", "agent", "k", "text"]].values.tolist() == [
        [12, 1, 0, "text 12 1 0"],
        [12, 1, 1, "text 12 1 1"],
    ]
    lines = _file(run, Search(text="<script>"), "jsonl").decode().splitlines()
    assert [json.loads(line)["text"] for line in lines] == [NASTY]


# --- before and after ----------------------------------------------------------------------------


def changed(number: int, agent: int, k: int) -> dict[str, Any]:
    """Item 0 is met by the even nodes 0, 2, 4, ...; agent 0 says more each time."""
    return {"text": f"a <b> b v{number}\n c", "prompt": "the same"} if agent == 0 else {}


@pytest.fixture
def compared(shown, open_page):
    run = written_run(shown, [node(i, changed) for i in range(10)])
    for items in (2, 6):
        folder = run.checkpoint_folder / f"step-{items}"
        folder.mkdir()
        (folder / "state.pt").touch()
    at = open_page("run", run=run.id, tab="completions")
    at.segmented_control("completions-view").set_value("before_after").run()
    assert not at.exception
    return run, at


def test_first_and_last_stand_side_by_side(compared):
    _, at = compared
    before, after = html(at)
    assert "a &lt;b&gt; b <del" in before and ">v0</del>&#10; c</div>" in before
    assert ">v8</ins>&#10; c</div>" in after
    assert "<b>" not in before + after
    titles = "\n".join(element.value for element in at.markdown)
    assert "Before: step 10" in titles and "After: step 90" in titles


def test_checkpoints_and_steps_move_both_sides(compared):
    run, at = compared
    # After 6 items the newest node is number 5 at step 60; item 0's nodes 4 and 6 are at 50 and 70: equally near.
    at.selectbox(f"ba-late-{run.id}").set_value(6).run()
    assert ">v4</ins>" in html(at)[1]
    at.selectbox(f"ba-early-{run.id}").set_value("step").run()
    at.number_input("ba-early-step").set_value(31).run()
    assert ">v2</del>" in html(at)[0]


def test_both_ends_lead_to_their_nodes_and_agents_can_be_chosen(compared):
    _, at = compared
    at.selectbox("ba-agent").set_value(1).run()
    assert ">0 </" not in html(at)[0] and "text" in html(at)[0]
    at.button("ba-node-1").click().run()
    assert not at.exception
    assert address(at, "tab", "node") == ["advantages", "8"]


def test_the_pairs_can_be_taken_along(compared):
    run, _ = compared
    table = pd.read_csv(io.BytesIO(_csv(before_after(run, 0, 0))))
    assert table[["k", "before", "after"]].values.tolist() == [[k, "a <b> b v0\n c", "a <b> b v8\n c"] for k in (0, 1)]


def test_other_prompts_are_not_called_the_same(shown, open_page):
    other = [node(i, lambda n, a, k: {"prompt": f"after {n}"}) for i in range(4)]
    at = open_page("run", run=written_run(shown, other).id, tab="completions")
    at.segmented_control("completions-view").set_value("before_after").run()
    assert "two prompts differ" in says(at)


def test_items_met_once_are_said_to_be(shown, open_page):
    at = open_page("run", run=written_run(shown, [node(0, write)]).id, tab="completions")
    at.segmented_control("completions-view").set_value("before_after").run()
    assert not at.exception
    assert "met twice" in says(at)


# --- whatever the run ----------------------------------------------------------------------------


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_real_run_can_be_searched_in_both_languages(runs, open_page, lang):
    run = runs["magrpo"]
    at = open_page("run", run=run.id, tab="completions", lang=lang)
    assert not at.exception and not at.error
    newest = int(read_completions(run.trace_file)["node_id"].max())
    stored = read_completions(run.trace_file, node_ids=[newest]).iloc[0]
    assert codes(at) == ([stored["prompt"], stored["text"]] if stored["text"] else [stored["prompt"]])


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_real_run_can_be_compared_in_both_languages(runs, lang):
    at = AppTest.from_string("from workbench.ui.pages.run import page\npage()", default_timeout=120)
    at.query_params.update({"run": runs["magrpo"].id, "tab": "completions", "lang": lang})
    at.session_state["completions-view"] = "before_after"  # AppTest cannot choose an option that is not in English
    at.run()
    assert not at.exception and not at.error
    assert len(html(at)) == 2


@pytest.mark.parametrize("content", [None, "no nodes", b"this is no database" * 100])
def test_without_a_readable_trace_there_is_one_sentence(shown, open_page, content):
    run = written_run(shown)
    if content != "no nodes":
        run.trace_file.unlink()
    if isinstance(content, bytes):
        run.trace_file.write_bytes(content)
    at = open_page("run", run=run.id, tab="completions")
    assert not at.exception
    assert (len(at.error), len(at.info)) == ((1, 0) if isinstance(content, bytes) else (0, 1))


def test_an_empty_workspace_says_where_to_begin(shown, open_page):
    at = open_page("run", tab="completions")
    assert not at.exception
    assert "no runs" in says(at)
