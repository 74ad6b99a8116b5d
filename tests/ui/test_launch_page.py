"""The launch page as a reader meets it, run by Streamlit's own test runner; a launch starts a real supervisor."""

from __future__ import annotations

import string
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from streamlit.testing.v1 import AppTest

from workbench.runs.launch import stop
from workbench.runs.spec import RunSpec
from workbench.runs.supervision import read_supervision
from workbench.runs.workspace import ACTIVE, RunFolder, Workspace
from workbench.ui.form.draft import PRESETS, preset

APP = Path(__file__).parents[2] / "app.py"
SECONDS = 240.0
TINY = {"name": "tiny", "task": "rendezvous", "algorithm": "magrpo", "model": "builtin:tiny"}
FIELD = "launch-field-"


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """A workspace whose runs do not outlive the test."""
    monkeypatch.setenv("WORKBENCH_WORKSPACE", str(tmp_path / "work"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    workspace = Workspace(tmp_path / "work")
    yield workspace
    for run in workspace.runs():
        if run.read_status().state in ACTIVE:
            stop(run, "kill")
        until_gone(run)


def until_gone(run: RunFolder) -> None:
    deadline = time.monotonic() + SECONDS
    while read_supervision(run.supervision_file) is not None:
        assert time.monotonic() < deadline, f"run {run.id} does not end"
        time.sleep(0.1)


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(str(APP), default_timeout=SECONDS)
    for key, value in query.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    return app


def filled(data: dict[str, Any], space: Workspace, **query: str) -> AppTest:
    """The page with a spec in its form, by way of a run to copy."""
    run = space.create_run(RunSpec.parse(data, "test", space.root))
    return opened(clone=run.id, **query)


def with_draft(draft: dict[str, Any]) -> AppTest:
    """The page of a reader whose form holds this draft already."""
    app = AppTest.from_file(str(APP), default_timeout=SECONDS)
    app.session_state["launch-draft"] = draft
    app.run()
    assert not app.exception
    return app


def errors(app: AppTest) -> list[str]:
    return [error.value.replace("\\", "") for error in app.error]


def start(app: AppTest) -> Any:
    return app.button(key="launch-start")


def spec_of(app: AppTest) -> Any:
    """The YAML that the page shows."""
    return yaml.safe_load(next(code.value for code in app.code if code.language == "yaml"))


def field(app: AppTest, name: str) -> Any:
    return app.text_input(key=f"{FIELD}{name}")


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_new_workspace_is_offered_the_quickstart(lang: str, space: Workspace) -> None:
    app = opened(lang=lang)
    assert {f"preset-start-{name}" for name in PRESETS} <= {button.key for button in app.button}
    assert spec_of(app)["name"] == "quickstart"
    assert not errors(app)
    assert not start(app).disabled
    assert not space.root.exists()


def test_drawing_the_launch_page_loads_no_torch(space: Workspace) -> None:
    """In a process of its own: others in this one may have loaded it."""
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({str(APP)!r}, default_timeout=240).run()\n"
        "assert not at.exception and at.title\n"
        "print([m for m in ('torch', 'mlflow', 'transformers') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_preset_fills_the_form(space: Workspace) -> None:
    app = opened()
    for name in PRESETS:
        app.button(key=f"preset-fill-{name}").click().run()
        assert not app.exception
        assert not errors(app)
        assert spec_of(app)["algorithm"] == preset(name)["algorithm"]
        assert spec_of(app)["name"] == preset(name)["name"]


def test_the_algorithm_decides_which_fields_there_are(space: Workspace) -> None:
    app = filled(TINY, space)
    assert f"{FIELD}advantage_mode" in {box.key for box in app.selectbox}
    app.selectbox(key=f"{FIELD}algorithm").select("maac").run()
    assert f"{FIELD}advantage_mode" not in {box.key for box in app.selectbox}
    assert f"{FIELD}critic" in {box.key for box in app.selectbox}
    assert spec_of(app)["critic"] == "builtin:tiny"
    app.selectbox(key=f"{FIELD}algorithm").select("iac").run()
    app.toggle(key=f"{FIELD}use_separate_critic").set_value(False).run()
    assert "critic" not in spec_of(app)
    assert not errors(app)


def test_the_task_brings_its_own_defaults(space: Workspace) -> None:
    app = filled(TINY, space)
    assert field(app, "num_generations").value == "16"  # rendezvous suggests it
    app.selectbox(key=f"{FIELD}task").select("story_length").run()
    assert field(app, "num_generations").value == "8"
    assert "config" not in spec_of(app)
    field(app, "num_generations").set_value("5").run()
    assert spec_of(app)["config"] == {"num_generations": 5}
    assert any("changed from 8" in caption.value for caption in app.caption)
    app.button(key="launch-reset").click().run()
    assert "config" not in spec_of(app)


def test_a_wrong_value_is_said_beside_its_field_and_blocks(space: Workspace) -> None:
    app = filled(TINY, space)
    field(app, "num_generations").set_value("$(touch x)").run()
    assert set(errors(app)) == {
        "num_generations: must be a valid integer, unable to parse string as an integer, got '$(touch x)'."
    }
    assert len(errors(app)) == 2  # beside the field, and beside the button
    assert start(app).disabled
    field(app, "num_generations").set_value("1").run()  # a rule of the algorithm, not of the field
    assert set(errors(app)) == {"num_generations must be at least 2 for MAGRPOConfig, got 1."}
    field(app, "num_generations").set_value("2").run()
    assert not errors(app)
    assert not start(app).disabled


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": " "}, "name must not be empty"),
        ({"tracking": {"experiment": " "}}, "tracking.experiment must not be empty"),
        ({"model": "./nowhere"}, "There is no model at"),
        ({"model": "too/many/parts"}, "There is no model at too/many/parts"),
        ({"model": "builtin:tinny"}, "did you mean 'builtin:tiny'"),
        ({"model_config": {"dtype": "bfloat16"}}, "builtin:tiny is made on the spot"),
        ({"model": "./nowhere", "config": {"num_turns": 0}}, "There is no model at"),
        ({"task": "nowhere.py:TASK"}, "does not exist"),
        ({"task": "rendevous"}, "did you mean 'rendezvous'"),
    ],
)
def test_what_is_typed_is_checked(change: dict[str, Any], message: str, space: Workspace) -> None:
    app = with_draft({**preset("rendezvous"), **change})
    assert any(message in error for error in errors(app))
    assert start(app).disabled


