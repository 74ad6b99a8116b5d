"""Reports: one file that needs nothing else, in which no text of a run becomes markup, whatever state the run is in."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from functools import partial
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.report import default_name, sections
from workbench.report.markup import Html, joined, table, tag
from workbench.report.page import Charts, build
from workbench.report.samples import CHARACTERS, cut
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.tracking.trace_writer import TraceWriter
from workbench.types import CompletionRecord, JointRecord, NodeRecord

EVIL = "</td></script><script>document.title='broken'</script><img src=x onerror=alert(1)> & \"quoted\""
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """What a browser would make of the file: visible text, elements and scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(html)
        assert self._inside == []  # every element is closed

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attributes)))
        if name not in VOID:
            self._inside.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self._inside.pop() == name

    def handle_data(self, data: str) -> None:
        if self._inside[-1:] == ["script"]:
            self.scripts.append(data)
        elif self._inside[-1:] != ["style"]:
            self.text += data + " "

    def charts(self) -> dict[str, Any]:
        """Place -> figure, as the page's own script reads them."""
        data = re.fullmatch(r"const CHARTS = (.*?);\nfor .*", self.scripts[-1], re.DOTALL)
        assert data is not None
        return dict(json.loads(data[1]))


def node(number: int, phase: str = "train", text: str = "some text") -> NodeRecord:
    """Two agents with six completions each; rewards 0.0 to 0.5, advantages around their mean 0.25."""
    rows = tuple(
        CompletionRecord(agent, k, f"prompt of {agent}", f"{text} {number} {k}", 3, k != 0, -1.0, reward=k / 10,
                         return_=k / 10, baseline=0.25, advantage=k / 10 - 0.25)
        for agent in range(2) for k in range(6)
    )  # fmt: skip
    joints = tuple(JointRecord(k, (k, k), k / 10, k / 10) for k in range(6))
    return NodeRecord(number, phase, 6 * (number + 1), 0, number, 1, None, None, False, joints, rows)


def made(root: Path, name: str = "a run", text: str = "some text", status: RunStatus | None = None, **config: Any):  # type: ignore[no-untyped-def]
    """A run of five items with a trace written as training does."""
    spec = RunSpec(name=name, task="rendezvous", algorithm="magrpo", model="builtin:tiny", config=config)
    run = Workspace(root).create_run(spec)
    writer = TraceWriter(run.trace_file)
    for number in range(5):
        writer.nodes([node(number, text=text)])
        step, seed = 6 * (number + 1), config.get("seed", 0)
        writer.metrics(step, {"turn_1/reward_mean": number / 10 + seed, "agent_0/turn_1/entropy": float("nan"),
                              "agent_0/turn_1/explained_variance": 0.5, "time/update_s": 1.0})  # fmt: skip
    writer.metrics(30, {"eval/turn_1/reward_mean": 0.75})
    writer.end("FINISHED")
    run.write_status(status or RunStatus("finished", step=5, total=5, reward=0.4, started=100.0, ended=160.0))
    return run


def page_of(*runs: RunFolder) -> Page:
    return Page(build(runs))


def test_a_report_holds_curves_settings_completions_alarms_and_environment(tmp_path: Path) -> None:
    page = page_of(made(tmp_path, seed=3))
    for words in ("State finished", "magrpo", "rendezvous", "builtin:tiny", "Seed 3", "5 of 5", "60 s",
                  "1970-01-01 00:02:40 UTC", "workbench train spec.yaml", "Python", "torch", "CPU"):  # fmt: skip
        assert words in re.sub(r"\s+", " ", page.text), words
    titles = [figure["layout"]["title"]["text"] for figure in page.charts().values()]
    assert titles == ["Mean reward (reward)", "Evaluation reward (reward)", "Entropy (nats per token)",
                      "Explained variance (share)"]  # fmt: skip
    places = [a["id"] for name, a in page.tags if name == "div" and "id" in a]
    assert places == list(page.charts())
    href = next(a["href"] for name, a in page.tags if name == "a")
    assert b"seed: 3" in base64.b64decode(str(href).partition("base64,")[2])


