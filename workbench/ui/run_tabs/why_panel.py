"""Why a completion got its number: each line of arithmetic in words and numbers, and whether the trace agrees."""

from __future__ import annotations

import math
from functools import partial

import pandas as pd
import streamlit as st

from workbench.insight.advantages import NodeDetail
from workbench.insight.arithmetic import DIFFERS, GIVEN, PART, SAME, UNKNOWN, Line, number
from workbench.insight.why import Explanation
from workbench.runs.workspace import RunFolder
from workbench.ui.run_tabs import readers
from workbench.ui.text import language, t, table

BADGES = {SAME: "green", DIFFERS: "red", PART: "gray", GIVEN: "gray", UNKNOWN: "orange"}
PHRASES = "why.phrase."  # texts under it: pieces of formulas, told by their English text


def show_why(run: RunFolder, detail: NodeDetail) -> int | None:
    """The panel; the agent that was chosen, None when the node has no completions. Raises TraceError, SpecError."""
    st.subheader(t("why.title"))
    if not detail.agents:
        st.info(t("why.empty"))
        return None
    st.caption(t("why.about"))
    agent, k = _choose(detail)
    rows = _completions(detail, agent)
    with st.expander(t("why.text", k=k, agent=agent)):
        st.code(rows.loc[rows["k"] == k, "text"].iloc[0], language=None, wrap_lines=True)
    node = int(detail.node["node_id"])
    _lines(readers.explain(run, node, agent, k, readers.config_of(run)))
    return agent


def _choose(detail: NodeDetail) -> tuple[int, int]:
    """Agent and completion, from the address as far as they exist."""
    agents = [group.agent for group in detail.agents]
    agent = _within(readers.address("agent"), agents)
    rows = _completions(detail, agent)
    ks = rows["k"].tolist()
    k = _within(readers.address("k"), ks)
    st.session_state["why-agent"], st.session_state["why-k"] = agent, k
    labels = dict(zip(ks, map(_label, ks, rows["return"], rows["advantage"])))
    left, right = st.columns(2)
    left.selectbox(
        t("why.agent"), agents, format_func=lambda a: t("adv.agent", agent=a), key="why-agent",
        on_change=partial(_remember, "agent", "why-agent"),
    )  # fmt: skip
    right.selectbox(
        t("why.completion"), ks, format_func=labels.__getitem__, key="why-k", on_change=partial(_remember, "k", "why-k")
    )
    return agent, k


def _within(wanted: int | None, known: list[int]) -> int:
    return known[0] if wanted is None or wanted not in known else wanted


def _completions(detail: NodeDetail, agent: int) -> pd.DataFrame:
    return next(group.completions for group in detail.agents if group.agent == agent)


def _remember(name: str, key: str) -> None:
    readers.set_address(**{name: st.session_state[key]})
    st.query_params.pop("joint", None)


def _label(k: int, value: float, advantage: float) -> str:
    if math.isnan(advantage):
        return t("why.label_unscored", k=k)
    return t("why.label", k=k, value=value, advantage=advantage)


def _lines(found: Explanation) -> None:
    if found.remark:
        st.info(t(f"why.remark_{found.remark}"))
    for place, line in enumerate(found.lines, 1):
        st.markdown(f"{place}. {in_words(line)}")
    if found.more_joints:
        st.caption(t("why.more", count=found.more_joints))
    _verdict(found)


def _verdict(found: Explanation) -> None:
    wrong = sum(line.verdict == DIFFERS for line in found.lines)
    if wrong:
        st.error(t("why.wrong", count=wrong), icon=":material/error:")
        return
    checked = sum(line.verdict == SAME for line in found.lines)
    last = found.lines[-1]
    weight = last.result if not math.isnan(last.result) or last.stored is None else last.stored
    push = "none" if math.isnan(weight) or abs(weight) <= 1e-9 else "up" if weight > 0 else "down"
    outcome = "" if found.remark else t(f"why.push_{push}", weight=number(weight))
    st.success(f"{t('why.right', count=checked)} {outcome}", icon=":material/check_circle:")


def in_words(line: Line) -> str:
    """A line as markdown: what it is, formula = numbers = result, and the mark."""
    result = "" if line.verdict == UNKNOWN else translated(number(line.result))
    pieces = [translated(line.symbol), translated(line.formula), translated(line.numbers), result]
    kept = [piece for place, piece in enumerate(pieces) if piece and piece not in pieces[:place]]
    stored = "" if line.stored is None else number(line.stored)
    mark = t(f"why.mark_{line.verdict}", stored=translated(stored) or "–")
    return f"**{t(f'why.line_{line.key}')}** :{BADGES[line.verdict]}-badge[{mark}]  \n   `{' = '.join(kept)}`"


def translated(formula: str) -> str:
    """A formula with its English words in the reader's language, longest pieces first."""
    phrases = [texts for key, texts in table().items() if key.startswith(PHRASES)]
    for texts in sorted(phrases, key=lambda texts: -len(texts["en"])):
        formula = formula.replace(texts["en"], texts[language()])
    return formula
