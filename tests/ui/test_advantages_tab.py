"""The Advantages tab on real runs: the tree, a node's numbers, the arithmetic and the other baselines."""

import contextlib
import json
import sqlite3

import pytest

from workbench.insight.lab import baseline_table
from workbench.insight.why import explain
from workbench.tracking.trace import read_completions, read_nodes
from workbench.trainers import algorithm
from workbench.ui.run_tabs.why_panel import in_words
from workbench.ui.text import LANGUAGES


def values(elements):
    return [element.value for element in elements]


def query(at, name):
    """The address bar's value; AppTest keeps lists."""
    found = at.query_params.get(name)
    return found[0] if isinstance(found, list) else found


def spec_of(at, key):
    """The plotly figure with this key, as the browser gets it."""
    charts = [element for element in at.get("plotly_chart") if key in element.proto.id]
    return json.loads(charts[0].proto.spec)


def deep_node(run):
    nodes = read_nodes(run.trace_file, phase="train")
    return int(nodes[nodes["turn"] == 2]["node_id"].iloc[-1])


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", ["magrpo", "maac", "iac"])
def test_each_kind_of_run_is_shown_in_both_languages(runs, open_page, name, lang):
    at = open_page("run", run=runs[name].id, tab="advantages", lang=lang)
    assert not at.exception
    assert not at.error
    assert at.selectbox("adv-node").options
    assert len(at.success) == 1, "the arithmetic agrees with the trace"
    assert query(at, "node") == str(at.selectbox("adv-node").value)


def test_the_newest_training_rollout_comes_first_and_stays_in_the_address(runs, open_page):
    run = runs["magrpo"]
    nodes = read_nodes(run.trace_file, phase="train")
    newest = nodes[nodes["parent_id"].isna()].iloc[-1]
    at = open_page("run", run=run.id, tab="advantages")
    assert query(at, "node") == str(newest["node_id"])
    assert query(at, "step") == str(newest["step"])


def test_the_address_names_the_node_and_its_tables_hold_the_numbers_of_the_trace(runs, open_page):
    run = runs["magrpo"]
    node = deep_node(run)
    at = open_page("run", run=run.id, tab="advantages", node=node)
    assert at.selectbox("adv-node").value == node
    stored = read_completions(run.trace_file, node_ids=[node])
    groups = [frame.value for frame in at.dataframe if "baseline" in frame.value.columns and "text" in frame.value]
    assert len(groups) == 2
    for agent, group in enumerate(groups):
        own = stored[stored["agent"] == agent]
        assert group["advantage"].tolist() == own["advantage"].tolist()
        assert group["return"].tolist() == own["return"].tolist()


def test_choosing_another_node_changes_the_address_and_the_arithmetic(runs, open_page):
    at = open_page("run", run=runs["magrpo"].id, tab="advantages")
    root, child = at.selectbox("adv-node").value, deep_node(runs["magrpo"])
    before = values(at.markdown)
    at.selectbox("adv-node").set_value(child).run()
    assert not at.exception
    assert root != child
    assert query(at, "node") == str(child)
    assert values(at.markdown) != before


def test_each_line_of_the_arithmetic_is_on_the_page(runs, open_page):
    run = runs["magrpo"]
    node = deep_node(run)
    at = open_page("run", run=run.id, tab="advantages", node=node)
    at.selectbox("why-agent").set_value(1).run()
    at.selectbox("why-k").set_value(2).run()
    config = algorithm("magrpo").config.from_dict(run.spec().config)
    shown = "\n".join(values(at.markdown))
    lines = explain(run.trace_file, node, 1, 2, config).lines
    assert [line.key for line in lines][-3:] == ["baseline_mean", "advantage", "normalized"]
    for line in lines:
        assert in_words(line) in shown


