"""Playing in a process of its own: real models and real processes that are cancelled, replaced, killed or too slow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import psutil
import pydantic
import pytest
import torch
from fake_run import until

from workbench.runs import trash
from workbench.runs.build import build_trainer
from workbench.runs.memory_plan import CACHE, GRADIENTS, OPTIMIZER, PROGRAM, WEIGHTS, DevicePlan, MemoryPlan, Part
from workbench.runs.play_process import (
    CANCELLED,
    DONE,
    FAILED,
    FOLDER,
    KEPT,
    RUNNING,
    VANISHED,
    Play,
    PlayRequest,
    cancel,
    plays,
    read_play,
    shortage,
    start_play,
)
from workbench.runs.player import episodes
from workbench.runs.processes import Identity, marked
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace, WorkspaceError
from workbench.types import Completion, Node, RolloutTree

GIB = 2**30
HANGS = "import time\ntime.sleep(600)\n"
FAILS = """
from workbench.tasks import Task

def reward(first, second):
    raise KeyError("no such colour")

TASK = Task(name="broken", train_items=[{"prompt": "Say a colour:"}], reward=reward)
"""
APP = """
import sys, time
from pathlib import Path
from workbench.runs.play_process import PlayRequest, start_play
from workbench.runs.workspace import RunFolder
print(start_play(RunFolder(Path(sys.argv[1])), PlayRequest()).id, "torch" in sys.modules, flush=True)
time.sleep(600)
"""


def data(task: str = "rendezvous") -> dict:
    return {"name": "play", "task": task, "algorithm": "magrpo", "model": "builtin:tiny",
            "config": {"max_new_tokens": 4, "num_turns": 2} if task == "rendezvous" else {}}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run whose final model and checkpoint 0 are the initial models."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("space")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resolved = RunSpec.parse(data(), "test", root).resolve()
        trainer = build_trainer(resolved)
    run = Workspace(root).create_run(resolved.spec)
    trainer.save_model(run.model_folder)
    trainer.checkpoint_dir = run.checkpoint_folder
    trainer.save_checkpoint()
    run.write_status(RunStatus("finished", step=1, total=1, started=1.0, ended=2.0))
    return run


@pytest.fixture
def hanging(tmp_path: Path):
    """A run whose task never finishes loading."""
    run = with_task(tmp_path, HANGS)
    yield run
    for play in plays(run):
        cancel(play)


def with_task(root: Path, code: str) -> RunFolder:
    (root / "task.py").write_text(code)
    return Workspace(root).create_run(RunSpec.parse(data("task.py:TASK"), "test", root))


def ended(run: RunFolder, play: Play) -> Play:
    """The play once it no longer runs."""
    until(lambda: now(run, play).state != RUNNING)
    return now(run, play)


def now(run: RunFolder, play: Play) -> Play:
    found = read_play(run, play.id)
    assert found is not None
    return found


def living(play: Play) -> list[Identity]:
    """The living processes of a play, which name its folder on their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(play.folder) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(Identity.of(process.pid))
        except psutil.Error:
            continue
    return found


# --- real models ----------------------------------------------------------------------------------


def test_equal_models_write_the_same_and_samples_differ(saved: RunFolder) -> None:
    play = ended(saved, start_play(saved, PlayRequest(item=1, samples=3)))
    assert play.state == DONE, play.record.error
    assert play.record.trained == play.record.untrained  # same seed, and the weights are the initial ones
    assert play.record.trained is not None and len(play.record.trained) == 3
    texts = {tuple(text.text for turn in episode for text in turn.texts) for episode in play.record.trained}
    assert len(texts) == 3
    first, second = play.record.trained[0]
    assert (first.turn, second.turn) == (1, 2)
    assert "Choose from A B C D:" in first.texts[0].prompt  # item 1 of the rendezvous
    assert "You wrote" in second.texts[1].prompt  # the task's transition
    assert all(1 <= text.tokens <= 4 and (text.finished or text.tokens == 4) for text in first.texts)
    assert first.agent_rewards == (first.reward, first.reward)
    until(lambda: not living(play))


