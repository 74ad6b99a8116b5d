"""The Health tab: alarms as cards, most urgent first, with their nodes; what was checked when all is quiet.

The written runs have 80 nodes of 2 agents with 2 completions each; the newest half, nodes 40 to 79 at steps 410 to 800,
is what the rules look at.
"""

from __future__ import annotations

import os
import re
import time
from string import Formatter
from typing import Any

import psutil
import pytest
from streamlit.testing.v1 import AppTest
from written_runs import add_nodes, node, written_run

from workbench.insight.health import RULES, Settings
from workbench.insight.health_words import WORDS
from workbench.runs.workspace import RunStatus
from workbench.ui.run_tabs import health
from workbench.ui.text import LANGUAGES, table

NODES = 80
WORD = ["river", "mill", "boat", "goat", "moon", "tree", "lamp", "road", "bird", "fish", "stone", "wind", "cloud"]


def healthy(number: int, agent: int, k: int) -> dict[str, Any]:
    """Different texts and rewards everywhere."""
    place = 2 * number + k
    text = " ".join([*(WORD[(place * 7 + i * (1 + agent)) % len(WORD)] for i in range(7)), f"n{place}"])
    reward = place * 37 % 100 / 100
    return {"text": text, "reward": reward, "return_": reward}


def silent(number: int, agent: int, k: int) -> dict[str, Any]:
    """From node 40 on agent 1 writes nothing, and a quarter of agent 0's texts are cut off."""
    empty = {"text": ""} if agent == 1 and number >= 40 else {}
    return healthy(number, agent, k) | empty | {"finished": agent == 1 or number % 4 > 0}


def words(at: AppTest) -> str:
    assert not at.exception
    return "\n".join(
        str(element.value)
        for kind in (at.markdown, at.caption, at.text, at.info, at.warning, at.error, at.success)
        for element in kind
    )


def cards(at: AppTest) -> list[str]:
    """Severity and code of each card, from the keys of its buttons, in the page's order."""
    keys = [button.key.rsplit("-", 2)[0] for button in at.button if button.key.startswith("health-")]
    return list(dict.fromkeys(key.removeprefix("health-") for key in keys))


def nodes_of(at: AppTest, card: str) -> list[int]:
    return [int(re.sub(r"\D", "", button.label)) for button in at.button if button.key.startswith(f"health-{card}-")]


def test_alarms_come_most_urgent_first_with_their_nodes(shown, open_page):
    run = written_run(shown, [node(i, silent, items=8) for i in range(NODES)])
    at = open_page("run", run=run.id, tab="health")
    said = words(at)
    # All 80 newest completions of agent 1 are empty, so both of a group are the same text, too. 20 of agent 0's 80
    # are cut off: the 10 nodes of 40 to 79 that 4 divides, 2 completions each.
    found = cards(at)
    assert set(found[:2]) == {"alarm-duplicates", "alarm-silent_agent"}
    assert "warning-truncation" in found
    ranks = [("alarm", "warning", "info").index(card.split("-")[0]) for card in found]
    assert ranks == sorted(ranks)
    assert "100% of the 80 newest completions are empty" in said
    assert "25% of the 80 newest completions were cut off" in said
    assert nodes_of(at, "alarm-silent_agent") == list(range(79, 67, -1)), "the newest 12"
    assert nodes_of(at, "warning-truncation") == [76, 72, 68, 64, 60, 56, 52, 48, 44, 40]
    assert "steps 410 to 800" in said and "newest 40 training nodes" in said


def test_a_node_opens_in_the_advantages_tab(shown, open_page):
    run = written_run(shown, [node(i, silent, items=8) for i in range(NODES)])
    at = open_page("run", run=run.id, tab="health")
    button = next(button for button in at.button if button.key == "health-warning-truncation-0-76")
    button.click().run()
    assert not at.exception
    found = [at.query_params[name] for name in ("tab", "node", "agent")]
    assert [value[0] if isinstance(value, list) else value for value in found] == ["advantages", "76", "0"]