def test_formulas_have_no_english_words_left_in_chinese(runs, open_page):
    at = open_page("run", run=runs["magrpo"].id, tab="advantages", lang="zh")
    formulas = [text for text in values(at.markdown) if "badge[" in text]
    assert len(formulas) >= 7
    assert not [text for text in formulas if any(word in text for word in ("return", "mean", "baseline", "coeff"))]


def test_a_number_that_was_changed_is_marked(copied, open_page):
    run = copied("magrpo", "spoilt")
    node = deep_node(run)
    with contextlib.closing(sqlite3.connect(run.trace_file)) as database, database:
        database.execute("UPDATE completions SET advantage = 7.5 WHERE node_id = ? AND agent = 0 AND k = 0", (node,))
    at = open_page("run", run="spoilt", tab="advantages", node=node, agent=0, k=0)
    assert not at.exception
    assert "7.5" in "\n".join(text for text in values(at.markdown) if "red-badge" in text)
    assert len(at.error) == 1


def test_what_the_other_baselines_give_is_what_trains(runs, open_page):
    run = runs["magrpo"]
    node = deep_node(run)
    at = open_page("run", run=run.id, tab="advantages", node=node, agent=0)
    stored = read_completions(run.trace_file, node_ids=[node])
    expected = baseline_table(stored.loc[stored["agent"] == 0, "return"].tolist())
    wide = next(frame.value for frame in at.dataframe if len(frame.value.columns) == 10 and "k" in frame.value)
    for place, mode in enumerate(("raw", "mean", "rloo", "max")):
        rows = expected[expected["mode"] == mode]
        assert wide.iloc[:, 2 + place].tolist() == rows["advantage"].tolist()
        assert wide.iloc[:, 6 + place].tolist() == rows["normalized"].tolist()


def test_a_step_is_found_by_its_number(runs, open_page):
    at = open_page("run", run=runs["magrpo"].id, tab="advantages")
    first = read_nodes(runs["magrpo"].trace_file, phase="train").iloc[0]
    at.number_input("episodes-step").set_value(1).run()
    assert not at.exception
    assert query(at, "node") == str(first["node_id"])


def test_the_list_can_be_filtered(runs, open_page):
    at = open_page("run", run=runs["magrpo"].id, tab="advantages")
    at.selectbox("episodes-phase").set_value("eval").run()
    rows = next(frame.value for frame in at.dataframe if "max_advantage" in frame.value)
    assert set(rows["phase"]) == {"evaluation"}
    at.number_input("episodes-item").set_value(999_999).run()
    assert not at.exception
    assert not [frame for frame in at.dataframe if "max_advantage" in frame.value]


def test_an_evaluation_has_no_advantage_and_says_so(runs, open_page):
    run = runs["magrpo"]
    node = int(read_nodes(run.trace_file, phase="eval")["node_id"].iloc[0])
    at = open_page("run", run=run.id, tab="advantages", node=node)
    assert not at.exception
    assert any("evaluation" in text for text in values(at.info))


def test_a_node_that_is_gone_is_said_and_the_newest_is_shown(runs, open_page):
    at = open_page("run", run=runs["magrpo"].id, tab="advantages", node=987_654)
    assert not at.exception
    assert "987654" in at.warning[0].value
    assert at.selectbox("adv-node").options


def test_nonsense_in_the_address_is_passed_over(runs, open_page):
    at = open_page("run", run=runs["magrpo"].id, tab="advantages", node="x'--", agent="9", k="99", step="-1")
    assert not at.exception
    assert not at.error
    assert at.selectbox("why-agent").value == 0


@pytest.mark.parametrize("content", [None, b"", b"this is no database" * 100])
def test_a_missing_or_damaged_trace_is_one_sentence(copied, open_page, content):
    run = copied("magrpo", "damaged")
    run.trace_file.unlink()
    if content is not None:
        run.trace_file.write_bytes(content)
    at = open_page("run", run="damaged", tab="advantages")
    assert not at.exception
    assert len(at.info) == 1 if content is None else len(at.error) >= 1