def test_a_prompt_of_ones_own_at_a_checkpoint(saved: RunFolder) -> None:
    prompt = "$(touch /tmp/never); `ls` <b>Wählt A?</b>"
    play = ended(saved, start_play(saved, PlayRequest(prompt=prompt, checkpoint=0)))
    assert play.state == DONE, play.record.error
    assert play.record.trained is not None
    assert play.record.trained[0][0].texts[0].prompt == prompt
    assert play.request.prompt == prompt


def test_only_the_untrained_team(saved: RunFolder) -> None:
    play = ended(saved, start_play(saved, PlayRequest(trained=False)))
    assert play.record.trained is None and play.record.untrained is not None


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (PlayRequest(item=99), "has items 0 to 3; there is no item 99."),
        (PlayRequest(checkpoint=7), "has no checkpoint of step 7; there are 0."),
    ],
)
def test_what_is_not_there_is_one_sentence(saved: RunFolder, request_: PlayRequest, said: str) -> None:
    play = ended(saved, start_play(saved, request_))
    assert play.state == FAILED
    assert (play.record.error or "").endswith(said)


def test_a_reward_that_fails_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    run = with_task(tmp_path, FAILS)
    play = ended(run, start_play(run, PlayRequest(trained=False)))
    said = play.record.error or ""
    assert play.state == FAILED and "no such colour" in said and "task.py, line 5" in said and "\n" not in said


def test_why_an_episode_would_have_ended() -> None:
    def node(turn: int, reward: float | None) -> Node:
        text = Completion("p", (1,), "t", (2, 3), finished=turn == 1, logprob=-1.0)
        agents = tuple((reward,) for _ in range(2))
        return Node(0, turn, ("p", "p"), completions=((text,), (text,)), rewards=(reward,), agent_rewards=agents)

    (played,) = episodes([RolloutTree([node(1, 0.5), node(2, 0.6), node(3, None)])], threshold=0.5)
    assert [turn.enough for turn in played] == [False, True, False]  # above, not at, the threshold
    assert [turn.texts[0].finished for turn in played] == [True, False, False]
    assert played[0].texts[1].tokens == 2 and played[2].reward is None


# --- ends -----------------------------------------------------------------------------------------


def test_cancelling_ends_the_process(hanging: RunFolder) -> None:
    play = start_play(hanging, PlayRequest())
    assert play.state == RUNNING and len(living(play)) == 1
    cancel(now(hanging, play))
    until(lambda: not living(play))
    assert now(hanging, play).state == FAILED and now(hanging, play).record.error == CANCELLED


def test_a_run_that_is_played_is_not_deleted(hanging: RunFolder) -> None:
    space = Workspace(hanging.path.parents[1])
    play = start_play(hanging, PlayRequest())
    with pytest.raises(WorkspaceError, match="is being played; cancel that"):
        trash.delete(space, hanging)
    cancel(play)
    trash.delete(space, hanging)
    assert space.runs() == []


def test_a_new_play_replaces_the_running_one(hanging: RunFolder) -> None:
    first = start_play(hanging, PlayRequest())
    second = start_play(hanging, PlayRequest(item=1))
    assert not living(first) and living(second)
    assert [play.state for play in plays(hanging)] == [RUNNING, FAILED]  # the newest first


def test_the_time_limit(hanging: RunFolder) -> None:
    play = ended(hanging, start_play(hanging, PlayRequest(seconds=0.5)))
    assert (play.record.error or "").startswith("Playing took longer than 0 seconds and was ended")
    until(lambda: not living(play))


def test_killed_from_outside(hanging: RunFolder) -> None:
    play = start_play(hanging, PlayRequest())
    living(play)[0].send(signal.SIGKILL)
    assert ended(hanging, play).record.error == VANISHED