def test_a_quoted_completion_is_never_markup(shown, open_page):
    nasty = "![x](http://no.such.host/x.png) <img src=x onerror=alert(1)>"

    def stuck(number: int, agent: int, k: int) -> dict[str, Any]:
        return healthy(number, agent, k) | ({"text": nasty} if agent == 0 else {})

    run = written_run(shown, [node(i, stuck, items=8) for i in range(NODES)])
    at = open_page("run", run=run.id, tab="health")
    assert "warning-stuck_text" in cards(at)
    assert any("![x]" in element.value for element in at.text)
    assert not any("![x]" in element.value for kind in (at.markdown, at.caption) for element in kind)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_healthy_run_is_quiet_and_says_what_was_checked(shown, open_page, lang):
    nodes = [node(i, healthy, items=8) for i in range(NODES)]
    run = written_run(shown, nodes, advantage_normalization=False)
    at = open_page("run", run=run.id, tab="health", lang=lang)
    said = words(at)
    assert cards(at) == []
    assert len(at.success) == 1
    assert f"{len(RULES)}" in said and "410" in said and "800" in said
    for code in RULES:
        assert f"**{WORDS[code].title[lang]}**" in said
        assert table()[f"health.todo_{code}"][lang] in said


def test_a_remark_alone_is_still_quiet(shown, open_page):
    run = written_run(shown, [node(i, healthy, items=8) for i in range(NODES)])  # normalisation is on
    at = open_page("run", run=run.id, tab="health")
    assert cards(at) == ["info-baselines_equal"]
    assert len(at.success) == 1


def test_thresholds_in_the_list_are_the_rules_own(shown, open_page):
    run = written_run(shown, [node(i, healthy, items=8) for i in range(NODES)])
    said = words(open_page("run", run=run.id, tab="health"))
    assert "token limit before their end. Warning from 20%, alarm from 50%." in said
    assert "Warning from 25% down, alarm from 10% down." in said
    assert "{low" not in said and "{high" not in said


@pytest.mark.parametrize("code", RULES)
def test_every_number_of_an_alarm_has_a_name(code):
    names = {name for _, name, _, _ in Formatter().parse(WORDS[code].text["en"]) if name}
    assert [name for name in names if name not in health.IN_WORDS and f"health.number_{name}" not in table()] == []


def test_few_nodes_are_said_to_be_few(shown, open_page):
    run = written_run(shown, [node(i, healthy) for i in range(3)])  # the newest half of 3 is 1
    assert "Only 1 training nodes" in words(open_page("run", run=run.id, tab="health"))


def test_a_damaged_spec_silences_only_its_rules(shown, open_page):
    run = written_run(shown, [node(i, silent, items=8) for i in range(NODES)])
    run.spec_file.write_text("{", encoding="utf-8")
    at = open_page("run", run=run.id, tab="health")
    assert "spec cannot be read" in words(at)
    assert "alarm-silent_agent" in cards(at)


@pytest.mark.parametrize("content", [None, "no nodes", b"this is no database" * 100])
def test_without_a_readable_trace_there_is_one_sentence(shown, open_page, content):
    run = written_run(shown)
    if content != "no nodes":
        run.trace_file.unlink()
    if isinstance(content, bytes):
        run.trace_file.write_bytes(content)
    at = open_page("run", run=run.id, tab="health")
    assert not at.exception
    assert (len(at.error), len(at.info)) == ((1, 0) if isinstance(content, bytes) else (0, 1))


def test_a_running_run_is_looked_at_again_but_not_at_once(shown, open_page):
    run = written_run(shown, [node(i, healthy, items=8) for i in range(40)])
    me = psutil.Process()
    run.write_status(RunStatus("running", "rollout", 1, 2, pid=os.getpid(), process_started=me.create_time()))
    assert "Looks again every 10 seconds" in words(open_page("run", run=run.id, tab="health"))
    path, settings = str(run.trace_file), Settings()
    began = time.monotonic()
    first = health._recent_look(path, settings, run)
    assert (first.nodes, first.steps) == (20, (210, 400))
    add_nodes(run, [node(i, healthy, items=8) for i in range(40, NODES)])
    second = health._recent_look(path, settings, run)
    assert second.nodes == 20 or time.monotonic() - began >= health.SECONDS
    health._recent_look.clear()
    assert health._recent_look(path, settings, run).nodes == 40


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("algorithm", ["magrpo", "maac"])
def test_a_real_run_in_both_languages(runs, open_page, algorithm, lang):
    at = open_page("run", run=runs[algorithm].id, tab="health", lang=lang)
    assert not at.exception and not at.error
    assert str(len(RULES)) in words(at)
