"""The TD tab: a critic's errors as the trace has them, a second run beside it, and words where there is no critic."""

import pytest

from workbench.tracking.trace import read_completions, read_nodes
from workbench.ui.text import LANGUAGES


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", ["maac", "iac"])
def test_critics_are_shown_in_both_languages(runs, open_page, name, lang):
    at = open_page("run", run=runs[name].id, tab="td", lang=lang)
    assert not at.exception
    assert not at.error
    assert len(at.get("plotly_chart")) == 3


def test_the_table_holds_the_newest_nodes_of_the_trace(runs, open_page):
    run = runs["maac"]
    at = open_page("run", run=run.id, tab="td")
    table = next(frame.value for frame in at.dataframe if "realised" in frame.value)
    nodes = read_nodes(run.trace_file, phase="train")
    newest = int(nodes["node_id"].iloc[-1])
    stored = read_completions(run.trace_file, node_ids=[newest]).iloc[-1]
    assert int(table["node_id"].iloc[0]) == newest
    assert table["td_error"].iloc[0] == pytest.approx(stored["target"] - stored["value"], abs=1e-12)
    assert table["realised"].iloc[0] == stored["target"], "the last turn never bootstraps"


def test_the_table_can_start_earlier(runs, open_page):
    at = open_page("run", run=runs["maac"].id, tab="td")
    at.number_input("td-step").set_value(4).run()
    table = next(frame.value for frame in at.dataframe if "realised" in frame.value)
    assert table["step"].max() <= 4
    at.number_input("td-step").set_value(0).run()
    assert not at.exception
    assert not [frame for frame in at.dataframe if "realised" in frame.value]


def test_another_run_stands_beside_it(runs, open_page):
    at = open_page("run", run=runs["maac"].id, tab="td")
    box = at.selectbox("td-beside")
    assert runs["iac"].id in box.options
    assert runs["magrpo"].id not in box.options
    box.set_value(runs["iac"].id).run()
    assert not at.exception
    both = at.dataframe[0].value
    assert both.iloc[:, 0].tolist() == [runs["maac"].id, runs["iac"].id]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_without_a_critic_the_page_says_why(runs, open_page, lang):
    at = open_page("run", run=runs["magrpo"].id, tab="td", lang=lang)
    assert not at.exception
    assert "MAAC" in at.info[0].value
    assert not at.get("plotly_chart")


@pytest.mark.parametrize("content", [None, b"", b"this is no database" * 100])
def test_a_missing_or_damaged_trace_is_one_sentence(copied, open_page, content):
    run = copied("maac", "damaged")
    run.trace_file.unlink()
    if content is not None:
        run.trace_file.write_bytes(content)
    at = open_page("run", run="damaged", tab="td")
    assert not at.exception
    assert len(at.info) == 1 if content is None else len(at.error) >= 1


def test_a_run_with_a_damaged_spec_does_not_hide_the_others(copied, open_page):
    maac, iac, broken = copied("maac", "m"), copied("iac", "i"), copied("iac", "broken-spec")
    broken.spec_file.write_text("algorithm: [")
    at = open_page("run", run=maac.id, tab="td")
    assert not at.exception
    assert iac.id in at.selectbox("td-beside").options
    assert "broken-spec" not in at.selectbox("td-beside").options
