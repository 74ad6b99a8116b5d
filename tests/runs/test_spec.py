"""The run spec: reading, overrides, resolving, and one sentence for each way it can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.runs.spec import RunSpec, SpecError
from workbench.tasks import TaskError

SPEC = """
name: t
task: rendezvous
algorithm: magrpo
model: builtin:tiny
config: {agent_learning_rate: 5e-6}
"""
TASK = """
from workbench.tasks import Task
TASK = Task(name="mine", num_agents=3, train_items=[{"prompt": "x"}], reward=lambda *texts: [0.0] * len(texts[0]))
TYPO = Task(name="typo", train_items=[{"prompt": "x"}], reward=TASK.reward, suggested_config={"num_turn": 1})
GROUP = Task(name="group", train_items=[{"prompt": "x"}], reward=TASK.reward, suggested_config={"num_generations": 8},
             transition=lambda agent_completions, **rest: list(agent_completions))
OTHER = Task(name="other", train_items=[{"prompt": "x"}], reward=TASK.reward, suggested_config={"num_turns": 2})
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "my_task.py").write_text(TASK)
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


def test_the_tasks_suggestions_come_first_and_the_specs_values_win(file: Path) -> None:
    run = RunSpec.load(file, ["config.num_generations=6"]).resolve()
    assert run.config.max_new_tokens == 2  # suggested by rendezvous
    assert run.config.num_generations == 6  # suggested 16
    assert run.config.agent_learning_rate == 5e-6  # YAML reads 5e-6 as text
    assert run.config.top_p == 1.0  # nobody said anything
    assert "top_p" not in run.spec.config  # so that another algorithm's defaults still apply to a copy


@pytest.mark.parametrize(("algorithm", "turns", "generations"), [
    ("maac", 1, 16), ("maac", 2, 1), ("iac", 2, 1), ("magrpo", 2, 16),
])  # fmt: skip
def test_a_suggested_group_is_not_for_an_actor_critic_over_several_turns(
    file: Path, algorithm: str, turns: int, generations: int
) -> None:
    critic = [] if algorithm == "magrpo" else ["critic=builtin:tiny"]
    run = RunSpec.load(file, [f"algorithm={algorithm}", f"config.num_turns={turns}", *critic]).resolve()
    assert run.config.num_generations == generations


def test_the_number_of_turns_that_nobody_names_is_the_algorithms(file: Path) -> None:
    overrides = ["task=my_task.py:GROUP", "algorithm=iac", "critic=builtin:tiny"]
    run = RunSpec.load(file, overrides).resolve()
    assert (run.config.num_turns, run.config.num_generations) == (2, 1)
    run = RunSpec.load(file, [*overrides, "config.num_turns='1'"]).resolve()
    assert (run.config.num_turns, run.config.num_generations) == (1, 8)


def test_a_resolved_spec_survives_the_file(file: Path) -> None:
    spec = RunSpec.load(file, ["task=my_task.py:TASK", "model=null", "agents=[builtin:tiny, builtin:tiny, a/b]"])
    resolved = spec.resolve().spec
    copy = file.parent / "elsewhere" / "spec.yaml"
    copy.parent.mkdir()
    copy.write_text(resolved.dump())
    assert RunSpec.load(copy) == resolved
    assert RunSpec.load(copy).resolve().spec == resolved


def test_a_task_without_a_transition_has_one_turn(file: Path) -> None:
    run = RunSpec.load(file, ["task=my_task.py:TASK"]).resolve()
    assert (run.config.num_turns, run.config.num_agents) == (1, 3)


def test_local_models_become_absolute_and_other_names_stay(file: Path) -> None:
    (file.parent / "weights").mkdir()
    spec = RunSpec.load(file, ["model=null", "agents=[weights, ./gone, org/name, builtin:tiny]"])
    folder = file.parent
    assert spec.agents == [str(folder / "weights"), str(folder / "gone"), "org/name", "builtin:tiny"]


def test_overrides_reach_new_and_nested_keys(file: Path) -> None:
    spec = RunSpec.load(file, ["model_config.lora.r=4", "tracking.mlflow=false", "name=x=y", "config.top_k=null"])
    assert spec.model_options == {"lora": {"r": 4}}
    assert spec.tracking.mlflow is False
    assert spec.name == "x=y"
    assert spec.config == {"agent_learning_rate": "5e-6", "top_k": None}


def test_an_empty_group_is_empty(file: Path) -> None:
    file.write_text(SPEC.replace("config: {agent_learning_rate: 5e-6}", "config:\ntracking:\n"))
    assert RunSpec.load(file).config == {}


