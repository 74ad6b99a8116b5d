"""One node of a rollout: each agent's completions with their numbers, and what the other baselines would have given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from workbench.config import MAGRPOConfig
from workbench.insight.advantages import AgentGroup, NodeDetail, what_if
from workbench.runs.workspace import RunFolder
from workbench.ui.charts.advantages import MODES, baselines_figure
from workbench.ui.run_tabs import readers
from workbench.ui.run_tabs.why_panel import show_why
from workbench.ui.text import t
from workbench.ui.widgets import chart

CELL = 160  # characters of a completion in a table
NUMBERS = ("reward", "return", "kl", "baseline", "advantage", "normalized")
CRITIC = ("reward", "kl", "value", "target", "td_error", "normalized")
SIGNED = ("advantage", "td_error", "normalized")
UP, DOWN = "33, 102, 172", "178, 24, 43"  # the ends of the tree's colours


def show_node(run: RunFolder, node: int) -> None:
    """All that is known of one node. Raises TraceError, SpecError, ValueError for a node that is gone."""
    detail = readers.node_detail(run, node)
    st.subheader(t("adv.at_node", node=node, turn=detail.node["turn"]))
    st.caption(t("adv.group_critic" if detail.has_critic else "adv.group_help"))
    for group in detail.agents:
        _agent(group, detail.has_critic)
    chosen = show_why(run, detail)
    if chosen is not None:
        _what_if(run, detail, chosen)


def _agent(group: AgentGroup, critic: bool) -> None:
    st.markdown(f"**{t('adv.agent', agent=group.agent)}**")
    with st.expander(t("adv.prompt", start=short(group.prompt, 80))):
        st.code(group.prompt, language=None, wrap_lines=True)
    numbers = CRITIC if critic else NUMBERS
    rows = group.completions[["k", "text", *numbers, "tokens", "finished"]]
    rows = rows.assign(text=[short(text, CELL) for text in rows["text"]])
    if rows["kl"].isna().all():
        rows = rows.drop(columns="kl")
    st.dataframe(coloured(rows), column_config=_columns(numbers), hide_index=True, key=f"adv-group-{group.agent}")


def short(text: str, most: int) -> str:
    """One line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def coloured(rows: pd.DataFrame) -> pd.io.formats.style.Styler:
    """Advantages with the tree's colours behind them, numbers with four figures."""
    style = rows.style.format("{:.4g}", subset=rows.select_dtypes("float").columns, na_rep="–")
    for name in SIGNED:
        if name in rows:
            most = float(rows[name].abs().max())
            style = style.map(lambda value, most=most: _background(value, most), subset=[name])
    return style


def _background(value: float, most: float) -> str:
    if not abs(value) > 1e-9:  # also NaN
        return ""
    return f"background-color: rgba({UP if value > 0 else DOWN}, {0.1 + 0.4 * abs(value) / most:.2f})"


def _columns(numbers: tuple[str, ...]) -> dict[str, ColumnConfig]:
    column = st.column_config
    described = {name: column.Column(t(f"adv.number_{name}"), help=t(f"adv.number_{name}_help")) for name in numbers}
    return described | {
        "k": column.Column("k", help=t("adv.k_help"), width="small"),
        "text": column.Column(t("adv.text"), help=t("adv.text_help"), width="medium"),
        "tokens": column.Column(t("adv.tokens")),
        "finished": column.Column(t("adv.finished"), help=t("adv.finished_help")),
    }


# --- the other baselines ---------------------------------------------------------------------------


def _what_if(run: RunFolder, detail: NodeDetail, agent: int) -> None:
    st.subheader(t("adv.whatif", agent=agent))
    if detail.has_critic:
        st.info(t("adv.whatif_critic"))
        return
    table = what_if(detail)
    table = table[table["agent"] == agent]
    if table["return"].notna().sum() < 2:
        st.info(t("adv.whatif_few"))
        return
    config = readers.config_of(run)
    used = config.advantage_mode if isinstance(config, MAGRPOConfig) else None
    st.caption(t("adv.whatif_help", used=t(f"adv.mode_{used}") if used else "–"))
    show_baselines(table, used, "adv-whatif")
    st.dataframe(coloured_modes(table), hide_index=True, key="adv-whatif-table")
    st.caption(t("adv.whatif_same"))


def show_baselines(table: pd.DataFrame, used: str | None, key: str) -> None:
    """The four modes side by side before and after normalisation; table: rows of insight.lab.baseline_table."""
    for place, column in zip(st.columns(2), ("advantage", "normalized")):
        with place:
            data = table[["mode", "k", "return", column]]
            figure = baselines_figure(table, column, used, t)
            chart(figure, f"{key}-{column}", data, alt=t(f"adv.whatif_{column}"))


def coloured_modes(table: pd.DataFrame) -> pd.io.formats.style.Styler:
    """table of modes, completions and numbers -> one row per completion, raw and normalised side by side."""
    wide = table[table["mode"] == MODES[0]][["k", "return"]].rename(columns={"return": t("adv.number_return")})
    for column, words in (("advantage", "adv.cell_raw"), ("normalized", "adv.cell_normalised")):
        for mode in MODES:
            values = table.loc[table["mode"] == mode, column].to_numpy()
            wide[t(words, mode=mode)] = values
    style = wide.style.format("{:.4g}", subset=wide.columns[1:], na_rep="–")
    for columns in (wide.columns[2:6], wide.columns[6:]):
        most = float(np.nanmax(wide[columns].abs().to_numpy()))
        style = style.map(lambda value, most=most: _background(value, most), subset=columns)
    return style
