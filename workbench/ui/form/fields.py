"""The form from top to bottom: task, algorithm, models, settings, devices, names. It fills the draft."""

from __future__ import annotations

from typing import Any

import streamlit as st

from workbench.tasks import TASKS
from workbench.trainers import ALGORITHMS
from workbench.ui import state
from workbench.ui.form import config_form, device_picker, model_picker, session
from workbench.ui.form.draft import Draft, has_critic, located, spec_data
from workbench.ui.form.examine import Examination, TaskCard, bare
from workbench.ui.text import has, language, t


def form(draft: Draft, slots: session.Slots) -> tuple[dict[str, Any], Examination]:
    """Draw it. Returns the spec's plain data and what is known of its task and defaults."""
    st.subheader(t("launch.task"))
    _task(draft, slots)
    place = st.container()
    st.subheader(t("launch.algorithm"))
    _algorithm(draft)
    known = session.look(bare(draft), state.workspace().root)
    with place:
        _card(known.card)
    _sections(draft, known, slots)
    return located(spec_data(draft, known.base), state.workspace().root), known


def _sections(draft: Draft, known: Examination, slots: session.Slots) -> None:
    count = known.card.num_agents if known.card else len(draft.get("agents") or [1, 2])
    critics = 1 if draft["algorithm"] == "maac" else count
    st.subheader(t("launch.models"))
    model_picker.agents(draft, count, slots)
    critic_place = st.container()
    st.subheader(t("launch.settings"))
    config_form.basic_settings(draft, known.base, slots)
    _reset(draft, known)
    if has_critic(draft, known.base):
        with critic_place:
            model_picker.critics(draft, critics, slots)
    with st.expander(t("launch.advanced"), icon=":material/tune:"):
        config_form.advanced_settings(draft, known.base, slots)
        st.markdown(f"**{t('launch.group.model')}**")
        model_picker.options(draft, slots)
    st.subheader(t("launch.devices"))
    counts = {"agent_devices": count, "reference_devices": count, "critic_devices": critics}
    device_picker.devices(draft, known.base, counts, slots)
    st.subheader(t("launch.naming"))
    _names(draft, slots)
    wrong = device_picker.troubles(_chosen_devices(draft), counts, session.machine(), _known_uuids())
    for field, (key, values) in wrong.items():
        slots.say(field, t(key, **values))


def _chosen_devices(draft: Draft) -> dict[str, Any]:
    return {name: value for name, value in draft["config"].items() if name.endswith("_devices")}


def _known_uuids() -> dict[str, str]:
    found: dict[str, str] = st.session_state.get(session.UUIDS, {})
    return found


# --- task and algorithm ---------------------------------------------------------------------------


def _task(draft: Draft, slots: session.Slots) -> None:
    key = session.seeded("task", draft["task"])
    names = list(dict.fromkeys([*TASKS, draft["task"], st.session_state[key] or draft["task"]]))
    st.selectbox(
        t("launch.task"),
        names,
        key=key,
        accept_new_options=True,
        help=t("launch.task_help"),
        label_visibility="collapsed",
        format_func=_task_name,
        on_change=_chosen,
        args=("task", key),
    )
    slots.open("task")
    if draft.get("dataset"):
        st.caption(t("launch.dataset", dataset=session.plain(str(draft["dataset"].get("path")))))
        st.button(t("launch.own_items"), key="launch-own-items", type="tertiary", on_click=_own_items)
        slots.open("dataset")


def _own_items() -> None:
    session.draft()["dataset"] = None


def _task_name(name: str) -> str:
    key = f"task.{name}"
    return f"{name} · {t(key)}" if has(key) else name


def _chosen(name: str, key: str) -> None:
    """Another task or algorithm has other defaults, so that every widget is filled again."""
    session.draft()[name] = (st.session_state[key] or session.draft()[name]).strip()
    session.forget()


def _card(card: TaskCard | None) -> None:
    if card is None:
        return
    described = f"task.{card.name}.about"
    about = t(described) if language() != "en" and has(described) else f"{card.description} {card.cooperation}"
    st.markdown(session.plain(about))
    turns = t("launch.several_turns") if card.several_turns else t("launch.one_turn")
    st.caption(t("launch.team", count=card.num_agents, turns=turns))
    with st.expander(t("launch.example"), icon=":material/visibility:"):
        for number, prompt in enumerate(card.prompts):
            st.caption(t("launch.agent_sees", number=number))
            st.code(prompt, language=None, wrap_lines=True)


def _algorithm(draft: Draft) -> None:
    key = session.seeded("algorithm", draft["algorithm"])
    st.selectbox(
        t("launch.algorithm"),
        list(ALGORITHMS),
        key=key,
        label_visibility="collapsed",
        format_func=lambda name: f"{name} · {t(f'algorithm.{name}')}",
        on_change=_chosen,
        args=("algorithm", key),
    )
    st.caption(t(f"algorithm.{draft['algorithm']}.note"))


# --- settings and names ---------------------------------------------------------------------------


def _reset(draft: Draft, known: Examination) -> None:
    changed = config_form.number_changed(draft, known.base)
    if changed:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(t("launch.changed_count", count=changed))
            st.button(t("launch.reset"), key="launch-reset", type="tertiary", on_click=_reset_settings)


def _reset_settings() -> None:
    session.draft()["config"] = {}
    session.forget()


def _names(draft: Draft, slots: session.Slots) -> None:
    tracking = dict(draft.get("tracking") or {})
    left, middle, right = st.columns(3, vertical_alignment="bottom")
    with left:
        draft["name"] = st.text_input(t("launch.name"), key=session.seeded("name", draft["name"]), max_chars=200)
        slots.open("name")
    with middle:
        experiment = tracking.get("experiment", "workbench")
        tracking["experiment"] = st.text_input(
            t("launch.experiment"),
            key=session.seeded("experiment", experiment),
            help=t("launch.experiment_help"),
            max_chars=200,
        )
        slots.open("tracking")
    with right:
        kept = tracking.get("mlflow", True)
        on = st.toggle("MLflow", key=session.seeded("mlflow", kept is not False), help=t("launch.mlflow_help"))
        tracking["mlflow"] = (kept if isinstance(kept, str) else True) if on else False
    draft["tracking"] = tracking