@pytest.mark.parametrize(
    ("typed", "message"), [("[", "model_config, line 1: this is not valid YAML"), ("3", "A group of keys")]
)
def test_model_options_are_checked(typed: str, message: str, space: Workspace) -> None:
    app = filled(TINY, space)
    app.text_area(key=f"{FIELD}model-options").set_value(typed).run()
    assert any(message in error for error in errors(app))
    assert start(app).disabled


def test_normalisation_is_warned_of_where_it_hides_the_baseline(space: Workspace) -> None:
    app = filled({**TINY, "algorithm": "marloo"}, space)
    assert any("all four baselines give the same" in warning.value for warning in app.warning)
    app.toggle(key=f"{FIELD}advantage_normalization").set_value(False).run()
    assert not app.warning


def test_each_agent_may_have_a_model_of_its_own(space: Workspace) -> None:
    app = filled(TINY, space)
    app.toggle(key=f"{FIELD}agents-each").set_value(True).run()
    app.selectbox(key=f"{FIELD}agent-1").select("builtin:storyteller").run()
    assert spec_of(app)["agents"] == ["builtin:tiny", "builtin:storyteller"]
    assert "model" not in spec_of(app)
    assert not errors(app)


def test_a_device_that_is_gone_stays_chosen_and_blocks(space: Workspace) -> None:
    app = filled({**TINY, "config": {"agent_devices": "cuda:7"}}, space)
    assert app.selectbox(key=f"{FIELD}agent_devices").value == "cuda:7"
    assert any("There is no device cuda:7 on this machine now" in error for error in errors(app))
    assert start(app).disabled
    app.selectbox(key=f"{FIELD}agent_devices").select("cpu").run()
    assert not errors(app)
    assert spec_of(app)["config"] == {"agent_devices": "cpu"}


def test_models_in_processes_of_their_own_need_devices(space: Workspace) -> None:
    app = filled(TINY, space)
    app.selectbox(key=f"{FIELD}parallel_training").select("mp").run()
    assert any("agent_devices is required" in error for error in errors(app))
    app.selectbox(key=f"{FIELD}agent_devices").select("cpu").run()
    assert not errors(app)
    app.toggle(key=f"{FIELD}agent_devices-each").set_value(True).run()
    assert spec_of(app)["config"] == {"parallel_training": "mp", "agent_devices": ["cpu", "cpu"]}


def test_the_draft_outlives_a_visit_to_another_page(space: Workspace) -> None:
    app = filled(TINY, space)
    field(app, "seed").set_value("41").run()
    again = with_draft(app.session_state["launch-draft"])  # Streamlit drops the widgets of a page that is left
    assert field(again, "seed").value == "41"


# --- what fills the form --------------------------------------------------------------------------


