"""Every completion of a run: found by what it says and where it stands, read in full, and taken along as a file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count, takewhile
from typing import Any

import pandas as pd
import streamlit as st

from workbench.insight import completions
from workbench.insight.completions import SORTS, Page, Place, Search
from workbench.runs.workspace import RunFolder
from workbench.tracking import trace
from workbench.ui.run_tabs import readers
from workbench.ui.run_tabs.before_after import before_after_view
from workbench.ui.run_tabs.completion_files import downloads
from workbench.ui.run_tabs.links import node_button, point_at
from workbench.ui.run_tabs.node_view import short
from workbench.ui.run_tabs.text_view import show_text
from workbench.ui.text import t

VIEWS = ("search", "before_after")
PHASES = ("train", "eval")
SIZE = 25  # rows of a page
HEIGHT = 460  # pixels of the table, so that the full text stays near
CELL = 160  # characters of a completion in the table
NUMBERS = ("reward", "return", "baseline", "advantage", "normalized", "value", "target", "td_error", "kl", "logprob")
COLUMNS = (
    "step",
    "phase",
    "turn",
    "item",
    "agent",
    "k",
    "text",
    "reward",
    "advantage",
    "tokens",
    "logprob",
    "finished",
)
DECIMALS = ("reward", "advantage", "logprob")
ABOUT = ("text", "reward", "advantage", "logprob", "finished", "step", "item", "k")
"""Columns with a word of help."""
PAGES, OF = "completions-pages", "completions-of"
"""Session state: where each visited page begins, the last one is shown; and of which run and search."""

UNTICKED = "completions-unticked"
"""Session state: how often a row was chosen outside the table, whose own tick then goes."""

search = readers.by_trace(completions.search)


def tab(run: RunFolder) -> None:
    """The search, or one prompt's answers before and after."""
    st.caption(t("completions.about"))
    if not run.trace_file.exists() or not _turns(run):
        st.info(t("completions.none"))
        return
    view = st.segmented_control(
        t("completions.view"), VIEWS, default="search", format_func=lambda name: t(f"completions.view_{name}"),
        key="completions-view", required=True, label_visibility="collapsed",
    )  # fmt: skip
    if view == "search":
        _search(run)
    else:
        before_after_view(run, _agents(run), _turns(run))


def _search(run: RunFolder) -> None:
    wanted = _wanted(run)
    places = _places(run, wanted)
    page = search(run, wanted, places[-1])
    _about_page(wanted, page, places[-1])
    if not page.rows.empty:
        chosen = _chosen(page.rows)
        _table(page.rows, f"completions-rows-{hash((run.id, wanted, places[-1], st.session_state.get(UNTICKED, 0)))}")
    _pager(places, page)
    if not page.rows.empty:
        _full(run, page.rows, chosen)
    downloads(run, wanted)


@readers.by_trace
def _turns(path: str) -> list[int]:
    """All turns of a trace, from 1."""
    return list(takewhile(lambda turn: len(trace.read_node_ids(path, turn=turn, limit=1)), count(1)))


@readers.by_trace
def _agents(path: str) -> list[int]:
    """All agents of a trace; every node has a completion of each."""
    newest = trace.read_node_ids(path, limit=1, newest_first=True).tolist()
    return sorted(set(trace.read_completions(path, node_ids=newest, columns=("agent",))["agent"].tolist()))


# --- what to look for ----------------------------------------------------------------------------


def _wanted(run: RunFolder) -> Search:
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    text = left.text_input(
        t("completions.text"), key="completions-text", placeholder=t("completions.text_hint"),
        icon=":material/search:", help=t("completions.text_help"),
    )  # fmt: skip
    in_prompt = right.toggle(t("completions.in_prompt"), key="completions-in-prompt")
    with st.expander(t("completions.filters"), icon=":material/tune:", expanded=True):
        filters = _filters(run)
    return Search(text=text, in_prompt=in_prompt, size=SIZE, **filters)


def _filters(run: RunFolder) -> dict[str, Any]:
    """Fields of Search."""
    first, second, third, fourth = st.columns(4)
    with first:
        agent = _option("agent", _agents(run))
        sort = st.selectbox(
            t("completions.sort"), list(SORTS), format_func=lambda name: t(f"completions.column_{name}"),
            key="completions-sort",
        )  # fmt: skip
    with second:
        turn = _option("turn", _turns(run))
        order = st.selectbox(
            t("completions.order"), ("down", "up"), format_func=lambda name: t(f"completions.order_{name}"),
            key="completions-order",
        )  # fmt: skip
    with third:
        phase = _option("phase", PHASES)
        reward = st.number_input(
            t("completions.min_reward"), value=None, step=0.1, key="completions-reward",
            help=t("completions.min_reward_help"),
        )  # fmt: skip
    with fourth:
        step_from = st.number_input(
            t("completions.step_from"), 0, value=None, step=1, key="completions-from", help=t("completions.step_help")
        )
        step_to = st.number_input(t("completions.step_to"), 0, value=None, step=1, key="completions-to")
    return {
        "agent": agent, "turn": turn, "phase": phase, "step_from": step_from, "step_to": step_to,
        "min_reward": reward, "sort": sort, "descending": order == "down",
    }  # fmt: skip


def _option(name: str, options: Sequence[Any]) -> Any:
    """One of the options, or None for all of them."""
    return st.selectbox(
        t(f"completions.column_{name}").capitalize(),
        [None, *options],
        format_func=partial(_words, name),
        key=f"completions-{name}",
    )


def _words(name: str, value: Any) -> str:
    if value is None:
        return t("completions.all")
    return t(f"completions.phase_{value}") if name == "phase" else str(value)


