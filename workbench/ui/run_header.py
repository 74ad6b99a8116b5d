"""The top of the run page: what the run does now, and the buttons that stop it, resume it, copy it or throw it away."""

from __future__ import annotations

import datetime
import time

import streamlit as st

from workbench.insight.progress import Progress, progress
from workbench.runs import launch, trash
from workbench.runs.supervision import KILL, SAVE, TERMINATE, read_supervision
from workbench.runs.workspace import ACTIVE, FINISHED, RunFolder, RunStatus
from workbench.ui import state
from workbench.ui.form.task_process import resumed
from workbench.ui.live import interval
from workbench.ui.navigation import go
from workbench.ui.text import plain, t
from workbench.ui.widgets import badge

LEVELS = {SAVE: ":material/save:", TERMINATE: ":material/logout:", KILL: ":material/dangerous:"}


def header(run: RunFolder) -> None:
    """Live while the run is active; drawn once more, as a whole page, when it ends."""
    status = run.read_status()
    st.fragment(_live, run_every=interval(status))(run, status.state in ACTIVE)
    with st.container(horizontal=True):
        _actions(run, status)
    st.divider()


def _live(run: RunFolder, was_active: bool) -> None:
    status = run.read_status()
    if was_active and status.state not in ACTIVE:
        st.rerun()  # the whole page, whose other areas must stop ticking too
    now = progress(status, time.time(), _first_seen(run, status))
    with st.container(horizontal=True, vertical_alignment="center"):
        badge(status)
        st.markdown(f"**{run.id}**")
        if status.phase:
            st.caption(t(f"phase.{status.phase}"))
    _bar(run, status, now)
    if status.error:
        st.error(plain(status.error), icon=":material/error:")
    if now.stalled:
        st.warning(t("run.stalled"), icon=":material/hourglass_empty:")


def _bar(run: RunFolder, status: RunStatus, now: Progress) -> None:
    if status.state == "queued":
        found = read_supervision(run.supervision_file)
        st.info(t("run.queued", devices=", ".join(found.waits_for) if found and found.waits_for else "-"))
    if now.share is not None:
        st.progress(now.share, text=t("run.items", step=status.step, total=status.total))
    cells = {
        "run.reward": None if status.reward is None else f"{status.reward:.3f}",
        "run.speed": None if now.items_per_minute is None else t("run.per_minute", speed=now.items_per_minute),
        "run.left": None if now.seconds_left is None else duration(now.seconds_left),
    }
    with st.container(horizontal=True):
        for label, value in cells.items():
            if value is not None:
                st.metric(t(label), value)


def _first_seen(run: RunFolder, status: RunStatus) -> tuple[float, int] | None:
    """When this reader first saw the present process advance, and where it was then."""
    key = f"seen-{run.id}-{status.pid}-{status.process_started}"
    if status.phase in ("", "start", "load"):
        return None
    return st.session_state.setdefault(key, (time.time(), status.step))


def _actions(run: RunFolder, status: RunStatus) -> None:
    if message := st.session_state.pop("run-action-error", None):
        st.error(plain(message))
    if status.state in ACTIVE:
        with st.popover(t("run.stop"), icon=":material/stop_circle:"):
            st.caption(t("run.stop_about"))
            for level, icon in LEVELS.items():
                st.button(
                    t(f"run.stop_{level}"), icon=icon, key=f"stop-{level}", on_click=_try, args=("stop", run, level)
                )
        return
    if status.state != FINISHED:
        st.button(t("run.resume"), icon=":material/play_arrow:", key="resume", on_click=_try, args=("resume", run))
    if st.button(t("run.clone"), icon=":material/content_copy:", key="clone"):
        go("launch", clone=run.id)
    if st.button(t("run.play"), icon=":material/forum:", key="to-play"):
        go("play", run=run.id)
    with st.popover(t("run.delete"), icon=":material/delete:"):
        st.caption(t("run.delete_about"))
        st.button(t("run.delete_yes"), key="delete-yes", type="primary", on_click=_try, args=("delete", run))


def _try(action: str, run: RunFolder, level: str = SAVE) -> None:
    """Before the page is drawn again; a refusal is said beside the buttons."""
    actions = {
        "stop": lambda: launch.stop(run, level),
        "resume": lambda: resumed(run, state.workspace(), f"resume-{run.id}-{run.own_status().ended}"),
        "delete": lambda: trash.delete(state.workspace(), run),
    }
    try:
        actions[action]()
    except (ValueError, OSError) as error:
        st.session_state["run-action-error"] = str(error)


def duration(seconds: float) -> str:
    """1:02:03, without fractions."""
    return str(datetime.timedelta(seconds=round(seconds)))
