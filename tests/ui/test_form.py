"""The launch form's parts without a browser: drafts, fields, devices, cautions, and the run in other words."""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from workbench.config import IACConfig, MAACConfig, MAGRPOConfig
from workbench.runs.hardware import Cpu, Gpu, Hardware, probe
from workbench.runs.spec import RunSpec
from workbench.trainers import ALGORITHMS
from workbench.ui.form import config_form, device_picker, preview
from workbench.ui.form.cautions import cautions, unsaid
from workbench.ui.form.draft import (
    CHOICE,
    DEVICES,
    NUMBER,
    PRESET_FOLDER,
    PRESETS,
    SWITCH,
    draft_of,
    kind_of,
    located,
    parsed,
    preset,
    shown,
    spec_data,
)
from workbench.ui.form.examine import bare, blamed, examine, plan
from workbench.ui.form.task_process import examined
from workbench.ui.text import table

ROOT = Path(__file__).parents[2]
FIELDS = sorted({f.name for a in ALGORITHMS.values() for f in dataclasses.fields(a.config)})
EXPERIMENTS = sorted(path.parent.name for path in ROOT.glob("experiments/*/spec.yaml") if path.parent.name in PRESETS)
TINY = {"name": "t", "task": "rendezvous", "algorithm": "magrpo", "model": "builtin:tiny"}
CPU = Cpu("a processor", 8, 2**35, 2**34)
TWO_GPUS = Hardware(CPU, (Gpu("cuda:0", 0, "GPU-aa", "H200"), Gpu("cuda:1", 1, "GPU-bb", "H200")))
TASK_FILE = """
from workbench.tasks import Task
TASK = Task(name="own", description="Say it.", num_agents=3, train_items=[{"prompt": "Say a word:"}],
            reward=lambda a, b, c: [0.0] * len(a), suggested_config={"max_new_tokens": 5})
"""


# --- presets and drafts ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_preset_is_the_experiment_of_its_name(name: str) -> None:
    shipped, experiment = (PRESET_FOLDER / f"{name}.yaml", ROOT / "experiments" / name / "spec.yaml")
    assert yaml.safe_load(shipped.read_text()) == yaml.safe_load(experiment.read_text())


def test_every_preset_is_on_the_page_with_words() -> None:
    assert {path.stem for path in PRESET_FOLDER.glob("*.yaml")} == set(PRESETS)
    assert len(EXPERIMENTS) == 4
    for name in PRESETS:
        assert {f"preset.{name}", f"preset.{name}.note"} <= set(table())


