"""One prompt, answered early and late in a run, side by side with the words that changed.

Which of the two answers is better is for the reader and the reward to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from workbench.insight import texts
from workbench.insight.texts import BeforeAfter, Pair
from workbench.runs.workspace import RunFolder
from workbench.ui.run_tabs import readers
from workbench.ui.run_tabs.links import node_button
from workbench.ui.run_tabs.text_view import show_segments, show_text
from workbench.ui.text import language, t
from workbench.ui.widgets import csv, download

PHASES = ("train", "eval")
MOST_ITEMS = 200  # of the list; further ones are found by their number
END, STEP = "end", "step"
"""When: at the run's end on that side, at a step of the reader's choice, or at a checkpoint (its number)."""
SIDES = ("early", "late")

recurring_items = readers.by_trace(texts.recurring_items)
before_after = readers.by_trace(texts.before_after)
step_of_checkpoint = readers.by_trace(texts.step_of_checkpoint)


def before_after_view(run: RunFolder, agents: Sequence[int], turns: Sequence[int]) -> None:
    """Choices above, the two texts below. Raises TraceError."""
    st.caption(t("completions.ba_about"))
    first, second, third, fourth = st.columns([1, 2, 1, 1])
    phase = first.selectbox(
        t("completions.column_phase").capitalize(), PHASES, key="ba-phase",
        format_func=lambda name: t(f"completions.phase_{name}"), help=t("completions.ba_phase_help"),
    )  # fmt: skip
    items = recurring_items(run, phase, MOST_ITEMS)
    if items.empty:
        st.info(t("completions.ba_none"))
        return
    with second:
        item = _item(items, phase)
    agent = third.selectbox(t("completions.column_agent").capitalize(), agents, key="ba-agent")
    turn = fourth.selectbox(t("completions.column_turn").capitalize(), turns, key="ba-turn")
    columns = st.columns(2)
    early, late = (_moment(run, side, column) for side, column in zip(SIDES, columns))
    _show(run, before_after(run, item, agent, turn, early, late, phase), agent)


def _item(items: pd.DataFrame, phase: str) -> int:
    labels = {
        item: t("completions.ba_item_label", item=item, visits=visits, first=first, last=last)
        for item, visits, first, last in items.itertuples(index=False, name=None)
    }
    item = st.selectbox(
        t("completions.ba_item"), list(labels), format_func=labels.__getitem__, key=f"ba-item-{phase}",
        help=t("completions.ba_item_help"),
    )  # fmt: skip
    if len(items) == MOST_ITEMS:
        st.caption(t("completions.ba_first_items", most=MOST_ITEMS))
    return int(item)


def _moment(run: RunFolder, side: str, column: st.delta_generator.DeltaGenerator) -> int | None:
    """The env_step wanted on this side; None for the first or the last time."""
    options: list[str | int] = [END, *run.checkpoints(), STEP]
    chosen = column.selectbox(
        t(f"completions.ba_side_{side}"), options, format_func=partial(_moment_words, side), key=f"ba-{side}-{run.id}",
        help=t("completions.ba_when_help"),
    )  # fmt: skip
    if chosen == STEP:
        step: int | None = column.number_input(t("completions.ba_step"), 0, value=None, step=1, key=f"ba-{side}-step")
        return step
    return None if chosen == END else step_of_checkpoint(run, int(chosen))


def _moment_words(side: str, option: str | int) -> str:
    if option == END:
        return t(f"completions.ba_end_{side}")
    return t("completions.ba_at_step") if option == STEP else t("completions.ba_checkpoint", items=option)


# --- the two texts -------------------------------------------------------------------------------


def _show(run: RunFolder, found: BeforeAfter, agent: int) -> None:
    if found.nodes is None or found.steps is None or not found.pairs:
        st.info(t("completions.ba_nothing") if found.reason is None else found.reason[language()])
        return
    if not found.same_prompt:
        st.warning(t("completions.ba_other_prompt"), icon=":material/warning:")
    with st.expander(t("completions.prompt" if found.same_prompt else "completions.ba_early_prompt")):
        show_text(found.prompt)
    pair = _pair(found.pairs)
    rewards = (pair.reward_before, pair.reward_after)
    for place, column in enumerate(st.columns(2)):
        with column:
            step, node = found.steps[place], found.nodes[place]
            st.markdown(f"**{t(f'completions.ba_title_{SIDES[place]}', step=step)}**")
            st.caption(_reward(rewards[place]))
            show_segments(pair.segments, "insert" if place else "delete")
            node_button(run, t("completions.to_node", node=node), node, f"ba-node-{place}", agent, pair.k)
    st.caption(t("completions.ba_same" if pair.before == pair.after else "completions.ba_legend"))
    name = f"{run.id}-before-after.csv"
    download(t("completions.ba_download"), partial(_csv, found), name, "ba-csv", icon=":material/download:")


def _pair(pairs: Sequence[Pair]) -> Pair:
    if len(pairs) == 1:
        return pairs[0]
    by_k = {pair.k: pair for pair in pairs}
    k = st.segmented_control(
        t("completions.ba_k"), list(by_k), default=pairs[0].k, key=f"ba-k-{len(pairs)}", required=True,
        help=t("completions.ba_k_help"),
    )  # fmt: skip
    return by_k[k]


def _reward(reward: float) -> str:
    return t("completions.ba_unscored") if pd.isna(reward) else t("completions.ba_reward", reward=reward)


def _csv(found: BeforeAfter) -> bytes:
    """All pairs, a row each."""
    rows = [(pair.k, pair.before, pair.after, pair.reward_before, pair.reward_after) for pair in found.pairs]
    table = pd.DataFrame(rows, columns=["k", "before", "after", "reward_before", "reward_after"])
    return csv(table)
