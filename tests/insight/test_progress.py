"""Speed and time left are those of the present process."""

import pytest

from workbench.insight.progress import progress
from workbench.runs.workspace import RunStatus


def running(**values):
    return RunStatus(**{"state": "running", "step": 30, "total": 90, "started": 1000.0, "heartbeat": 1060.0} | values)


def test_hand_worked_speed_and_time_left():
    found = progress(running(), now=1060.0)  # 30 items in 60 s: 30 a minute, 60 to go
    assert (found.share, found.seconds_left, found.items_per_minute, found.stalled) == (
        pytest.approx(1 / 3),
        pytest.approx(120),
        pytest.approx(30),
        False,
    )


def test_after_a_resume_the_pause_does_not_count():
    found = progress(running(), now=1060.0, seen=(1050.0, 20))  # 10 items in 10 s
    assert found.items_per_minute == pytest.approx(60) and found.seconds_left == pytest.approx(60)


@pytest.mark.parametrize("status", [running(step=0), running(total=0, step=0), running(state="stopped")])
def test_what_is_unknown_is_none(status):
    found = progress(status, now=1060.0)
    assert found.seconds_left is None and found.items_per_minute is None


def test_no_sign_of_life_is_stalled():
    assert progress(running(), now=1121.0).stalled
    assert not progress(running(state="finished"), now=1121.0).stalled
