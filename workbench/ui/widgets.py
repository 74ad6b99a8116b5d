"""Small parts that several pages share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from workbench.runs.errors import sentence
from workbench.runs.workspace import RunFolder, RunStatus
from workbench.ui import state
from workbench.ui.text import plain, t

SHOWN = 80  # characters of a run's name that does not exist
COLOURS = {
    "queued": "orange",
    "running": "blue",
    "finished": "green",
    "stopped": "gray",
    "failed": "red",
    "lost": "red",
    "damaged": "red",
}
"""Badge colour of a run's state; gray for the others."""


def badge(status: RunStatus) -> None:
    """The run's state as a coloured label."""
    st.badge(t(f"state.{status.state}"), color=COLOURS.get(status.state, "gray"))  # type: ignore[arg-type]


def chart(figure: go.Figure, key: str, data: pd.DataFrame | None = None, alt: str | None = None) -> None:
    """A plotly chart with a fixed key and, below it, its data as a download."""
    st.plotly_chart(figure, key=key, alt=alt, config={"displaylogo": False})
    if data is not None:
        st.download_button(
            t("common.download"),
            data.to_csv(index=False).encode("utf-8-sig"),
            f"{key}.csv",
            "text/csv",
            key=f"{key}-csv",
        )


@contextlib.contextmanager
def tolerant() -> Iterator[None]:
    """What cannot be read is said in one sentence in its place; the rest of the page stands."""
    try:
        yield
    except (ValueError, OSError) as error:  # unreadable files, traces, specs: all of ours are ValueErrors
        st.error(t("common.unreadable", reason=plain(sentence(error))), icon=":material/error:")


def choose_run(key: str) -> RunFolder | None:
    """A selectbox over the runs, newest first, that follows and sets the address; None when there are none."""
    runs = state.workspace().runs()
    if not runs:
        st.info(t("common.no_runs"))
        return None
    ids = [run.id for run in runs]
    named = state.named_run()
    if named is None and (asked := st.query_params.get("run")):
        st.warning(t("common.no_such_run", run=plain(asked[:SHOWN])))
    index = ids.index(named.id) if named is not None and named.id in ids else 0
    chosen = st.selectbox(t("common.choose_run"), ids, index=index, key=key)
    run = runs[ids.index(chosen)]
    state.name_run(run)
    return run
