"""Is this run healthy? Alarms in plain language with the nodes that raised them, and what else was looked at.

The rules are those of workbench.insight.health; this page only shows what they found.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from workbench.insight import health
from workbench.insight.alarms import LEAST, Alarm
from workbench.insight.health_data import Settings, read_window
from workbench.insight.health_signal import CRITIC, ENTROPY, NO_SIGNAL, TURN_1, UNSCORED
from workbench.insight.health_texts import DUPLICATE, EMPTY, STUCK, TRUNCATED
from workbench.insight.health_words import WORDS
from workbench.runs.errors import sentence
from workbench.runs.workspace import ACTIVE, RunFolder
from workbench.ui.run_tabs import readers
from workbench.ui.run_tabs.links import node_button
from workbench.ui.text import language, t
from workbench.ui.widgets import tolerant

SECONDS = 10.0  # between two looks at a run that goes on: half a second of work for what changes slowly
LOOKS = {
    "alarm": ("red", ":material/error:"),
    "warning": ("orange", ":material/warning:"),
    "info": ("blue", ":material/info:"),
}
"""Colour and sign of a severity; its word is the text `health.severity_<severity>`."""
LIMITS: dict[str, tuple[float, ...]] = {
    "no_signal": NO_SIGNAL,
    "unscored": UNSCORED,
    "ends_in_turn_1": (TURN_1,),
    "critic_worse": CRITIC,
    "entropy_drop": ENTROPY,
    "truncation": TRUNCATED,
    "duplicates": DUPLICATE,
    "stuck_text": (STUCK,),
    "silent_agent": EMPTY,
}
"""Thresholds that the line of a rule names as {low} (warning) and {high} (alarm)."""
SHARES = ("share", "repeat", "repeat_early")
IN_WORDS = ("agent", "turn", "sample")
"""Numbers of an alarm that its text already shows as words."""


@dataclass(frozen=True)
class Look:
    """One look at a trace: what was found, in how many training nodes, at which env_steps."""

    alarms: tuple[Alarm, ...]
    nodes: int
    steps: tuple[int, int]


@readers.by_trace
def _look(path: str, settings: Settings) -> Look:
    window = read_window(path, settings)
    return Look(tuple(health.judge(window)), len(window.nodes), window.steps)


@st.cache_data(ttl=SECONDS, max_entries=readers.KEPT, show_spinner=False)
def _recent_look(path: str, settings: Settings, _run: RunFolder) -> Look:
    """At most one look every SECONDS at a trace that keeps growing."""
    return _look(_run, settings)


def tab(run: RunFolder) -> None:
    """The alarms, live while the run goes on, and the list of all rules."""
    st.caption(t("health.about"))
    active = run.read_status().state in ACTIVE
    if not run.trace_file.exists() and not active:
        st.info(t("health.none"))
        return
    settings = _settings(run)
    st.fragment(_live, run_every=SECONDS if active else None)(run, settings, active)


def _settings(run: RunFolder) -> Settings:
    """Of the run's spec; a damaged one silences the rules that need it."""
    try:
        return health.settings_of(run.spec())
    except ValueError as error:
        st.warning(t("health.no_settings", reason=sentence(error)), icon=":material/warning:")
        return Settings()


def _live(run: RunFolder, settings: Settings, active: bool) -> None:
    if not run.trace_file.exists():
        st.info(t("health.none"))
        return
    with tolerant():
        found = _recent_look(str(run.trace_file), settings, run) if active else _look(run, settings)
        if not found.nodes:
            st.info(t("health.none"))
            return
        _summary(found, active)
        for _, alarms in itertools.groupby(found.alarms, key=lambda alarm: (alarm.severity, alarm.code)):
            _card(run, list(alarms))
        _rules(found.alarms)


def _summary(found: Look, active: bool) -> None:
    looked = t("health.looked", rules=len(health.RULES), nodes=found.nodes, first=found.steps[0], last=found.steps[1])
    counts = Counter(alarm.severity for alarm in found.alarms)
    if not counts["alarm"] + counts["warning"]:
        st.success(t("health.quiet"), icon=":material/check_circle:")
    with st.container(horizontal=True):
        for severity in health.SEVERITIES:
            if counts[severity]:
                _badge(severity, f": {counts[severity]}")
    st.caption(f"{looked} {t('health.live', seconds=SECONDS)}" if active else looked)
    if found.nodes < LEAST:
        st.info(t("health.early", nodes=found.nodes, least=LEAST), icon=":material/hourglass_empty:")


def _badge(severity: str, more: str = "") -> None:
    colour, icon = LOOKS[severity]
    st.badge(t(f"health.severity_{severity}") + more, icon=icon, color=colour)  # type: ignore[arg-type]


# --- one card per rule and severity --------------------------------------------------------------


def _card(run: RunFolder, alarms: Sequence[Alarm]) -> None:
    first = alarms[0]
    with st.container(border=True, key=f"health-{first.severity}-{first.code}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            _badge(first.severity)
            st.markdown(f"**{first.title[language()]}**", help=t(f"health.todo_{first.code}"))
        for number, alarm in enumerate(alarms):
            _finding(run, alarm, f"health-{alarm.severity}-{alarm.code}-{number}")


def _finding(run: RunFolder, alarm: Alarm, key: str) -> None:
    st.text(alarm.text[language()])  # it may quote a completion, so never as Markdown
    numbers = [f"{t(f'health.number_{name}')} {_number(name, value)}" for name, value in alarm.numbers.items()
               if name not in IN_WORDS and value is not None]  # fmt: skip
    steps = t("health.steps", first=alarm.steps[0], last=alarm.steps[1])
    st.caption(" · ".join([steps, *numbers]))
    if alarm.node_ids:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(t("health.see"), width="content")
            for node in alarm.node_ids:
                node_button(run, f":blue[{node}]", node, f"{key}-{node}", alarm.numbers.get("agent"), icon=None)


def _number(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.0%}" if name in SHARES else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


# --- all rules -----------------------------------------------------------------------------------


def _rules(alarms: Sequence[Alarm]) -> None:
    """What each rule looks at, what it means, what to do, and whether it has something to say now."""
    raised = {alarm.code: alarm.severity for alarm in reversed(alarms)}
    with st.expander(t("health.rules", count=len(health.RULES)), icon=":material/checklist:"):
        st.caption(t("health.rules_about"))
        for code in health.RULES:
            limits = dict(zip(("low", "high"), LIMITS.get(code, ())))
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(f"**{WORDS[code].title[language()]}**")
                if code in raised:
                    _badge(raised[code])
                else:
                    st.badge(t("health.silent"), icon=":material/check:", color="gray")
            st.markdown(t(f"health.rule_{code}", **limits))
            st.caption(t(f"health.todo_{code}"))