def test_a_trace_of_several_portions_is_read_to_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(tmp_path)
    monkeypatch.setattr(sections, "advance", partial(sections.advance, max_rows=2))
    assert "env_step 30" in re.sub(r"\s+", " ", Page(sections.about(run)).text)


def test_first_middle_and_last_item_are_shown_with_rewards_and_advantages(tmp_path: Path) -> None:
    text = re.sub(r"\s+", " ", page_of(made(tmp_path)).text)
    assert [word in text for word in ("First item, env_step 6", "Middle item, env_step 18", "Last item, env_step 30")]
    # k=3: reward and return 0.3, baseline 0.25, advantage 0.05; k=0 was cut by the token limit; 4 of 6 are shown.
    assert "some text 2 3 3 0.3 0.3 0.25 0.05" in text
    assert "some text 4 0 [cut at max_new_tokens] 3 0 0 0.25 -0.25" in text
    assert "(4 of 6 completions)" in text
    assert "some text 2 4" not in text
    assert "some text 1 0" not in text


def test_no_text_of_a_run_becomes_markup(tmp_path: Path) -> None:
    run = made(tmp_path, name=EVIL, text=EVIL)
    writer = TraceWriter(run.trace_file)
    writer.metrics(36, {f"mine/{EVIL}": 1.0})
    writer.end("FINISHED")
    html = build([run])
    page = Page(html)
    assert EVIL in page.text  # shown as it was written
    assert len(page.scripts) == 2  # plotly.js and ours
    assert "img" not in [name for name, _ in page.tags]
    titles = [figure["layout"]["title"]["text"] for figure in page.charts().values()]
    assert f"mine/{escape(EVIL)}" in titles  # plotly itself reads tags in titles
    policy = next(a["content"] for name, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in str(policy)
    nonces = {a.get("nonce") for name, a in page.tags if name == "script"}
    assert len(nonces) == 1
    assert f"'nonce-{nonces.pop()}'" in str(policy)
    assert not [a for _, a in page.tags if "src" in a or str(a.get("href", "data:")).partition(":")[0] != "data"]


def test_several_runs_are_overlaid_with_a_band_over_seeds(tmp_path: Path) -> None:
    runs = [made(tmp_path, seed=0), made(tmp_path, seed=1), made(tmp_path, seed=0, num_generations=8)]
    page = page_of(*runs)
    text = re.sub(r"\s+", " ", page.text)
    assert "config.num_generations" in text
    assert all(text.count(run.id) >= 2 for run in runs)
    figure = page.charts()["chart-1"]
    lines = [trace for trace in figure["data"] if trace.get("showlegend")]
    assert [line["name"] for line in lines] == ["num_generations=4", "num_generations=8"]
    # The last point is at env_step 30: the seeds have 0.4 and 1.4 there, so the first group's mean is 0.9.
    assert decoded(lines[0]["y"])[-1] == pytest.approx(0.9)
    assert decoded(lines[1]["y"])[-1] == pytest.approx(0.4)
    bands = [trace for trace in figure["data"] if trace.get("fill") == "tonexty"]
    assert len(bands) == 1  # a group of one run has no interval
    # 95 % of two values 1 apart: 0.9 - 12.706 * 0.707107 / 1.414214 = -5.453.
    assert decoded(bands[0]["y"])[-1] == pytest.approx(-5.453, abs=1e-3)


def decoded(values: Any) -> list[float]:
    """Plotly writes numbers as base64 of their bytes."""
    import numpy as np

    return list(np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])) if "bdata" in values else values


# --- runs that are not well -----------------------------------------------------------------------


def test_a_running_run_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    own = psutil.Process()
    status = RunStatus("running", "rollout", 2, 5, pid=own.pid, process_started=own.create_time(),
                       started=time.time(), heartbeat=time.time())  # fmt: skip
    page = page_of(made(tmp_path, status=status))
    assert "This run is still running; the report shows what there was" in page.text
    assert len(page.charts()) == 4


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    run = made(tmp_path, status=RunStatus("failed", step=1, total=5, error="The reward <broke>.", started=0.0))
    run.log_file.write_text("first\nthe last line\n")
    page = page_of(run)
    assert "This run is failed. The reward <broke>." in page.text
    assert "the last line" in page.text


