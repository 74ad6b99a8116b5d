"""The lab's second part: exact bias and variance of each estimator on a game with 2 or 3 actions per agent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from workbench.insight.lab import ACTIONS, GROUP_SIZES, ExactEstimators, SmallGame, exact_estimators
from workbench.ui.charts.lab import MEASURES as CHARTS
from workbench.ui.charts.lab import quality_figure
from workbench.ui.text import t
from workbench.ui.widgets import chart

Logits = tuple[Sequence[float], Sequence[float]]
EXACT = 1e-9  # a bias below this is a rounding error
MEASURES = ("bias", "variance", "error", "ratio", "cosine")
REWARDS = {2: [[2.0, 0.0], [0.0, 1.0]], 3: [[2.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 1.0]]}
POLICY = {2: [[0.6, 0.4], [0.6, 0.4]], 3: [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]}


def game_from(rewards: pd.DataFrame, policy: pd.DataFrame) -> SmallGame:
    """rewards [A, A]; policy [2, A]: each agent's probabilities, scaled to sum 1.

    ValueError with one sentence in the reader's language for an empty cell or a probability of 0.
    """
    table, chances = rewards.to_numpy(dtype=float), policy.to_numpy(dtype=float)
    if not np.isfinite(table).all() or np.abs(table).max() > 1e6:
        raise ValueError(t("lab.bad_reward"))
    if not np.isfinite(chances).all() or (chances <= 0).any():
        raise ValueError(t("lab.bad_policy"))
    first, second = np.log(chances / chances.sum(1, keepdims=True))
    return SmallGame(tuple(map(tuple, table.tolist())), (tuple(first.tolist()), tuple(second.tolist())))


def show_game() -> None:
    """Tables to edit, then chart, numbers and what one learns."""
    st.subheader(t("lab.game"))
    st.caption(t("lab.game_help"))
    left, right = st.columns(2)
    actions = left.segmented_control(
        t("lab.actions"), ACTIONS, default=3, format_func=lambda n: f"{n} × {n}", key="lab-actions", required=True
    )
    size = right.segmented_control(
        t("lab.group_size"), GROUP_SIZES, default=3, key="lab-k", required=True, help=t("lab.group_size_help")
    )
    names = [t("lab.action", number=number) for number in range(actions)]
    with left:
        st.markdown(t("lab.rewards"))
        rewards = _editor(REWARDS[actions], names, [t("lab.first", action=name) for name in names], "lab-rewards")
    with right:
        st.markdown(t("lab.policy"))
        policy = _editor(POLICY[actions], names, [t("adv.agent", agent=agent) for agent in (0, 1)], "lab-policy")
    try:
        game = game_from(rewards, policy)
    except ValueError as error:
        st.error(str(error), icon=":material/error:")
        return
    _results(_exact(game.rewards, game.logits, size), size)


def _editor(values: list[list[float]], columns: list[str], rows: list[str], key: str) -> pd.DataFrame:
    frame = pd.DataFrame(values, columns=columns, index=pd.Index(rows, name=""))
    return st.data_editor(frame, key=f"{key}-{len(columns)}", num_rows="fixed")


@st.cache_data(max_entries=64, show_spinner=False)
def _exact(rewards: Sequence[Sequence[float]], logits: Logits, size: int) -> ExactEstimators:
    return exact_estimators(SmallGame(rewards, logits), size)


def _results(exact: ExactEstimators, size: int) -> None:
    table = exact.table
    for place, measure in zip(st.columns(len(CHARTS)), CHARTS):
        with place:
            data = table[["mode", "normalization", measure]]
            chart(quality_figure(table, measure, t), f"lab-{measure}", data, alt=t(f"lab.{measure}"))
    column = st.column_config
    numbers = {
        name: column.NumberColumn(t(f"lab.{name}"), help=t(f"lab.{name}_help"), format="%.4g") for name in MEASURES
    }
    shown = table.sort_values("normalization", kind="stable")
    shown[list(MEASURES)] = shown[list(MEASURES)].mask(shown[list(MEASURES)].abs() < EXACT, 0.0)
    words = shown.assign(
        mode=[t(f"adv.mode_{mode}") for mode in shown["mode"]],
        normalization=[t("lab.norm_on" if on else "lab.norm_off") for on in shown["normalization"]],
    )
    heads = {"mode": column.Column(t("lab.baseline")), "normalization": column.Column(t("lab.normalisation"))}
    st.dataframe(words, column_config=heads | numbers, hide_index=True, key="lab-quality-table")
    st.caption(t("lab.counted", groups=exact.groups, length=float(np.linalg.norm(exact.gradient))))
    st.info("\n".join(f"- {sentence}" for sentence in lessons(exact, size)), icon=":material/lightbulb:")


def lessons(exact: ExactEstimators, size: int) -> list[str]:
    """Two or three plain sentences about these very numbers."""
    if float(np.linalg.norm(exact.gradient)) < EXACT:
        return [t("lab.lesson_flat")]
    off, on = _numbers(exact.table, False), _numbers(exact.table, True)
    unbiased = ", ".join(mode for mode, row in off.items() if row["bias"] < EXACT)
    best = min(off, key=lambda mode: off[mode]["error"])
    raw, rloo = off["raw"]["variance"], off["rloo"]["variance"]
    said = [
        t("lab.lesson_unbiased", modes=unbiased, size=size, ratio=f"{off['mean']['ratio']:.4g}"),
        t(f"lab.lesson_{'quieter' if rloo < raw else 'noisier'}", raw=f"{raw:.4g}", rloo=f"{rloo:.4g}")
        + t("lab.lesson_best", mode=best, error=f"{off[best]['error']:.4g}"),
    ]
    normalised = on["mean"]
    if not math.isnan(normalised["cosine"]):
        words = {"bias": f"{normalised['bias']:.4g}", "cosine": f"{normalised['cosine']:.4f}"}
        said.append(t("lab.lesson_normalised", **words))
    return said


def _numbers(table: pd.DataFrame, normalised: bool) -> dict[str, dict[str, float]]:
    """Mode -> measure -> value."""
    rows = table[table["normalization"] == normalised]
    return {str(row["mode"]): {name: float(row[name]) for name in MEASURES} for _, row in rows.iterrows()}