def test_a_copied_run_has_every_setting_of_it(space: Workspace) -> None:
    spec = RunSpec.parse(
        {**TINY, "algorithm": "iac", "critic": ["builtin:tiny", "builtin:storyteller"],
         "config": {"seed": 5, "top_k": 7, "discount": 0.5}, "tracking": {"experiment": "e", "mlflow": False}},
        "test", space.root,
    ).resolve().spec  # fmt: skip
    app = opened(clone=space.create_run(spec).id)
    again = RunSpec.parse(spec_of(app), "form", space.root).resolve().spec
    assert again == spec
    assert not errors(app)


@pytest.mark.parametrize("run", ["gone", "../..", ""])
def test_a_run_that_is_not_there_is_said(run: str, space: Workspace) -> None:
    app = opened(clone=run)
    assert any("There is no run" in error for error in errors(app))
    assert spec_of(app)["name"] == "quickstart"


def test_a_damaged_run_cannot_be_copied_and_the_rest_works(space: Workspace) -> None:
    run = space.create_run(RunSpec.parse(TINY, "test", space.root))
    run.spec_file.write_text("name: [")
    app = opened(clone=run.id)
    assert any("this is not valid YAML" in error for error in errors(app))
    assert not start(app).disabled


def test_a_pasted_file_fills_the_form(space: Workspace) -> None:
    app = opened()
    app.text_area(key="launch-paste").set_value(yaml.safe_dump({**TINY, "config": {"seed": 9}})).run()
    app.button(key="launch-use-yaml").click().run()
    assert spec_of(app) == {**TINY, "config": {"seed": 9}}


@pytest.mark.parametrize("text", ["name: [", "", "name: x", "task: rendezvous\nalgorithm: magrpo\nmodel: m\nnaem: x"])
def test_a_bad_file_is_one_sentence_and_leaves_the_form(text: str, space: Workspace) -> None:
    app = opened()
    app.text_area(key="launch-paste").set_value(text).run()
    app.button(key="launch-use-yaml").click().run()
    assert not app.exception
    assert len(errors(app)) == 1
    assert spec_of(app)["name"] == "quickstart"


# --- the launch -----------------------------------------------------------------------------------


def test_one_click_starts_a_preset_and_a_second_click_is_the_same_run(space: Workspace) -> None:
    app = opened()
    token = app.session_state["launch-token"]
    app.button(key="preset-start-rendezvous").click().run()
    (run,) = space.runs()
    assert app.query_params["run"] in (run.id, [run.id])
    assert run.read_status().state in ACTIVE
    assert run.spec() == RunSpec.parse(preset("rendezvous"), "preset", space.root).resolve().spec
    assert "launch-pending" not in app.session_state
    late = AppTest.from_file(str(APP), default_timeout=SECONDS)
    late.session_state["launch-token"] = token
    late.session_state["launch-pending"] = (token, "rendezvous")
    late.run()
    assert [found.id for found in space.runs()] == [run.id]
    assert late.query_params["run"] in (run.id, [run.id])


def test_the_form_starts_what_it_shows_also_for_a_task_file(space: Workspace, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from workbench.tasks import Task\n"
        "TASK = Task(name='own', train_items=[{'prompt': 'Say:'}], reward=lambda a, b: [0.0] * len(a))\n"
    )
    app = filled({**TINY, "task": f"{tmp_path}/own.py:TASK", "tracking": {"mlflow": False}}, space)
    (copied,) = space.runs()
    field(app, "seed").set_value("12")
    start(app).click().run()  # one message with both, as a browser sends it
    (run,) = [run for run in space.runs() if run.id != copied.id]
    assert run.spec().config["seed"] == 12
    assert run.spec().task == f"{tmp_path}/own.py:TASK"
    assert run.read_status().state in ACTIVE
    assert not [name for name in sys.modules if name.startswith("workbench_task_own")]


def test_a_click_on_what_became_wrong_starts_nothing(space: Workspace) -> None:
    app = filled(TINY, space)
    field(app, "seed").set_value("-1")
    start(app).click().run()
    assert any("seed" in error for error in errors(app))
    assert len(space.runs()) == 1  # the copied one
    assert "launch-pending" not in app.session_state


def test_a_launch_that_the_disk_refuses_is_said(space: Workspace) -> None:
    app = opened()
    space.root.mkdir()
    space.runs_folder.write_text("in the way")
    start(app).click().run()
    assert not app.exception
    assert any("in the way or is not a folder" in error for error in errors(app))
    assert not start(app).disabled


def test_texts_are_in_both_languages() -> None:
    folder = APP.parent / "workbench/ui/texts"
    texts = yaml.safe_load((folder / "launch.yaml").read_text(encoding="utf-8"))
    places = {key: [sorted(_places(text)) for text in value.values()] for key, value in texts.items() if "en" in value}
    assert not [key for key, (english, chinese) in places.items() if english != chinese]


def _places(text: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(text) if name]