@pytest.mark.parametrize("name", PRESETS)
def test_the_form_makes_of_a_preset_the_run_that_its_file_makes(name: str, tmp_path: Path) -> None:
    draft = preset(name)
    data = spec_data(draft, examine(draft, tmp_path).base)
    from_file = RunSpec.load(PRESET_FOLDER / f"{name}.yaml").resolve()
    from_form = RunSpec.parse(yaml.safe_load(preview.as_yaml(data)), "form", tmp_path).resolve()
    assert from_form.config == from_file.config
    assert from_form.spec.model_copy(update={"config": {}}) == from_file.spec.model_copy(update={"config": {}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "line 1: this is not valid YAML"),
        ("name: x\nname: y", "'name' is written twice"),
        ("- 1", "but it is a list"),
        ("name: x\ntask: rendezvous\nalgorithm: magro\nmodel: m", "did you mean 'magrpo'"),
        ("name: x\ntask: rendezvous\nalgorithm: magrpo\nmodell: m", "did you mean 'model'"),
        (
            "name: x\ntask: rendezvous\nalgorithm: magrpo\nmodel: m\nconfig: {num_turn: 1}",
            "magrpo lacks (did you mean 'num_turns'?)",
        ),
        ("name: x\ntask: rendezvous\nalgorithm: iac\nmodel: m\nconfig: {use_separate_critic: perhaps}", "boolean"),
        ("name: x\ntask: rendezvous\nalgorithm: iac\nmodel: m\nconfig: {agent_devices: 3}", "agent_devices"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are compared below
        draft_of(text, "my.yaml", tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_value_out_of_range_is_kept_for_the_form_to_show(tmp_path: Path) -> None:
    draft = draft_of(yaml.safe_dump({**TINY, "config": {"num_turns": 0}}), "my.yaml", tmp_path)
    found = examine(spec_data(draft, examine(draft, tmp_path).base), tmp_path)
    assert (found.blamed, found.error) == ("num_turns", "num_turns: must be greater than or equal to 1, got 0.")


def test_local_files_become_absolute(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    data = located({**TINY, "task": "my.py:TASK", "model": "./model"}, tmp_path)
    assert data["task"] == f"{tmp_path}/my.py:TASK"
    assert data["model"] == str(tmp_path / "model")
    assert located({"name": ""}, tmp_path) == {"name": ""}


# --- fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_has_label_and_help_in_both_languages(name: str) -> None:
    configs = [a.config for a in ALGORITHMS.values() if name in a.config.__dataclass_fields__]
    assert set(table()[f"field.{name}"]) == {"en", "zh"}
    assert len(table()[f"help.{name}"]["zh"]) > 3
    assert all(len(config.__dataclass_fields__[name].metadata["help"]) > 10 for config in configs)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_field_stands_in_the_form_once(name: str) -> None:
    config = ALGORITHMS[name].config
    grouped = config_form.grouped(config)
    placed = [*config_form.names(config, "basic"), *(field for fields in grouped.values() for field in fields)]
    devices = [field for field in config.__dataclass_fields__ if kind_of(config, field) == DEVICES]
    assert sorted([*placed, *devices, *config_form.ELSEWHERE]) == sorted(config.__dataclass_fields__)
    assert "other" not in grouped
    assert all(f"launch.group.{group}" in table() for group in grouped)


def test_the_kind_of_a_field_follows_from_its_metadata() -> None:
    kinds = {name: kind_of(IACConfig, name) for name in ("seed", "shuffle", "critic_type", "agent_devices", "top_k")}
    assert kinds == {
        "seed": NUMBER,
        "shuffle": SWITCH,
        "critic_type": CHOICE,
        "agent_devices": DEVICES,
        "top_k": NUMBER,
    }
    assert "critic_type" not in config_form.names(MAGRPOConfig, "basic")
    assert "advantage_mode" in config_form.names(MAGRPOConfig, "basic")
    assert "advantage_mode" not in config_form.names(MAACConfig, "basic")


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [("agent_learning_rate", "5e-6", 5e-6), ("num_turns", " 3 ", 3), ("top_k", "", None), ("top_k", "7", 7),
     ("early_termination_threshold", "-0.2", -0.2), ("temperature", "1", 1.0)],
)  # fmt: skip
def test_what_is_typed_becomes_the_value(name: str, typed: str, value: object) -> None:
    assert parsed(MAGRPOConfig, name, typed) == value
    assert parsed(MAGRPOConfig, name, shown(value)) == value


@pytest.mark.parametrize(
    ("name", "typed"),
    [("num_turns", ""), ("num_turns", "1.5"), ("num_turns", "$(rm -rf /)"), ("temperature", "nan"), ("top_p", "1.1"),
     ("agent_learning_rate", "0"), ("joint_mode", "alined")],
)  # fmt: skip
def test_what_is_no_value_is_refused_by_name(name: str, typed: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        parsed(MAGRPOConfig, name, typed)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("num_generations must be at least 2 for MAGRPOConfig, got 1.", "num_generations"),
        ("config.num_turns is 2, but task 'x' has no transition to a second turn.", "num_turns"),
        ("Task 'x' has 2 agents, but agents lists 1 models.", "agents"),
        ("give either model (one for all agents) or agents (a list), not both.", "model"),
        ("something else entirely.", ""),
    ],
)
def test_an_error_finds_its_field(text: str, field: str) -> None:
    assert blamed(text, ["num_turns", "num_generations", "model", "agents"]) == field


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "count", "machine", "known", "key"),
    [
        (None, 2, TWO_GPUS, {}, None),
        ("cuda", 2, TWO_GPUS, {}, None),
        (["cuda:0", "cpu"], 2, TWO_GPUS, {}, None),
        ("cuda:0", 1, Hardware(CPU), {}, "device.gone"),
        (["cpu", "cuda:2"], 2, TWO_GPUS, {}, "device.gone"),
        ("cuda:0", 1, TWO_GPUS, {"cuda:0": "GPU-bb"}, "device.other"),
        ("cuda:0", 1, TWO_GPUS, {"cuda:0": "GPU-aa", "cuda:1": "GPU-xx"}, None),
        (["cpu", "cuda:0", "cuda:1"], 2, TWO_GPUS, {}, "device.count"),
    ],
)
def test_a_device_that_is_not_the_chosen_one_is_trouble(
    value: object, count: int, machine: Hardware, known: dict[str, str], key: str | None
) -> None:
    found = device_picker.troubles({"agent_devices": value}, {"agent_devices": count}, machine, known)
    assert [trouble[0] for trouble in found.values()] == ([key] if key else [])