def _places(run: RunFolder, wanted: Search) -> list[Place | None]:
    """Where the pages of this search begin; another search starts at its first page."""
    if st.session_state.get(OF) != (run.id, wanted):
        st.session_state[OF], st.session_state[PAGES] = (run.id, wanted), [None]
    places: list[Place | None] = st.session_state[PAGES]
    return places


# --- what was found ------------------------------------------------------------------------------


def _about_page(wanted: Search, page: Page, place: Place | None) -> None:
    """Which rows these are, and how much of the trace they come from."""
    before = place.shown if place else 0
    last, searched = before + len(page.rows), t("completions.searched", scanned=page.scanned, total=page.total)
    complete = page.more is None and page.scanned == page.total
    if last == 0 and complete:
        st.info(t("completions.no_match", total=page.total))
    elif page.rows.empty:
        st.caption(t("completions.none_yet" if page.more else "completions.no_more") + " " + searched)
    elif complete:
        st.caption(t("completions.rows_of", first=before + 1, last=last, total=last))
    else:
        st.caption(t("completions.rows", first=before + 1, last=last) + " " + searched)
    if wanted.sort != "step" and page.scanned < page.total:
        st.warning(t("completions.partly", scanned=page.scanned, total=page.total), icon=":material/content_cut:")


def _chosen(rows: pd.DataFrame) -> int:
    """The row of the completion that the address names, else the first."""
    named = tuple(readers.address(name) for name in ("node", "agent", "k"))
    keys = list(rows[["node_id", "agent", "k"]].itertuples(index=False, name=None))
    return keys.index(named) if named in keys else 0


def _table(rows: pd.DataFrame, key: str) -> None:
    column = st.column_config
    helps = {name: t(f"completions.help_{name}") for name in ABOUT}
    columns = {name: column.Column(t(f"completions.column_{name}"), help=helps.get(name)) for name in COLUMNS}
    for name in DECIMALS:
        columns[name] = column.NumberColumn(t(f"completions.column_{name}"), help=helps[name], format="%.4g")
    columns["text"] = column.Column(t("completions.column_text"), help=helps["text"], width="large")
    phases = [_words("phase", phase) for phase in rows["phase"]]
    shown = rows[list(COLUMNS)].assign(text=[_start(text, CELL) for text in rows["text"]], phase=phases)
    st.dataframe(
        shown, column_config=columns, hide_index=True, key=key, on_select=partial(_picked, rows, key),
        selection_mode="single-row", height=HEIGHT,
    )  # fmt: skip


def _start(text: str, most: int) -> str:
    return short(text, most) or t("completions.blank")


def _picked(rows: pd.DataFrame, key: str) -> None:
    chosen = st.session_state[key]["selection"]["rows"]
    if chosen and chosen[0] < len(rows):
        _point_at(rows, chosen[0])


def _point_at(rows: pd.DataFrame, row: int) -> None:
    node, agent, k = (int(rows[name].iloc[row]) for name in ("node_id", "agent", "k"))
    point_at(node, agent, k)


def _pager(places: list[Place | None], page: Page) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            t("completions.previous"), key="completions-back", disabled=len(places) < 2,
            on_click=partial(_back, places), icon=":material/chevron_left:",
        )  # fmt: skip
        st.button(
            t("completions.next"), key="completions-next", disabled=page.more is None,
            on_click=partial(places.append, page.more), icon=":material/chevron_right:",
        )  # fmt: skip
        st.caption(t("completions.page", page=len(places)))


def _back(places: list[Place | None]) -> None:
    del places[-1]


# --- one completion ------------------------------------------------------------------------------


def _full(run: RunFolder, rows: pd.DataFrame, row: int) -> None:
    """The chosen completion with its prompt, as the model saw and wrote them."""
    st.subheader(t("completions.full"))
    labels = [_label(rows.iloc[place]) for place in range(len(rows))]
    st.session_state["completions-row"] = row
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    left.selectbox(
        t("completions.row"), range(len(rows)), format_func=labels.__getitem__, key="completions-row",
        on_change=partial(_chosen_below, rows), help=t("completions.row_help"),
    )  # fmt: skip
    marks = right.toggle(t("completions.marks"), key="completions-marks", help=t("completions.marks_help"))
    values = rows.iloc[row]
    _numbers(values)
    prompt, answer = st.columns(2)
    with prompt:
        st.markdown(f"**{t('completions.prompt')}**")
        show_text(values["prompt"], marks)
    with answer:
        st.markdown(f"**{t('completions.answer')}**")
        show_text(values["text"], marks)
        st.caption(t("completions.finished" if values["finished"] else "completions.cut", tokens=values["tokens"]))
    node = int(values["node_id"])
    node_button(run, t("completions.to_node", node=node), node, "completions-node", values["agent"], values["k"])


def _chosen_below(rows: pd.DataFrame) -> None:
    st.session_state[UNTICKED] = st.session_state.get(UNTICKED, 0) + 1
    _point_at(rows, st.session_state["completions-row"])


def _label(row: pd.Series) -> str:
    return t("completions.label", step=row["step"], turn=row["turn"], agent=row["agent"], k=row["k"],
             start=_start(row["text"], 60))  # fmt: skip


def _numbers(values: pd.Series) -> None:
    """What is known of it; the Advantages tab tells where the numbers come from."""
    known = [f"{_number_name(name)} {values[name]:.4g}" for name in NUMBERS if pd.notna(values[name])]
    st.caption(" · ".join(known) or t("completions.no_numbers"))


def _number_name(name: str) -> str:
    return t("completions.column_logprob") if name == "logprob" else t(f"adv.number_{name}")