def test_damage_is_said_in_its_place_and_hides_nothing_else(tmp_path: Path) -> None:
    run, well = made(tmp_path, name="bad"), made(tmp_path, name="good")
    run.trace_file.write_bytes(b"SQLite format 3\0" + os.urandom(4096))
    page = page_of(run)
    for what in ("The alarms", "The curves", "The completions"):
        assert re.search(f"{what} cannot be shown: .*damaged or not a trace", page.text), what
    assert "num_agents" not in page.text
    assert "builtin:tiny" in page.text
    both = page_of(run, well)
    assert f"Not in the charts: {run.id}" in both.text
    assert "no finite number: agent_0/turn_1/entropy." in both.text
    assert len(both.charts()) == 3

    run.spec_file.write_text("name: [")
    page = page_of(run, well)
    assert "The settings cannot be shown" in page.text
    assert f"The settings of {run.id} are missing" in page.text


def test_a_run_before_its_first_item_has_a_report(tmp_path: Path) -> None:
    spec = RunSpec(name="new", task="rendezvous", algorithm="magrpo", model="builtin:tiny")
    run = Workspace(tmp_path).create_run(spec)
    page = page_of(run)
    assert "There is no trace" in page.text
    TraceWriter(run.trace_file).end("FINISHED")
    page = page_of(run)
    assert "No metric was logged yet." in page.text
    assert "No training node was written yet." in page.text


# --- parts and command ----------------------------------------------------------------------------


def test_only_what_was_built_as_markup_is_markup() -> None:
    assert tag("b", "<i>", Html("<i>")) == "<b>&lt;i&gt;<i></b>"
    assert tag("a", attributes={"href": '"><script>'}) == '<a href="&quot;&gt;&lt;script&gt;"></a>'
    assert joined(["a & b", tag("br", "x")]) == "a &amp; b<br>x</br>"
    import pandas as pd

    assert "<script>" not in table(pd.DataFrame({"<script>": ["<script>", None, 0.123456]}))
    assert "0.1235" in table(pd.DataFrame({"x": [0.123456, float("nan")]}))


def test_chart_data_cannot_end_its_script() -> None:
    import plotly.graph_objects as go

    charts = Charts()
    charts.draw(go.Figure(layout={"title": {"text": "</script><!--\u2028"}}))
    assert "<" not in charts.script().partition("];")[0]
    assert "\u2028" not in charts.script()


def test_long_texts_are_cut_and_say_so() -> None:
    assert cut("x" * CHARACTERS) == "x" * CHARACTERS
    assert cut("x" * 5_000).endswith(" [... 5,000 characters in all]")


def test_the_command_writes_a_file_and_never_over_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run, other = made(tmp_path), made(tmp_path)

    def report(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["report", *arguments])

    done = report(run.id)
    assert done.exit_code == 0, done.output
    name = f"report-{run.id}.html"
    assert done.stdout.splitlines() == [name]
    assert (tmp_path / name).read_text(encoding="utf-8").startswith("<!doctype html>")
    (tmp_path / name).write_text("mine")
    refused = report(run.id)
    assert (refused.exit_code, (tmp_path / name).read_text()) == (1, "mine")
    assert "exists already; use --force" in refused.stderr
    assert report(run.id, "--force").exit_code == 0
    assert (tmp_path / name).stat().st_size > 1_000_000
    assert default_name([run, other]) == f"report-{run.id}-and-1-more.html"
    assert report(run.id, str(run.path), "-o", "x.html").stdout == "x.html\n"  # one run, named twice
    assert f"<title>Report on {run.id}</title>" in (tmp_path / "x.html").read_text(encoding="utf-8")
    wrong = report(run.id[:-1], "-o", "y.html")
    assert (wrong.exit_code, "did you mean" in wrong.stderr) == (1, True)
    assert "There is no folder" in report(run.id, "-o", "nowhere/y.html").stderr
    assert sorted(path.name for path in tmp_path.glob("*.html")) == sorted([name, "x.html"])
