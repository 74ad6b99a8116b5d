"""The lab's first part: K returns, typed or dragged, and what each baseline makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import streamlit as st

from workbench.insight.lab import baseline_table
from workbench.ui.charts.advantages import MODES
from workbench.ui.run_tabs.node_view import coloured_modes, show_baselines
from workbench.ui.text import t

LEAST, MOST = 2, 16
LARGEST = 1e6
PRESETS = {
    "spread": (0.0, 0.25, 0.5, 1.0),
    "equal": (0.5, 0.5, 0.5, 0.5),
    "outlier": (0.1, 0.1, 0.1, 1.0),
    "groups": (0.0, 0.0, 1.0, 1.0),
}
FORMULAS = {
    "raw": r"b = 0, \qquad A_k = R_k",
    "mean": r"b = \frac{1}{K}\sum_{l=1}^{K} R_l, \qquad A_k = R_k - b",
    "rloo": r"b_k = \frac{1}{K-1}\sum_{l \neq k} R_l, \qquad A_k = R_k - b_k = \frac{K}{K-1}\,A_k^{\mathrm{mean}}",
    "max": r"b = \max_l R_l, \qquad A_k = R_k - b \leq 0",
}
NORMALISED = r"\hat A_k = \frac{A_k - \bar A}{\max(\mathrm{std}(A),\; 10^{-6})}"
TEXT, SIZE, PRESET = "lab-returns", "lab-size", "lab-preset"
SEPARATORS = str.maketrans(",;，；、", "     ")


def parse_returns(text: str) -> list[float]:
    """K numbers from a text with commas, semicolons or spaces. ValueError with one sentence for the reader."""
    returns = []
    for piece in text.translate(SEPARATORS).split():
        try:
            value = float(piece)
        except ValueError:
            raise ValueError(t("lab.not_a_number", piece=piece[:40])) from None
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise ValueError(t("lab.too_large", piece=piece[:40]))
        returns.append(value)
    if not LEAST <= len(returns) <= MOST:
        raise ValueError(t("lab.wrong_count", count=len(returns)))
    return returns


def show_group() -> None:
    """Inputs on top, then chart, table, formulas and what one learns."""
    st.subheader(t("lab.group"))
    st.caption(t("lab.group_help"))
    st.session_state.setdefault(TEXT, _text(PRESETS["spread"]))
    left, middle, right = st.columns([2, 3, 1], vertical_alignment="bottom")
    left.pills(
        t("lab.presets"), list(PRESETS), format_func=lambda name: t(f"lab.preset_{name}"), key=PRESET,
        on_change=_use_preset,
    )  # fmt: skip
    middle.text_input(t("lab.returns"), key=TEXT, help=t("lab.returns_help"))
    try:
        returns = parse_returns(st.session_state[TEXT])
    except ValueError as error:
        st.error(str(error), icon=":material/error:")
        return
    st.session_state[SIZE] = len(returns)
    right.number_input(
        t("lab.size"), LEAST, MOST, key=SIZE, on_change=_resize, args=(returns,), help=t("lab.size_help")
    )
    _sliders(returns)
    _results(returns)


def _text(returns: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in returns)


def _use_preset() -> None:
    name = st.session_state[PRESET]
    if name is not None:
        st.session_state[TEXT] = _text(PRESETS[name])


def _resize(returns: list[float]) -> None:
    """New completions begin with the mean, so that they change no baseline."""
    size, fill = st.session_state[SIZE], float(np.mean(returns))
    st.session_state[TEXT] = _text([*returns, *[round(fill, 4)] * size][:size])


def _sliders(returns: list[float]) -> None:
    low, high = min(-1.0, math.floor(min(returns))), max(2.0, math.ceil(max(returns)))
    with st.expander(t("lab.drag"), expanded=True, icon=":material/tune:"):
        columns = st.columns(4)
        for k, value in enumerate(returns):
            st.session_state[f"lab-return-{k}"] = value
            columns[k % 4].slider(
                f"R{k}", float(low), float(high), step=(high - low) / 300, format="%.3g", key=f"lab-return-{k}",
                on_change=_dragged, args=(returns, k),
            )  # fmt: skip


def _dragged(returns: list[float], k: int) -> None:
    moved = float(f"{st.session_state[f'lab-return-{k}']:.3g}")
    st.session_state[TEXT] = _text([*returns[:k], moved, *returns[k + 1 :]])


def _results(returns: list[float]) -> None:
    table = baseline_table(returns)
    show_baselines(table, None, "lab-baselines")
    st.dataframe(coloured_modes(table), hide_index=True, key="lab-table")
    st.info(_lesson(returns), icon=":material/lightbulb:")
    with st.expander(t("lab.formulas"), expanded=True, icon=":material/function:"):
        for mode, column in zip(MODES, [*st.columns(2), *st.columns(2)]):
            column.markdown(f"**{t(f'adv.mode_{mode}')}**: {t(f'lab.says_{mode}')}")
            column.latex(FORMULAS[mode])
        st.markdown(t("lab.says_normalised"))
        st.latex(NORMALISED)


def _lesson(returns: list[float]) -> str:
    size = len(returns)
    if max(returns) == min(returns):
        return t("lab.lesson_equal", value=f"{returns[0]:g}")
    return t("lab.lesson", factor=f"{size / (size - 1):.4g}", size=size)
