"""The compare page: the address, groups and bands, differences, broken runs, and the MLflow button."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from opened import opened, words

from workbench.insight.overlay import Axis, overlay
from workbench.runs.mlflow_server import OFF, STARTING
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace
from workbench.tracking.trace_writer import TraceWriter
from workbench.ui.charts.compare import overlay_figure, parallel_figure
from workbench.ui.compare_parts import server_of

KEY = "turn_1/reward_mean"


def made(workspace: Workspace, name: str, values: list[float], algorithm: str = "magrpo", **config) -> RunFolder:
    spec = RunSpec(name=name, task="rendezvous", algorithm=algorithm, model="builtin:tiny", config=config)
    run = workspace.create_run(spec)
    writer = TraceWriter(run.trace_file)
    for step, value in enumerate(values):
        writer.metrics(step, {KEY: value})
    writer.end("FINISHED")
    run.write_status(RunStatus("finished", started=1.0, ended=2.0))
    return run


def figures(at) -> dict[str, dict]:
    """The charts by their key."""
    found = [element.proto for element in at.get("plotly_chart")]
    return {proto.id.rsplit("-None", 1)[0]: json.loads(proto.spec) for proto in found}


def figure(at, key: str) -> dict:
    (spec,) = (spec for name, spec in figures(at).items() if key in name)
    return spec


def joined(*runs: RunFolder) -> str:
    return ",".join(run.id for run in runs)


def test_an_empty_workspace_says_what_to_do(shown: Workspace) -> None:
    assert "There are no runs" in words(opened("compare"))


@pytest.mark.parametrize(("lang", "band"), [("en", "95 % t-interval"), ("zh", "95% t 置信区间")])
def test_two_seeds_are_a_band_and_the_chart_says_which(shown: Workspace, lang: str, band: str) -> None:
    one, two = made(shown, "one", [1.0, 3.0], seed=1), made(shown, "two", [2.0, 4.0], seed=2)
    at = opened("compare", runs=joined(one, two), lang=lang)
    chart = figure(at, "compare-overlay")
    assert band in chart["layout"]["title"]["subtitle"]["text"]
    assert [trace.get("name") for trace in chart["data"] if trace.get("showlegend") is not False] == ["magrpo (n = 2)"]
    assert not at.warning
    assert at.multiselect(key="compare-runs").value == [one.id, two.id]


def test_the_address_follows_the_choice(shown: Workspace) -> None:
    one, two = made(shown, "one", [1.0]), made(shown, "two", [2.0])
    at = opened("compare")
    assert "Choose two or more runs" in words(at)
    at.multiselect(key="compare-runs").set_value([two.id, one.id]).run()
    assert not at.exception
    assert at.query_params["runs"] in (joined(two, one), [joined(two, one)])
    at.multiselect(key="compare-runs").set_value([]).run()
    assert "runs" not in at.query_params and not at.get("plotly_chart")


def test_several_factors_are_warned_of_and_listed(shown: Workspace) -> None:
    one = made(shown, "one", [1.0], num_turns=1, seed=1)
    two = made(shown, "two", [2.0], "marloo", num_turns=2, seed=2)
    at = opened("compare", runs=joined(one, two))
    assert "differ in 2 things at once (algorithm, config.num_turns)" in words(at)
    diff = next(frame.value for frame in at.dataframe if "config.num_turns" in frame.value.index)  # four settings
    assert diff.loc["config.num_turns"].tolist() == ["1", "2"]
    assert diff.loc["config.seed"].tolist() == ["1", "2"]


def test_three_runs_have_parallel_coordinates(shown: Workspace) -> None:
    made_runs = [made(shown, f"r{i}", [float(i)], top_p=0.5 + i / 10) for i in range(3)]
    at = opened("compare", runs=joined(*made_runs))
    chart = figure(at, "compare-parallel")
    assert len(chart["data"]) == 3 and {trace["type"] for trace in chart["data"]} == {"scatter"}
    assert chart["layout"]["xaxis"]["ticktext"] == ["top_p", "turn_1/<br>reward_mean"]
    ends = next(frame.value for frame in at.dataframe if "Seed" in frame.value.columns)
    assert ends.iloc[:, 2].tolist() == [0.0, 1.0, 2.0]


def test_broken_runs_are_said_and_the_rest_is_compared(shown: Workspace) -> None:
    good, other = made(shown, "good", [1.0], seed=1), made(shown, "other", [2.0], seed=2)
    torn, blank, gone = made(shown, "torn", [1.0]), made(shown, "blank", [1.0]), made(shown, "gone", [1.0])
    torn.spec_file.write_text("algorithm: [")
    blank.trace_file.write_bytes(b"no database" * 500)
    address = joined(good, torn, blank, other, gone)
    for file in gone.path.rglob("*"):
        if file.is_file():
            file.unlink()
    at = opened("compare", runs=address)
    text = words(at)
    assert "spec.yaml" in text and "trace.db" in text
    assert at.multiselect(key="compare-runs").value == [good.id, torn.id, blank.id, other.id]
    legend = [t.get("name") for t in figure(at, "compare-overlay")["data"] if t.get("showlegend") is not False]
    assert legend == ["magrpo (n = 2)"]


def test_real_runs(runs: dict[str, RunFolder]) -> None:
    at = opened("compare", runs=joined(*runs.values()))
    assert len(figures(at)) == 2
    assert at.selectbox(key="compare-metric").value == "eval/turn_1/expected_return"
    at.selectbox(key="compare-metric").set_value("agent_0/turn_2/loss").run()
    assert not at.exception
    assert at.query_params["metric"] in ("agent_0/turn_2/loss", ["agent_0/turn_2/loss"])


# --- charts ---------------------------------------------------------------------------------------


def test_the_band_is_drawn_where_there_is_one(shown: Workspace) -> None:
    runs = [made(shown, str(seed), values, seed=seed) for seed, values in ((1, [1.0, 3.0]), (2, [3.0, 5.0]))]
    alone = made(shown, "alone", [9.0, 9.0], num_turns=1)
    found = overlay([*runs, alone], KEY, grid=2)
    drawn = overlay_figure(found.lines, found.bands, "a", "b", "x", "y", each_run=True)
    (band,) = (trace for trace in drawn.data if trace.fill == "toself")
    # steps 0.25 and 0.75; means 2 and 4; t of one degree of freedom 12.706, times sqrt 2 / sqrt 2
    assert list(band.x) == [0.25, 0.75, 0.75, 0.25]
    assert np.allclose(band.y, [2 + 12.706, 4 + 12.706, 4 - 12.706, 2 - 12.706])
    assert len([trace for trace in drawn.data if trace.opacity == 0.35]) == 2  # the two seeds; one alone is its mean
    few = overlay_figure(found.lines, found.bands, "a", "b", "x", "y", each_run=False)
    assert len(few.data) == len(drawn.data) - 2


def test_parallel_axes_by_hand() -> None:
    axes = [Axis("lr", (1.0, 3.0, 2.0)), Axis("mode", (0.0, 1.0, 0.0), ("a", "b")), Axis("end", (5.0, 5.0, 5.0))]
    drawn = parallel_figure(["x", "y", "z"], axes, "t", "s")
    assert [list(trace.y) for trace in drawn.data] == [[0, 0, 0.5], [1, 1, 0.5], [0.5, 0, 0.5]]
    assert sorted(note.text for note in drawn.layout.annotations) == ["1", "3", "5", "a", "b"]


def test_the_pages_import_neither_torch_nor_mlflow() -> None:
    pages = ", ".join(f"workbench.ui.pages.{name}" for name in ("runs", "compare", "play"))
    code = f"import sys, {pages}; print([m for m in ('torch', 'transformers', 'mlflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- MLflow --------------------------------------------------------------------------------------


def test_the_button_starts_a_server_of_its_own_and_the_page_does_not_wait(shown: Workspace, tmp_path: Path) -> None:
    shown.root.mkdir()
    server = server_of(str(shown.root))
    try:
        at = opened("compare")
        assert server.look().state == OFF
        at.button(key="mlflow-start").click().run()
        assert not at.exception
        assert server.look().state == STARTING
        assert at.button(key="mlflow-starting").disabled
    finally:
        server.stop()


def test_a_server_elsewhere_is_only_linked_to(shown: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example:5000")
    at = opened("compare")
    (link,) = at.get("link_button")
    assert link.proto.url == "http://tracking.example:5000"
    assert not [button for button in at.button if button.key == "mlflow-start"]
