"""The play page: the form, a real play of both teams, cancelling, failures, broken runs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from opened import SECONDS, opened, words

from workbench.runs.play_process import CANCELLED, DONE, RUNNING, PlayRequest, cancel, plays, start_play
from workbench.runs.processes import Identity
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder, RunStatus, Workspace

Copied = Callable[[str, str], RunFolder]


def settled(run: RunFolder) -> None:
    """Wait until nothing plays."""
    deadline = time.monotonic() + SECONDS
    while any(play.state == RUNNING for play in plays(run)):
        assert time.monotonic() < deadline, "it still plays"
        time.sleep(0.1)


def test_an_empty_workspace_says_what_to_do(shown: Workspace) -> None:
    assert "There are no runs" in words(opened("play"))


@pytest.mark.parametrize(("lang", "said"), [("en", "Nothing has been played"), ("zh", "还没有试玩记录")])
def test_before_the_first_play(copied: Copied, lang: str, said: str) -> None:
    copied("maac", "fresh")
    assert said in words(opened("play", lang=lang))


def test_both_teams_side_by_side(copied: Copied) -> None:
    run = copied("magrpo", "played")
    at = opened("play", run=run.id)
    at.selectbox(key="play-item-rendezvous").set_value(2).run()
    at.button(key="play-start").click().run()
    assert not at.exception
    (play,) = plays(run)
    assert at.query_params["play"] in (play.id, [play.id])
    assert play.request == PlayRequest(item=2, samples=2)
    settled(run)
    at = opened("play", run=run.id, play=play.id)  # another tab finds it
    (play,) = plays(run)
    assert play.state == DONE, play.record.error
    assert [head.value for head in at.subheader] == ["Final model", "Before training"]
    assert [metric.label for metric in at.metric] == ["Mean reward per turn"] * 2
    assert play.record.trained is not None and play.record.untrained is not None
    shown = [code.value for code in at.code]
    for team in (play.record.trained, play.record.untrained):
        for turn in team[0]:
            for text in turn.texts:
                assert text.prompt in shown and (text.text or "(nothing)") in shown
    assert "Ended after turn 2, the last one of this run." in words(at)
    assert "Meet at A B C D:" in "".join(shown)  # item 2


def test_a_prompt_is_needed_when_it_is_asked_for(copied: Copied) -> None:
    run = copied("magrpo", "prompted")
    at = opened("play", run=run.id)
    at.segmented_control(key="play-source").set_value("prompt").run()
    assert at.button(key="play-start").disabled
    at.text_area(key="play-prompt").set_value("  \n").run()
    assert at.button(key="play-start").disabled
    at.text_area(key="play-prompt").set_value("**Say** A").run()
    assert not at.button(key="play-start").disabled


def test_weights_to_choose_from(copied: Copied) -> None:
    run = copied("magrpo", "weights")
    steps = list(reversed(run.checkpoints()))
    assert steps == [8, 4]  # every 4 of 8 items
    box = opened("play", run=run.id).selectbox(key=f"play-weights-{run.id}")
    assert box.options == ["Final model", "Checkpoint, item 8", "Checkpoint, item 4"]
    run.write_status(RunStatus("stopped", started=1.0))  # as of a run that was resumed: its checkpoints are newer
    box = opened("play", run=run.id).selectbox(key=f"play-weights-{run.id}")
    assert box.options == ["Checkpoint, item 8", "Checkpoint, item 4"]


# --- a task that never finishes loading -----------------------------------------------------------


@pytest.fixture
def hanging(shown: Workspace):
    shown.root.mkdir()
    (shown.root / "task.py").write_text("import time\ntime.sleep(600)\n")
    data = {"name": "hangs", "task": "task.py:TASK", "algorithm": "magrpo", "model": "builtin:tiny"}
    run = shown.create_run(RunSpec.parse(data, "test", shown.root))
    yield run
    for play in plays(run):
        cancel(play)


def test_a_task_of_ones_own_is_not_loaded_by_the_app_and_a_play_can_be_cancelled(hanging: RunFolder) -> None:
    at = opened("play", run=hanging.id)  # would wait ten minutes if it loaded the file
    assert "Nothing has been played" in words(at)
    at.number_input(key="play-item-number").set_value(3).run()
    at.button(key="play-start").click().run()
    assert not at.exception
    (play,) = plays(hanging)
    assert play.state == RUNNING and play.request == PlayRequest(item=3, samples=2, trained=False)
    at.button(key="play-cancel").click().run()
    assert not at.exception
    (play,) = plays(hanging)
    assert play.record.error == CANCELLED
    assert CANCELLED in words(at)


def test_earlier_plays_can_be_looked_at(hanging: RunFolder) -> None:
    first, second = (start_play(hanging, PlayRequest(item=item)) for item in (1, 2))
    cancel(second)
    at = opened("play", run=hanging.id, play=first.id)
    assert at.selectbox(key="play-shown").value == first.id
    at.selectbox(key="play-shown").set_value(second.id).run()
    assert at.query_params["play"] in (second.id, [second.id])
    assert opened("play", run=hanging.id, play="../../etc").selectbox(key="play-shown").value == second.id


def test_a_play_that_failed_says_why(copied: Copied) -> None:
    run = copied("iac", "failing")
    start_play(run, PlayRequest(item=99))
    settled(run)
    assert "there is no item 99" in words(opened("play", run=run.id))


def test_a_broken_spec_is_one_sentence(copied: Copied) -> None:
    run = copied("magrpo", "torn")
    run.spec_file.write_text("algorithm: [")
    at = opened("play", run=run.id)
    assert "spec.yaml" in at.error[0].value
    assert not [button for button in at.button if button.key == "play-start"]


def test_training_beside_it_is_mentioned(copied: Copied) -> None:
    run, busy = copied("magrpo", "calm"), copied("maac", "busy")
    own = Identity.own()
    busy.write_status(RunStatus("running", started=1.0, pid=own.pid, process_started=own.started))
    assert "Training now: busy." in words(opened("play", run=run.id))