def test_only_the_devices_that_matter_are_asked_for(tmp_path: Path) -> None:
    draft = {**TINY, "algorithm": "iac", "config": {}}
    base = examine(draft, tmp_path).base
    assert device_picker.fields_in_use(draft, base) == ["agent_devices"]
    draft["config"] = {"parallel_training": "mp", "reference_kl_enabled": True}
    assert set(device_picker.fields_in_use(draft, base)) == {"agent_devices", "reference_devices", "critic_devices"}
    draft["config"]["use_separate_critic"] = False
    assert set(device_picker.fields_in_use(draft, base)) == {"agent_devices", "reference_devices"}


# --- cautions and memory --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "config", "expected"),
    [
        ("magrpo", {"advantage_normalization": False}, {}),
        ("magrpo", {}, {"caution.normalised": False}),
        ("marloo", {}, {"caution.normalised": True}),
        ("maac", {}, {}),
        ("maac", {"critic_type": "q"}, {"caution.q": False}),
        ("maac", {"top_p": 0.9}, {"caution.truncated": True}),
        ("maac", {"top_k": 5}, {"caution.truncated": True}),
        ("maac", {"top_k": 0}, {}),
        ("maac", {"num_turns": 2, "num_generations": 1}, {"caution.threshold": False}),  # the task's 0.99
        ("maac", {"num_turns": 2, "num_generations": 1, "early_termination_threshold": -0.2},
         {"caution.threshold": True}),
        ("maac", {"num_turns": 2, "num_generations": 1, "early_termination_threshold": None}, {}),
    ],
)  # fmt: skip
def test_cautions(algorithm: str, config: dict[str, object], expected: dict[str, bool], tmp_path: Path) -> None:
    critic = {"critic": "builtin:tiny"} if algorithm == "maac" else {}
    found = examine({**TINY, **critic, "algorithm": algorithm, "config": config}, tmp_path)
    assert found.error is None
    said = cautions(found.config)
    assert {caution.key: caution.serious for caution in said} == expected
    assert all(caution.key in table() for caution in said)
    assert unsaid(found.warnings) == []


@pytest.mark.parametrize(("turns", "error"), [("1", None), ("2", "num_generations")])
def test_what_the_form_shows_is_what_the_run_gets(turns: str, error: str | None, tmp_path: Path) -> None:
    """On the command line an actor-critic over two turns leaves the suggested 16 out; the form shows it and objects."""
    draft = {**TINY, "algorithm": "maac", "critic": "builtin:tiny", "config": {"num_turns": turns}}
    base = examine(bare(draft), tmp_path).base
    assert base["num_generations"] == 16
    found = examine(spec_data(draft, base), tmp_path)
    assert found.blamed == (error or "")
    if error is None:
        assert found.config["num_generations"] == 16


def test_a_warning_that_no_caution_repeats_is_shown_as_it_is(tmp_path: Path) -> None:
    found = examine({**TINY, "config": {"discount": 0.9}}, tmp_path)
    assert unsaid(found.warnings) == ["discount is not used by the REINFORCE family: returns are undiscounted."]


def test_the_plan_counts_both_agents(tmp_path: Path) -> None:
    found = examine(TINY, tmp_path)
    devices = plan(TINY, found, tmp_path, Hardware(CPU)).devices
    weights = [part for part in devices[0].parts if part.kind == "weights"]
    # 98,816 parameters of 4 bytes, once per agent
    assert [(part.owner, part.bytes) for part in weights] == [("agent 0", 395_264), ("agent 1", 395_264)]


# --- tasks of one's own ---------------------------------------------------------------------------


