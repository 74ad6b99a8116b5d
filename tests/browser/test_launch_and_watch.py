"""From the launch page to a run that is watched, left, found again, stopped and resumed, in a real browser."""

from __future__ import annotations

import re

from fake_run import until, until_gone, until_state
from playwright.sync_api import expect
from served import App
from watched import PATIENCE, OpenWindow, Window, points

from workbench.runs.workspace import RunFolder

ENDLESS = "5000"  # epochs, so that the run goes on however slow the machine and its browser are
REWARD = "curve-turn_x-reward_mean"


def run_of(app: App, window: Window) -> RunFolder:
    """The run that the address names."""
    window.page.wait_for_url(re.compile(r"/run\?.*run="), timeout=PATIENCE)
    return app.workspace.run(re.search(r"run=([^&]+)", window.page.url)[1])  # type: ignore[index]


def test_a_preset_trains_and_the_chart_moves_and_others_find_the_run(app: App, window: OpenWindow) -> None:
    """The form is filled with the rendezvous and started; nothing but time makes the run page go on."""
    first = window()
    first.open("")
    first.button("preset-fill-rendezvous").click()
    expect(first.key("launch-field-name").locator("input").first).to_have_value("rendezvous", timeout=PATIENCE)
    epochs = first.key("launch-field-num_train_epochs").locator("input").first
    epochs.fill(ENDLESS)
    epochs.press("Enter")
    first.sees(f"num_train_epochs: {ENDLESS}")
    first.button("launch-start").click()
    run = run_of(app, first)
    assert str(run.spec().config["num_train_epochs"]) == ENDLESS
    first.page.evaluate("window.stays = true")  # a reload would forget it
    until(lambda: points(first.key(REWARD)) > 0, 300)
    seen = points(first.key(REWARD))
    until(lambda: points(first.key(REWARD)) > seen, 300)
    text = first.page.get_by_text(re.compile(r"item [\d,]+ of [\d,]+"))
    before = text.inner_text()
    expect(text).not_to_have_text(before, timeout=PATIENCE)
    assert first.page.evaluate("window.stays") is True

    second = window()
    second.page.goto(first.page.url)
    for one in (first, second):
        one.page.reload()
        one.settled()
        assert run_of(app, one) == run
        one.sees("running")
        until(lambda one=one: points(one.key(REWARD)) > seen, 300)
    stop(second, "kill")
    for one in (first, second):
        one.sees("stopped")
    until_gone(run)


def test_the_quickstart_is_one_click(app: App, window: OpenWindow) -> None:
    here = window()
    here.open("")
    here.button("preset-start-quickstart").click()
    run = run_of(app, here)
    here.sees("running")
    assert run.spec().task == "story_length"
    until_state(run, "running")
    stop(here, "kill")
    here.sees("stopped")
    until_gone(run)


def stop(window: Window, level: str) -> None:
    window.page.get_by_test_id("stPopoverButton").filter(
        has_text="Stop"
    ).click()  # while it works, the frame has a Stop, too
    window.button(f"stop-{level}").click()


def test_a_double_click_starts_one_run(app: App, window: OpenWindow) -> None:
    here = window()
    here.open("")
    before = len(app.workspace.runs())
    here.button("preset-start-rendezvous").dblclick()
    run = run_of(app, here)
    here.settled()
    here.sees("running")
    assert len(app.workspace.runs()) == before + 1
    stop(here, "kill")
    until_gone(run)
    assert len(app.workspace.runs()) == before + 1


def test_a_killed_app_leaves_the_run_alone_and_a_new_one_finds_it(app: App, window: OpenWindow) -> None:
    here = window()
    here.open("")
    here.button("preset-start-rendezvous").click()
    run = run_of(app, here)
    until(lambda: run.read_status().step > 0, 300)
    here.server_is_down = True
    app.kill()
    gone_at = run.read_status().step
    until(lambda: run.read_status().step > gone_at, 300)
    app.start()
    other = window()
    other.open("runs")
    other.open(f"run?run={run.id}")
    other.sees("running")
    assert run.read_status().state == "running"
    until_state(run, "finished")
    other.sees("finished")
    assert run.read_status().step == run.read_status().total


def test_stop_saves_and_resume_goes_on_to_the_end(app: App, window: OpenWindow) -> None:
    here = window()
    here.open("")
    here.button("preset-start-rendezvous").click()
    run = run_of(app, here)
    until(lambda: run.read_status().step > 0, 300)
    stop(here, "save")
    stopped = until_state(run, "stopped")
    here.sees("stopped")
    assert stopped.error is None
    assert 0 < stopped.step < stopped.total
    assert max(run.checkpoints()) == stopped.step
    here.button("resume").click()
    assert until_state(run, "finished").step == stopped.total
    here.sees("finished")
    until_gone(run)
