"""All runs of the workspace, live, with filters; who waits for what; and the trash."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.arrow import DataframeSelectionState
from streamlit.elements.lib.column_types import ColumnConfig

from workbench.insight.compare import filtered
from workbench.runs import trash
from workbench.runs.workspace import ACTIVE, DAMAGED, LOST, QUEUED, STATES, UNKNOWN
from workbench.trainers import ALGORITHMS
from workbench.ui import state
from workbench.ui.live import TICK_SECONDS
from workbench.ui.navigation import go, link
from workbench.ui.run_rows import RowStore
from workbench.ui.text import plain, t
from workbench.ui.widgets import COLOURS, tolerant

SHOWN = ("state", "name", "share", "reward", "algorithm", "task", "model", "seed", "started", "minutes", "env_step",
         "id")  # fmt: skip
NOTE = "note"
"""Column that says what is wrong; it stands beside the name, and only when there is something to say."""
ALL_STATES = (QUEUED, *STATES, LOST, DAMAGED, UNKNOWN)
MIB = 2**20


@st.cache_resource(max_entries=4, show_spinner=False)
def row_store(root: str) -> RowStore:
    """The rows that this server has read of one workspace."""
    return RowStore()


def page() -> None:
    """Filters that stay, above a table that ticks while a run is active."""
    st.title(t("page.runs"))
    st.caption(t("runs.about"))
    with tolerant():
        table = _table()
        if table.empty:
            st.info(t("common.no_runs"))
            link("launch", t("runs.to_launch"))
        else:
            active = bool(table["state"].isin(ACTIVE).any())
            chosen = _filters(table)
            st.fragment(_live, run_every=TICK_SECONDS if active else None)(chosen, active)
    with tolerant():
        _trash()


def _table() -> pd.DataFrame:
    space = state.workspace()
    return row_store(str(space.root)).table(space.runs())


# --- the list ------------------------------------------------------------------------------------


def _filters(table: pd.DataFrame) -> tuple[str, list[str], list[str], list[str]]:
    text, states, algorithms, tasks = st.columns([2, 1, 1, 1])
    return (
        text.text_input(t("runs.search"), key="runs-text", placeholder=t("runs.search_hint")).strip(),
        _choice(states, "state", ALL_STATES, lambda name: t(f"state.{name}")),
        _choice(algorithms, "algorithm", tuple(ALGORITHMS), str),
        _choice(tasks, "task", sorted(table["task"].dropna().unique()), str),
    )


def _choice(
    place: st.delta_generator.DeltaGenerator, name: str, options: Sequence[str], label: Callable[[str], str]
) -> list[str]:
    key = f"runs-{name}"
    if key in st.session_state:  # a task whose last run was deleted is no longer offered
        st.session_state[key] = [value for value in st.session_state[key] if value in options]
    return place.multiselect(t(f"runs.{name}"), options, format_func=label, key=key, placeholder=t("runs.any"))


def _live(chosen: tuple[str, list[str], list[str], list[str]], was_active: bool) -> None:
    with tolerant():
        table = _table()
        if bool(table["state"].isin(ACTIVE).any()) != was_active:
            st.rerun()  # the whole page, which starts or stops ticking
        _queue(table)
        shown = filtered(table, *chosen)
        st.caption(f"{t('common.showing', shown=len(shown), total=len(table))} · {t('runs.open_hint')}")
        before = st.session_state.get("runs-shown", [])
        st.session_state["runs-shown"] = shown["id"].tolist()
        picked = st.dataframe(
            _cells(shown),
            column_order=(*SHOWN[:2], NOTE, *SHOWN[2:]) if shown[NOTE].any() else SHOWN,
            column_config=_columns(),
            hide_index=True,
            placeholder="",
            key="runs-table",
            on_select="rerun",
            selection_mode=["single-row", "single-cell"],
            alt=t("page.runs"),
        )
        _open(picked.selection, before)


def _queue(table: pd.DataFrame) -> None:
    """Who waits, the longest first: the table has the newest first."""
    for row in table[table["state"] == QUEUED].iloc[::-1].itertuples():
        waits_for = row.waits_for or t("runs.queue_next")
        st.info(t("runs.queue", name=row.name or row.id, waits_for=waits_for), icon=":material/hourglass_empty:")


def _open(selection: DataframeSelectionState, ids: Sequence[str]) -> None:
    """Go to the run that was picked in the table as the reader saw it, which may have changed since."""
    rows = [*selection.rows, *(row for row, _ in selection.cells)]
    if rows and rows[0] < len(ids):
        go("run", run=ids[rows[0]])


def _cells(table: pd.DataFrame) -> pd.DataFrame:
    """As shown: a badge is a list of one, times are local, minutes for seconds; a run without a spec has its id."""
    local = datetime.datetime.now().astimezone().tzinfo
    return table.assign(
        state=table["state"].map(lambda name: [t(f"state.{name}")]),
        started=table["started"].dt.tz_convert(local).dt.tz_localize(None),
        minutes=table["duration"] / 60,
        name=table["name"].fillna(table["id"]),
    )


def _columns() -> dict[str, ColumnConfig]:
    column = st.column_config
    titles = {name: t(f"runs.{name}") for name in (*SHOWN, NOTE)}
    return {
        "state": column.MultiselectColumn(
            titles["state"],
            options=[t(f"state.{name}") for name in ALL_STATES],
            color=[COLOURS.get(name, "gray") for name in ALL_STATES],
        ),
        "share": column.ProgressColumn(titles["share"], min_value=0, max_value=1, format="percent"),
        "reward": column.NumberColumn(titles["reward"], format="%.3f", help=t("runs.reward_help")),
        "env_step": column.NumberColumn(titles["env_step"], format="localized", help=t("runs.env_step_help")),
        "started": column.DatetimeColumn(titles["started"], format="YYYY-MM-DD HH:mm"),
        "minutes": column.NumberColumn(titles["minutes"], format="%.1f"),
        **{name: column.TextColumn(titles[name]) for name in ("name", "algorithm", "task", "model", NOTE, "id")},
        "seed": column.NumberColumn(titles["seed"], format="%d", help=t("runs.seed_help")),
    }


# --- the trash -----------------------------------------------------------------------------------


def _trash() -> None:
    st.divider()
    if not st.toggle(t("runs.trash"), key="runs-trash", help=t("runs.trash_about")):
        return
    entries = {entry.run.id: entry for entry in trash.contents(state.workspace())}
    if message := st.session_state.pop("runs-trash-error", None):
        st.error(plain(message))
    if not entries:
        st.caption(t("runs.trash_empty"))
        return
    rows = [(name, pd.Timestamp(entry.deleted, unit="s"), entry.size / MIB) for name, entry in entries.items()]
    titles = [t("runs.id"), t("runs.deleted"), t("files.size")]
    st.dataframe(pd.DataFrame(rows, columns=titles), hide_index=True, key="runs-trash-table")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(t("common.choose_run"), list(entries), key="runs-trash-chosen")
        st.button(
            t("runs.restore"), icon=":material/undo:", key="runs-restore", on_click=_try, args=("restore", chosen)
        )
        with st.popover(t("runs.empty"), icon=":material/delete_forever:"):
            size = sum(entry.size for entry in entries.values()) / MIB
            st.caption(t("runs.empty_about", count=len(entries), size=size))
            st.button(t("runs.empty_yes"), key="runs-empty", type="primary", on_click=_try, args=("empty",))


def _try(action: str, run_id: str = "") -> None:
    """Before the page is drawn again; a refusal is said above the trash."""
    space = state.workspace()
    try:
        if action == "restore":
            trash.restore(space, run_id)
        else:
            trash.empty(space)
    except (ValueError, OSError) as error:
        st.session_state["runs-trash-error"] = str(error)