def test_an_app_that_is_killed_leaves_no_player(hanging: RunFolder) -> None:
    app = subprocess.Popen([sys.executable, "-c", APP, str(hanging.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert app.stdout is not None
        name, heavy = app.stdout.readline().split()
        assert heavy == "False"
        play = read_play(hanging, name)
        assert play is not None and play.state == RUNNING and living(play)
    finally:
        os.kill(app.pid, signal.SIGKILL)
        app.wait()
    until(lambda: not living(play))
    assert now(hanging, play).record.error == VANISHED


def test_old_plays_are_forgotten(hanging: RunFolder) -> None:
    made = [start_play(hanging, PlayRequest(item=i)) for i in range(KEPT + 2)]
    assert [play.id for play in plays(hanging)] == [play.id for play in reversed(made[2:])]
    assert read_play(hanging, made[0].id) is None
    assert read_play(hanging, "../checkpoints") is None


def test_a_damaged_record_is_one_sentence(hanging: RunFolder) -> None:
    play = start_play(hanging, PlayRequest())
    cancel(now(hanging, play))
    (play.folder / "record.json").write_text('{"stage": 3}')
    assert "record.json cannot be read" in (now(hanging, play).record.error or "")
    (play.folder / "request.json").write_text("{")
    assert plays(hanging) == []


@pytest.mark.parametrize("change", [{"samples": 0}, {"samples": 17}, {"prompt": ""}, {"item": -1}, {"seconds": 0}])
def test_requests_out_of_bounds_start_nothing(hanging: RunFolder, change: dict) -> None:
    with pytest.raises(pydantic.ValidationError):
        start_play(hanging, PlayRequest(**change))
    assert not (hanging.path / FOLDER).exists()
    assert marked(f"play:{hanging.path}") == []


# --- memory ---------------------------------------------------------------------------------------


def plan(free: int | None) -> MemoryPlan:
    """Weights 2 + 1, program 1, optimizers 4 GiB; gradients and cache do not count: 4, restored 8."""
    sizes = [(WEIGHTS, 2), (WEIGHTS, 1), (PROGRAM, 1), (OPTIMIZER, 4), (GRADIENTS, 50), (CACHE, 50)]
    parts = tuple(Part("agent 0", kind, size * GIB) for kind, size in sizes)
    return MemoryPlan((DevicePlan("cuda:0", parts, 99 * GIB, free),), (), 10)


@pytest.mark.parametrize(
    ("free", "restored", "fits"), [(4, False, True), (3, False, False), (7, True, False), (8, True, True)]
)
def test_what_cannot_fit_is_refused(free: int, restored: bool, fits: bool) -> None:
    assert (shortage(plan(free * GIB), restored) is None) == fits


def test_the_refusal_names_the_device_and_who_is_in_the_way() -> None:
    assert shortage(plan(None), True) is None  # the device does not tell
    said = shortage(plan(3 * GIB), False, ["run-a"])
    assert said == (
        "Playing needs at least 4.0 GiB on cuda:0, where 3.0 GiB is free while run-a trains; wait for its end, or "
        "stop it."
    )
    assert (shortage(plan(3 * GIB), False) or "").endswith("where 3.0 GiB is free; free some first.")


def test_a_model_that_cannot_fit_is_refused_before_it_loads(tmp_path: Path) -> None:
    """Two agents of 1 TiB each, in a file without a single block on disk."""
    folder = tmp_path / "huge"
    folder.mkdir()
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256}
    (folder / "config.json").write_text(json.dumps(sizes))
    with (folder / "pytorch_model.bin").open("wb") as file:
        file.truncate(1024 * GIB)
    spec = data() | {"model": "./huge", "config": {"num_turns": 1, "agent_devices": "cpu"}}
    run = Workspace(tmp_path).create_run(RunSpec.parse(spec, "test", tmp_path))
    play = ended(run, start_play(run, PlayRequest(trained=False)))
    assert play.state == FAILED
    assert (play.record.error or "").startswith("Playing needs at least 2048.6 GiB on cpu, where ")  # program: 650 MiB