def test_a_task_file_is_examined_in_a_process_of_its_own(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    talk = f"import os, pathlib\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\nprint('hello')\n"
    (tmp_path / "own.py").write_text(talk + TASK_FILE)
    found = examined({**TINY, "task": f"{tmp_path}/own.py:TASK"}, tmp_path)
    assert found.error is None
    assert found.card is not None
    assert (found.card.num_agents, found.card.prompts) == (3, ("Say a word:",) * 3)
    assert found.base["max_new_tokens"] == 5
    assert int(pid.read_text()) != os.getpid()
    assert not [name for name in sys.modules if name.startswith("workbench_task_own")]
    assert plan({**TINY, "task": "own.py:TASK"}, found, tmp_path, probe()).devices


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("import os\nos._exit(3)", "ended the process that loaded it (exit code 3)"),
        ("raise KeyError('x')", "failed to import on line 1: KeyError: 'x'"),
        ("TASK = 1", "TASK in "),
        ("import sys\nsys.exit('bye')", "failed to import on line 2: SystemExit: bye"),
    ],
)
def test_a_task_file_that_fails_is_one_sentence(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(content)
    found = examined({**TINY, "task": "bad.py:TASK"}, tmp_path)
    assert found.card is None
    assert found.blamed == "task"
    assert message in str(found.error)
    assert "\n" not in str(found.error)


def test_a_task_file_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.ui.form.task_process.SECONDS", 0.5)
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)")
    found = examined({**TINY, "task": "slow.py:TASK"}, tmp_path)
    assert "did not load within" in str(found.error)


# --- the run in other words -----------------------------------------------------------------------

HOSTILE = {
    **TINY,
    "name": "a'; touch hacked; echo $(touch hacked2) `touch hacked3` ../../x \"\n",
    "config": {"seed": 3},
}


def test_the_shell_command_writes_exactly_the_spec(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/workbench").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > arguments\n')
    (tmp_path / "bin/workbench").chmod(0o755)
    command = preview.as_shell(HOSTILE, Path("/some where/it's"))
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=True)
    written = preview.file_name(HOSTILE)
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "arguments", written}
    assert yaml.safe_load((tmp_path / written).read_text()) == HOSTILE
    assert (tmp_path / "arguments").read_text().splitlines() == ["train", written, "--workspace", "/some where/it's"]


@pytest.mark.parametrize(
    ("name", "file"),
    [("My Run", "my-run.yaml"), ("../../etc/x", "etc-x.yaml"), ("故事", "run.yaml"), ("-", "run.yaml")],
)
def test_the_file_is_named_after_the_run(name: str, file: str) -> None:
    assert preview.file_name({**TINY, "name": name}) == file


def test_the_python_script_trains(tmp_path: Path) -> None:
    config = {"num_train_epochs": 1, "num_generations": 2, "eval_interval": 0}
    data = {**TINY, "algorithm": "maac", "critic": "builtin:tiny", "config": config}
    script = tmp_path / "script.py"
    script.write_text(preview.as_python(data, examine(data, tmp_path).config))
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "t-model/agent_0").is_dir()
    assert (tmp_path / "t-model/agent_1").is_dir()


@pytest.mark.parametrize("name", PRESETS)
def test_the_script_has_the_configuration_of_the_run(name: str, tmp_path: Path) -> None:
    draft = preset(name)
    found = examine(draft, tmp_path)
    code = ast.parse(preview.as_python(spec_data(draft, found.base), found.config))
    config = ALGORITHMS[draft["algorithm"]].config
    (call,) = [n for n in ast.walk(code) if isinstance(n, ast.Call) and ast.unparse(n.func) == config.__name__]
    values = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert config(**values) == RunSpec.load(PRESET_FOLDER / f"{name}.yaml").resolve().config


def test_every_value_in_the_script_is_a_literal() -> None:
    hostile = '"""\nimport os; os.system("touch hacked")\n"""'
    data = {
        **TINY,
        "task": hostile,
        "model": hostile,
        "dataset": {"path": hostile},
        "model_config": {"revision": hostile},
    }
    code = preview.as_python(data, {"seed": 3})
    names = set(compile(code, "script", "exec").co_names)
    assert names == {"pathlib", "Path", "workbench", "MAGRPOConfig", "MAGRPOTrainer", "workbench.tasks", "load_task",
                     "workbench.tasks.base", "mean_per_key", "workbench.tasks.dataset", "DatasetSpec", "with_dataset",
                     "main", "__name__"}  # fmt: skip