def test_warnings_of_the_configuration_are_kept(file: Path) -> None:
    (message,) = RunSpec.load(file, ["config.discount=0.5"]).resolve().warnings
    assert "discount is not used" in message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("modl=3", r"unknown key 'modl' \(did you mean 'model'\?\)"),
        ("tracking.experimnt=3", r"unknown key 'tracking.experimnt' \(did you mean 'experiment'\?\)"),
        ("config.num_turn=2", r"no field 'num_turn' \(did you mean 'num_turns'\?\)"),
        ("config.num_turns=x", "num_turns: must be a valid integer.*got 'x'"),
        ("config.num_turns=0", "num_turns: must be greater than or equal to 1, got 0"),
        ("config.num_agents=3", "config.num_agents is 3, but task 'rendezvous' has 2 agents"),
        ("agents=[a, b]", "either model .* or agents .*, not both"),
        ("model=null", "not neither"),
        ("agents=a", "agents must be a list of model names, got 'a'"),
        ("critic={a: 1}", "critic must be a model name or a list of them"),
        ("critic=builtin:tiny", "critic is set, but magrpo has no critic"),
        ("config={3: 4}", "no field '3'"),
        ("config=3", "config must be a group of keys"),
        ("tracking=3", "tracking must be a group of keys"),
        ("tracking.mlflow=[1]", "tracking.mlflow must be true, false or a tracking URI"),
        ("name=", "name must be a text, got None"),
        ("name=''", "name must not be empty"),
        ("task=' '", "task must not be empty"),
        ("model=''", "model must not be empty"),
        ("model=' '", "model must not be empty"),
        ("agents=[a, '']", r"agents\[1\] must not be empty"),
        ("critic=''", "critic must not be empty"),
        ("critic=[a, '']", r"critic\[1\] must not be empty"),
        ("tracking.mlflow=3", "tracking.mlflow must be true, false or a tracking URI, got 3"),
        ("tracking.mlflow=0", "tracking.mlflow must be true, false or a tracking URI, got 0"),
        ("tracking.mlflow=''", "tracking.mlflow must not be empty"),
        ("tracking.experiment=''", "tracking.experiment must not be empty"),
        ("algorithm=grpo", r"no algorithm 'grpo' \(did you mean 'magrpo'\?\)"),
        ("task=rendezvos", r"no task 'rendezvos' \(did you mean 'rendezvous'\?\)"),
        ("task=gone.py:TASK", "gone.py does not exist"),
        ("task=my_task.py:TYPO", r"'num_turn', which no algorithm knows \(did you mean 'num_turns'\?\)"),
        ("task=my_task.py:OTHER", "no transition to a second turn"),
        ("config", "--set takes KEY=VALUE"),
        (".a=1", "--set takes KEY=VALUE"),
        ("name.a=1", "name is 't', not a group of keys"),
        ("name=[1", "not valid YAML"),
    ],
)
def test_each_bad_value_is_one_sentence(file: Path, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        RunSpec.load(file, [override]).resolve()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "must hold keys such as name:.*it is empty"),
        (b"- a\n- b\n", "it is a list"),
        (b"name: t\ntask: [a\nalgorithm: b\n", "line 3: this is not valid YAML"),
        (b"name: t\n\tname: u\n", "line 2: this is not valid YAML"),
        (b"name: t\nname: u\n", "line 2: .*the key 'name' is written twice"),
        (b"name: t\n", "the key 'task' is missing"),
        (b"name: t\ntsk: rendezvous\n", r"unknown key 'tsk' \(did you mean 'task'\?\)"),
        (b"\xff\xfe\x00", "not a text file in UTF-8"),
        (b"name: \x01\n", "not valid YAML"),
        (b"? [a, b]\n: 1\n", "not valid YAML"),
    ],
)
def test_each_bad_file_is_one_sentence(file: Path, text: bytes, message: str) -> None:
    file.write_bytes(text)
    with pytest.raises(SpecError, match=message) as caught:
        RunSpec.load(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["2026-13-45", "!!int x", "!!bool x", "!!timestamp x", "[" * 3000])
def test_a_value_that_yaml_cannot_read_is_one_sentence(tmp_path: Path, value: str) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(f"name: {value}\n")
    with pytest.raises(SpecError, match=r"spec\.yaml: this is not valid YAML: (a value cannot be read|it is nested)"):
        RunSpec.load(file)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gone\.yaml does not exist"):
        RunSpec.load(tmp_path / "gone.yaml")
    with pytest.raises(SpecError, match="is a folder"):
        RunSpec.load(tmp_path)


def test_the_number_of_models_must_fit_the_task(file: Path) -> None:
    with pytest.raises(SpecError, match=r"has 2 agents, but agents lists 1 models"):
        RunSpec.load(file, ["model=null", "agents=[a]"]).resolve()


def test_task_errors_are_of_their_own_kind(file: Path) -> None:
    with pytest.raises(TaskError):
        RunSpec.load(file, ["task=nothing"]).resolve()
