"""The parts of the compare page: what the chosen runs have, what they differ in, how a metric went, and MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import streamlit as st

from workbench.insight.compare import config_diff, readable, spec_of, warning
from workbench.insight.metric_names import label, meaning, panels
from workbench.insight.overlay import Axis, Overlay, final_value, overlay, parallel
from workbench.runs.mlflow_server import FAILED, OFF, READY, STARTING, BackgroundServer, external_server
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder
from workbench.tracking.trace import read_metric_keys
from workbench.ui import state
from workbench.ui.charts.compare import overlay_figure, parallel_figure
from workbench.ui.text import language, plain, t
from workbench.ui.widgets import chart, tolerant

SERVER_TICK = 1.0  # while MLflow starts
Stamp = tuple[str, int, int, int, int, int]
"""A run's folder, and what tells that its spec or trace has changed."""


def stamps(runs: Sequence[RunFolder]) -> tuple[Stamp, ...]:
    """The keys of the caches below."""
    return tuple((str(run.path), *_stamp(run.spec_file), *_trace_stamp(run)) for run in runs)


def _trace_stamp(run: RunFolder) -> tuple[int, int, int]:
    log = run.trace_file.with_name(run.trace_file.name + "-wal")  # where SQLite writes first
    changed, size = _stamp(run.trace_file)
    return changed, size, _stamp(log)[0]


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _runs(keys: Sequence[Stamp]) -> list[RunFolder]:
    return [RunFolder(Path(key[0])) for key in keys]


@st.cache_data(max_entries=64, show_spinner=False)
def metric_keys(keys: tuple[Stamp, ...]) -> list[str]:
    """Every metric that any of the runs has logged, in the order of the curves."""
    found: set[str] = set()
    for run in _runs(keys):
        names, _ = readable(lambda run=run: read_metric_keys(run.trace_file))  # type: ignore[misc]
        found |= set(names or ())
    return [key for panel in panels(found) for key in panel.keys]


@st.cache_data(max_entries=32, show_spinner=False)
def _overlay(keys: tuple[Stamp, ...], metric: str) -> Overlay:
    return overlay(_runs(keys), metric)


@st.cache_data(max_entries=32, show_spinner=False)
def _parallel(keys: tuple[Stamp, ...], metric: str) -> tuple[list[str], list[Axis]]:
    return parallel(_runs(keys), metric)


@st.cache_data(max_entries=32, show_spinner=False)
def _ends(keys: tuple[Stamp, ...], metric: str) -> list[float | None]:
    return [readable(lambda run=run: final_value(run, metric))[0] for run in _runs(keys)]  # type: ignore[misc]


def specs_of(runs: Sequence[RunFolder]) -> dict[str, RunSpec]:
    """The specs by run; one that cannot be read is said in its place."""
    found = {}
    for run in runs:
        with tolerant():
            found[run.id] = spec_of(run)
    return found


def metric_title(key: str) -> str:
    """What a metric key means, in the reader's language, with agent and turn."""
    title, place = meaning(key).title[language()], label(key, language())
    return f"{title} ({place})" if place else title


# --- the parts -----------------------------------------------------------------------------------


def curves(runs: Sequence[RunFolder], metric: str, each_run: bool) -> None:
    """The overlay, and why a run is missing in it."""
    found = _overlay(stamps(runs), metric)
    if not found.lines.empty:
        several = bool((found.bands["runs"] > 1).any())
        figure = overlay_figure(
            found.lines,
            found.bands,
            metric_title(metric),
            t("compare.band" if several else "compare.no_band"),
            t("curves.axis_step"),
            meaning(metric).unit[language()] or t("compare.value"),
            each_run,
        )
        if several:
            st.caption(t("compare.band_about"))
        chart(figure, "compare-overlay", pd.concat([found.lines, found.bands]), alt=metric_title(metric))
    for reason in found.problems.values():
        st.warning(plain(reason), icon=":material/visibility_off:")


def ends(runs: Sequence[RunFolder], specs: dict[str, RunSpec], metric: str) -> None:
    """Where each run ended, and, for three or more, end values beside the settings that differ."""
    values = _ends(stamps(runs), metric)
    rows = [(run.id, specs[run.id].config.get("seed", 0), value) for run, value in zip(runs, values) if run.id in specs]
    columns = [t("common.choose_run"), t("runs.seed"), metric_title(metric)]
    st.dataframe(pd.DataFrame(rows, columns=columns), hide_index=True, key="compare-ends")
    if len(runs) < 3:
        return
    names, axes = _parallel(stamps(runs), metric)
    if len(names) < 3 or len(axes) < 2:
        st.caption(t("compare.parallel_none"))
        return
    figure = parallel_figure(names, axes, t("compare.parallel"), t("compare.parallel_about"))
    data = pd.DataFrame({axis.key: [_word(axis, i) for i in range(len(names))] for axis in axes}, index=names)
    chart(figure, "compare-parallel", data.reset_index(names="run"), alt=t("compare.parallel"))


def _word(axis: Axis, run: int) -> str | float:
    value = axis.values[run]
    return value if axis.texts is None else axis.texts[int(value)]


def differences(specs: dict[str, RunSpec]) -> None:
    """A warning when the comparison can say nothing, and every setting that differs."""
    said = warning(specs)
    if said is not None:
        st.warning(said[language()], icon=":material/warning:")
    table = config_diff(specs)
    if table.empty:
        st.caption(t("compare.same"))
        return
    shown = table.map(lambda value: "–" if value is None else str(value))
    shown.index.name, shown.columns.name = t("compare.setting"), t("common.choose_run")
    upright = len(specs) > len(shown)  # the longer side downwards
    st.dataframe(shown.T if upright else shown, key="compare-diff")


# --- MLflow --------------------------------------------------------------------------------------


@st.cache_resource(max_entries=4, show_spinner=False)
def server_of(root: str) -> BackgroundServer:
    """One per app and workspace, whoever asks; it is gone when the app is."""
    return BackgroundServer(Path(root))


def mlflow_button() -> None:
    """Opens MLflow's own page on the same database; looks every second while the server starts."""
    root = state.workspace().root
    external = external_server(root)
    if external is not None:
        st.link_button(t("compare.mlflow"), external, icon=":material/open_in_new:", key="mlflow-open")
        return
    server = server_of(str(root))
    found = server.look().state
    st.fragment(_mlflow, run_every=SERVER_TICK if found == STARTING else None)(server, found)


def _mlflow(server: BackgroundServer, drawn: str) -> None:
    found = server.look()
    if found.state != drawn:
        st.rerun()  # the whole page, so that this area starts or stops ticking
    if found.state == READY and found.url is not None:
        with st.container(horizontal=True):
            st.link_button(t("compare.mlflow"), found.url, icon=":material/open_in_new:", type="primary",
                           key="mlflow-open")  # fmt: skip
            st.button(t("compare.mlflow_stop"), key="mlflow-stop", on_click=server.stop)
        return
    if found.state == STARTING:
        st.button(t("compare.mlflow_starting"), icon=":material/hourglass_top:", disabled=True, key="mlflow-starting")
    if found.state in (OFF, FAILED):
        st.button(t("compare.mlflow_start"), icon=":material/query_stats:", help=t("compare.mlflow_help"),
                  key="mlflow-start", on_click=server.start)  # fmt: skip
    if found.error:
        st.error(plain(found.error))
