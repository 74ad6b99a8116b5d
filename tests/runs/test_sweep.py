"""Sweeps: what the file may say, and running, interrupting and going on, with real supervisors and fake trainings."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import filelock
import pytest
from fake_run import until, until_gone, until_training

from workbench.runs import trash
from workbench.runs.launch import launch, stop
from workbench.runs.spec import SpecError
from workbench.runs.sweep import Record, SweepFolder, has_work, run_sweep, state_of
from workbench.runs.sweep_spec import Member, Sweep, load_sweep
from workbench.runs.workspace import RunFolder, RunStatus, Workspace, WorkspaceError

TWO = """
name: two
base: {task: rendezvous, model: builtin:tiny, tracking: {mlflow: false}, config: {num_generations: 4}}
grid: {algorithm: [magrpo, marloo]}
seeds: [0, 1]
"""
SAME = "algorithm: magrpo"


def sweep_of(folder: Path, text: str) -> Sweep:
    (folder / "sweep.yaml").write_text(text)
    return load_sweep(folder / "sweep.yaml")


# --- the file ------------------------------------------------------------------------------------


def test_the_grid_becomes_one_resolved_run_per_choice_and_seed(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, TWO + "metric: eval/turn_1/met\n")
    assert [member.key for member in sweep.members] == [
        "algorithm=magrpo, seed=0",
        "algorithm=magrpo, seed=1",
        "algorithm=marloo, seed=0",
        "algorithm=marloo, seed=1",
    ]
    assert (sweep.factor, sweep.named, sweep.metric) == ("algorithm", ("algorithm",), "eval/turn_1/met")
    last = sweep.members[-1].resolved
    assert (last.algorithm.name, last.config.seed, last.config.num_generations) == ("marloo", 1, 4)
    assert last.config.max_new_tokens == 2  # the task suggests it
    assert last.spec.name == "two algorithm=marloo, seed=1"
    assert sweep.members[0].cell == "algorithm=magrpo"


def test_two_keys_make_a_product_and_the_factor_is_named(tmp_path: Path) -> None:
    text = TWO.replace("marloo]}", "marloo], config.advantage_normalization: [true, false]}").replace("[0, 1]", "[3]")
    sweep = sweep_of(tmp_path, text + "factor: algorithm\n")
    assert [member.cell for member in sweep.members] == [
        "algorithm=magrpo, advantage_normalization=true",
        "algorithm=magrpo, advantage_normalization=false",
        "algorithm=marloo, advantage_normalization=true",
        "algorithm=marloo, advantage_normalization=false",
    ]
    assert sweep.members[1].resolved.config.advantage_normalization is False  # type: ignore[attr-defined]
    assert sweep.members[0].resolved.config.advantage_normalization is True  # type: ignore[attr-defined]


def test_labelled_cases_set_several_keys_and_paths_start_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "spec.yaml").write_text("name: x\ntask: rendezvous\nalgorithm: magrpo\nmodel: builtin:tiny\n")
    (tmp_path / "weights").mkdir()
    text = """
    name: cases
    spec: sub/spec.yaml
    factor:
      - {label: team, config.num_generations: 4}
      - {label: critic, algorithm: maac, critic: ./weights, config.agent_learning_rate: 1e-4}
    """
    sweep = sweep_of(tmp_path, text)
    assert (sweep.factor, [member.key for member in sweep.members]) == (
        "case",
        ["case=team, seed=0", "case=critic, seed=0"],
    )
    team, critic = (member.resolved.spec for member in sweep.members)
    assert (team.algorithm, team.critic, team.config["num_generations"]) == ("magrpo", None, 4)
    assert (critic.algorithm, critic.critic) == ("maac", str(tmp_path / "weights"))
    assert sweep.members[1].resolved.config.agent_learning_rate == 1e-4
    assert sweep.named == ("config.num_generations", "algorithm", "critic", "config.agent_learning_rate")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("seeds:", "seed:"), "unknown key 'seed' (did you mean 'seeds'?)"),
        (("name: two", "title: two"), "unknown key 'title'"),
        (("name: two\n", ""), "the key 'name' is missing"),
        (("seeds: [0, 1]", "seeds: [0, 0]"), "seeds must be a list of different whole numbers"),
        (("seeds: [0, 1]", "seeds: [yes]"), "seeds must be a list of different whole numbers"),
        (("seeds: [0, 1]", "seeds: 3"), "seeds must be a list of different whole numbers"),
        (("[magrpo, marloo]", "magrpo"), "grid.algorithm must be a list of at least one value, got 'magrpo'"),
        (("[magrpo, marloo]", "[]"), "grid.algorithm must be a list of at least one value"),
        (("[magrpo, marloo]", "[magrpo, magrpo]"), "grid.algorithm lists a value twice"),
        (("[magrpo, marloo]", "[magrpo, marlo]"), "run algorithm=marlo, seed=0: There is no algorithm 'marlo' (did"),
        (("{algorithm:", "{algorthm:"), "a run spec has no key 'algorthm' (did you mean 'algorithm'?)"),
        (("{algorithm: [magrpo, marloo]}", "{config.seed: [1, 2]}"), "config.seed cannot be varied, since the seeds"),
        (("{algorithm: [magrpo, marloo]}", "{name: [a, b]}"), "name cannot be varied"),
        (("{algorithm: [magrpo, marloo]}", "{tracking.mlflow: [true]}"), "tracking.mlflow cannot be varied"),
        (("grid: {algorithm: [magrpo, marloo]}", ""), "there is nothing to compare"),
        (("num_generations: 4", "num_generation: 4"), "(did you mean 'num_generations'?)"),
        (("base: {", "spec: x.yaml\nbase: {"), "give either base (a run spec without its name) or spec"),
        (("base: {", "base: {name: x, "), "base.name is not needed"),
        (("seeds:", "factor: algorithms\nseeds:"), "'algorithms' is not in the grid (did you mean 'algorithm'?)"),
        (("marloo]}", "marloo], model: [builtin:tiny]}"), "factor must be one of algorithm, model"),
        (("seeds:", "factor: [{algorithm: magrpo}]\nseeds:"), "every case needs a label"),
        (("seeds:", "factor: [{label: a, task: x}, {label: a}]\nseeds:"), "the label 'a' is given to two cases"),
        (("seeds:", "factor: [{label: a, algorithm: maac}]\nseeds:"), "algorithm is set by both factor and grid"),
        (("{algorithm: [magrpo, marloo]}", "{model.size: [1]}"), "model.size cannot be set, since model is"),
        (("grid: {algorithm: [magrpo, marloo]}", f"factor: [{{label: a, {SAME}}}, {{label: b, {SAME}}}]"),
         "the runs case=a, seed=0 and case=b, seed=0 come out the same"),
        (("name: two", "name: [two"), "not valid YAML"),
    ],
)  # fmt: skip
def test_each_mistake_is_one_sentence(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in TWO
    with pytest.raises(SpecError) as caught:
        sweep_of(tmp_path, TWO.replace(*change))
    message = str(caught.value)
    assert said in message
    assert "sweep.yaml" in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml does not exist"):
        load_sweep(tmp_path / "nowhere.yaml")


# --- running -------------------------------------------------------------------------------------


class Notes:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        self.ended: list[tuple[str, str]] = []

    def begins(self, number: int, member: Member, run: RunFolder, how: str) -> None:
        self.begun.append((member.key, how))

    def looks(self, status: RunStatus) -> None: ...

    def ends(self, number: int, member: Member, run: RunFolder, status: RunStatus) -> None:
        self.ended.append((member.key, status.state))


def go(space: Workspace, sweep: Sweep, retry_failed: bool = False) -> tuple[bool, Notes]:
    notes = Notes()
    return run_sweep(space, sweep, notes, retry_failed, trainer="sweep_trainer"), notes


def behave(space: Workspace, **by_seed: str) -> None:
    space.root.mkdir(exist_ok=True)
    (space.root / "behaviour.json").write_text(json.dumps({key.removeprefix("seed"): v for key, v in by_seed.items()}))


def starts(space: Workspace) -> list[str]:
    return (space.root / "starts.txt").read_text().splitlines()


def test_a_failed_run_stops_nothing_and_is_tried_again_on_request(space: Workspace, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, TWO)
    behave(space, seed1="fail")
    assert has_work(space, sweep)
    complete, notes = go(space, sweep)
    assert not complete
    assert [state for _, state in notes.ended] == ["finished", "failed", "finished", "failed"]
    assert starts(space) == ["train magrpo 0", "train magrpo 1", "train marloo 0", "train marloo 1"]
    runs = SweepFolder(space, sweep).runs()
    assert list(runs) == [member.key for member in sweep.members]
    assert runs["algorithm=marloo, seed=1"].spec() == sweep.members[3].resolved.spec
    assert state_of(runs["algorithm=marloo, seed=1"]).error == "The reward broke."

    behave(space)
    assert not has_work(space, sweep)
    complete, notes = go(space, sweep)  # nothing to do without --retry-failed
    assert (complete, notes.begun, len(starts(space))) == (False, [], 4)
    assert has_work(space, sweep, retry_failed=True)
    complete, notes = go(space, sweep, retry_failed=True)
    assert complete
    assert notes.begun == [("algorithm=magrpo, seed=1", "resumed"), ("algorithm=marloo, seed=1", "resumed")]
    assert starts(space)[4:] == ["resume magrpo 1", "resume marloo 1"]
    assert len(space.runs()) == 4  # no run was made twice


def test_the_first_interrupt_saves_and_the_next_call_goes_on(space: Workspace, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, TWO.replace("[magrpo, marloo]", "[magrpo]").replace("[0, 1]", "[0, 1, 2]"))
    behave(space, seed1="wait")

    def interrupt() -> None:
        until(lambda: len(space.runs()) == 2)
        run = next(run for run in space.runs() if run.spec().config["seed"] == 1)
        until_training(run)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(space, sweep, notes, trainer="sweep_trainer")
    other.join()
    assert notes.ended == [("algorithm=magrpo, seed=0", "finished"), ("algorithm=magrpo, seed=1", "stopped")]
    behave(space)
    complete, notes = go(space, sweep)
    assert complete
    assert notes.begun == [("algorithm=magrpo, seed=1", "resumed"), ("algorithm=magrpo, seed=2", "started")]
    assert starts(space) == ["train magrpo 0", "train magrpo 1", "resume magrpo 1", "train magrpo 2"]


def test_a_sweep_that_died_finds_its_running_run_and_the_one_it_could_not_note(
    space: Workspace, tmp_path: Path
) -> None:
    sweep = sweep_of(tmp_path, TWO.replace("[magrpo, marloo]", "[magrpo]"))
    behave(space, seed0="wait")
    first, second = sweep.members
    # As left by a sweep killed between the launch and the note: the first is known by its token alone.
    from workbench.runs.sweep import _Runner

    folder = SweepFolder(space, sweep)
    token = _Runner(folder, Notes(), False, "sweep_trainer")._token(first)
    run = launch(space, first.resolved.spec, token, "sweep_trainer")
    until_training(run)
    assert folder.record() == Record()
    waiting = threading.Thread(target=lambda: (until(lambda: folder.record().members), stop(run)))
    waiting.start()
    complete, notes = go(space, sweep)
    waiting.join()
    assert not complete
    assert notes.ended == [(first.key, "stopped"), (second.key, "finished")]
    assert folder.runs()[first.key].id == run.id
    assert len(space.runs()) == 2


def test_a_deleted_run_is_started_anew_and_changed_settings_are_refused(space: Workspace, tmp_path: Path) -> None:
    one = TWO.replace("[magrpo, marloo]", "[magrpo]").replace("[0, 1]", "[0]")
    sweep = sweep_of(tmp_path, one)
    assert go(space, sweep)[0]
    (run,) = space.runs()
    changed = sweep_of(tmp_path, one.replace("num_generations: 4", "num_generations: 8"))
    with pytest.raises(SpecError, match=r"config\.num_generations: 4 then, 8 now"):
        go(space, changed)
    more = sweep_of(tmp_path, one.replace("[0]", "[0, 5]"))  # only adds a run
    assert go(space, more)[0]
    assert starts(space) == ["train magrpo 0", "train magrpo 5"]
    until_gone(run)
    trash.delete(space, run)
    assert has_work(space, more)
    assert go(space, more)[0]
    assert starts(space)[2:] == ["train magrpo 0"]


def test_one_process_directs_a_sweep_and_a_damaged_note_is_named(space: Workspace, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, TWO)
    folder = SweepFolder(space, sweep)
    assert folder.runs() == {}
    assert not folder.path.exists()  # looking creates nothing
    with folder.sole_use():
        assert filelock.FileLock(folder.path / ".lock").lock_file
        with pytest.raises(WorkspaceError, match="'two' is run by another process already"):
            go(space, sweep)
    (folder.path / "sweep.json").write_text("{")
    with pytest.raises(WorkspaceError, match=r"sweep\.json is damaged"):
        go(space, sweep)


def test_names_that_look_alike_have_folders_of_their_own(tmp_path: Path) -> None:
    ids = {sweep_of(tmp_path, TWO.replace("name: two", f"name: {name}")).id for name in ("a b", "a-b", "ａ", "../x")}
    assert len(ids) == 4
    assert all("/" not in one and "." not in one for one in ids)
