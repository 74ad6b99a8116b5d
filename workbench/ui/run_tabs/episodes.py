"""Choosing one rollout of a run: the newest, one by its step, or one from a filtered list. The address remembers it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from workbench.insight.tree import EpisodePage
from workbench.runs.workspace import RunFolder
from workbench.tracking import trace
from workbench.ui.live import interval
from workbench.ui.run_tabs import readers
from workbench.ui.text import plain, t
from workbench.ui.widgets import tolerant

PAGE = 10
COLUMNS = ("step", "phase", "item", "epoch", "turns", "nodes", "reward", "return", "max_advantage", "has_signal")
SIGNALS = {"any": None, "yes": True, "no": False}
PHASES = {"any": None, "train": "train", "eval": "eval"}
PAGES = "episodes-pages"  # session state: where each visited page of the list begins, the last one is shown


def choose_episode(run: RunFolder) -> int | None:
    """The root node of the chosen rollout; None, said in words, when there is none yet. Raises TraceError."""
    _forget_other_run(run)
    root = _addressed(run)
    root = _newest(run) if root is None else root
    if root is None:
        st.info(t("adv.none"))
        return None
    node = readers.node_detail(run, root).node
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    phase = t(f"adv.phase_{node['phase']}")
    left.subheader(t("adv.rollout", step=node["step"], item=node["item"], phase=phase))
    right.number_input(
        t("adv.go_to_step"), min_value=0, value=None, step=1, key="episodes-step", help=t("adv.step_help"),
        on_change=partial(_go_to_step, run), placeholder=str(node["step"]),
    )  # fmt: skip
    st.fragment(_news, run_every=interval(run.read_status()))(run, root)
    with st.expander(t("adv.browse"), icon=":material/list:"):
        _browse(run)
    return root


def _forget_other_run(run: RunFolder) -> None:
    """The numbers in the address belong to the run that was shown with them."""
    if st.session_state.get("episodes-run", run.id) != run.id:
        for name in ("node", "step", "agent", "k"):
            st.query_params.pop(name, None)
        st.session_state.pop(PAGES, None)
    st.session_state["episodes-run"] = run.id


def _addressed(run: RunFolder) -> int | None:
    """The root of the node or step that the address names."""
    node, step = readers.address("node"), readers.address("step")
    if node is not None:
        try:
            return readers.root_of(run, node)
        except trace.TraceError:
            raise
        except ValueError as error:
            st.warning(plain(str(error)))
            del st.query_params["node"]
            return None
    root = readers.root_at_step(run, step) if step is not None else None
    return _pinned(run, root) if root is not None else None


def _newest(run: RunFolder) -> int | None:
    ids = trace.read_node_ids(run.trace_file, roots=True, phase="train", newest_first=True, limit=1)
    if not len(ids):
        ids = trace.read_node_ids(run.trace_file, roots=True, newest_first=True, limit=1)
    return _pinned(run, int(ids[0])) if len(ids) else None


def _pinned(run: RunFolder, root: int) -> int:
    """While the run goes on, the reader keeps looking at the same rollout."""
    readers.set_address(node=root, step=int(readers.node_detail(run, root).node["step"]))
    return root


def _go_to_step(run: RunFolder) -> None:
    step = st.session_state["episodes-step"]
    root = readers.root_at_step(run, step) if step is not None else None
    if root is not None:
        _pinned(run, root)


def _news(run: RunFolder, shown: int) -> None:
    """How many rollouts are newer than the one shown, and a button to see the newest."""
    newer = 0
    with tolerant():  # a tick is on its own
        newer = len(trace.read_node_ids(run.trace_file, phase="train", roots=True, after=shown))
    if newer and st.button(t("adv.newer", count=newer), key="episodes-newest", icon=":material/skip_next:"):
        for name in ("node", "step", "k"):
            st.query_params.pop(name, None)
        st.rerun()


# --- the list --------------------------------------------------------------------------------------


def _browse(run: RunFolder) -> None:
    first, second, third = st.columns(3)
    phase = first.selectbox(
        t("adv.phase"), list(PHASES), format_func=lambda p: t(f"adv.phase_{p}"), key="episodes-phase", on_change=_first
    )
    signal = second.selectbox(
        t("adv.signal"), list(SIGNALS), format_func=lambda s: t(f"adv.signal_{s}"), key="episodes-signal",
        on_change=_first, help=t("adv.signal_help"),
    )  # fmt: skip
    item = third.number_input(
        t("adv.item"), min_value=0, value=None, step=1, key="episodes-item", on_change=_first, help=t("adv.item_help")
    )
    pages: list[int | None] = st.session_state.setdefault(PAGES, [None])
    page = readers.list_episodes(run, pages[-1], PAGE, PHASES[phase], item, SIGNALS[signal])
    _table(run, page, pages[-1])
    _pager(pages, page)


def _first() -> None:
    """Another filter starts at the newest again."""
    st.session_state[PAGES] = [None]


def _back() -> None:
    st.session_state[PAGES].pop()


def _table(run: RunFolder, page: EpisodePage, before: int | None) -> None:
    if page.rows.empty:
        st.caption(t("adv.no_match", searched=page.searched))
        return
    number = st.column_config.NumberColumn
    texts = {name: st.column_config.Column(t(f"adv.column_{name}")) for name in COLUMNS}
    numbers = {name: number(t(f"adv.column_{name}"), format="%.4g") for name in ("reward", "return", "max_advantage")}
    st.dataframe(
        _words(page.rows),
        column_config=texts | numbers,
        hide_index=True,
        key=f"episodes-{before}",
        on_select=partial(_picked, run, f"episodes-{before}", page.rows["node_id"].tolist()),
        selection_mode="single-row",
    )
    st.caption(t("adv.pick_row"))


def _words(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[list(COLUMNS)].assign(phase=[t(f"adv.phase_{phase}") for phase in rows["phase"]])


def _picked(run: RunFolder, key: str, roots: Sequence[int]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows and rows[0] < len(roots):
        _pinned(run, roots[rows[0]])


def _pager(pages: list[int | None], page: EpisodePage) -> None:
    newer, older, place = st.columns([1, 1, 2], vertical_alignment="center")
    newer.button(t("adv.page_newer"), key="episodes-back", disabled=len(pages) < 2, on_click=_back)
    older.button(
        t("adv.page_older"), key="episodes-on", disabled=page.older is None, on_click=partial(pages.append, page.older)
    )
    place.caption(t("adv.page", page=len(pages), searched=page.searched))
