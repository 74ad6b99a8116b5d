"""The settings of an algorithm as a form, made from its configuration's fields: help, ranges, choices, level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from workbench.config import TrainingConfig
from workbench.trainers import algorithm
from workbench.ui.form import session
from workbench.ui.form.draft import CHOICE, DEVICES, NUMBER, SWITCH, Draft, changes, kind_of, parsed, shown
from workbench.ui.text import has, language, t

ELSEWHERE = ("num_agents", "parallel_training")
"""Fields that the task decides, or that stand with the devices."""
GROUPS = {
    "rollout": ("top_p", "top_k", "early_termination_threshold", "external_prompt_passthrough", "shuffle"),
    "learning": ("discount", "rollout_buffer_size", "train_batch_size", "reference_kl_coef", "weight_decay",
                 "max_grad_norm", "lr_scheduler", "warmup_steps"),
    "critic": ("value_loss_coef", "value_clip_range", "critic_value_head_hidden_dim", "value_head_hidden_dim"),
    "records": ("eval_interval", "eval_num_samples", "eval_batch_size", "logging_steps", "save_interval"),
    "memory": ("micro_batch_size", "generation_batch_size", "gradient_checkpointing"),
}  # fmt: skip
"""Advanced fields by subject, titles are the texts `launch.group.<name>`; those in no group stand under `other`."""
PER_ROW = 3
SIGNS = {"ge": "≥", "gt": ">", "le": "≤"}


def names(config: type[TrainingConfig], level: str) -> list[str]:
    """The fields that the form shows at one level, "basic" or "advanced", in the configuration's order."""
    shown_here = [name for name in config.__dataclass_fields__ if name not in ELSEWHERE]
    return [name for name in shown_here if kind_of(config, name) != DEVICES and _level(config, name) == level]


def grouped(config: type[TrainingConfig]) -> dict[str, list[str]]:
    """The advanced fields by group; every one is in exactly one."""
    left = names(config, "advanced")
    found = {}
    for group, members in GROUPS.items():
        found[group] = [name for name in members if name in left]
        left = [name for name in left if name not in members]
    return {group: members for group, members in {**found, "other": left}.items() if members}


def basic_settings(draft: Draft, base: Mapping[str, Any], slots: session.Slots) -> None:
    """The fields that most people change."""
    config = algorithm(draft["algorithm"]).config
    _rows(config, names(config, "basic"), draft, base, slots)


def advanced_settings(draft: Draft, base: Mapping[str, Any], slots: session.Slots) -> None:
    """All other fields, by subject."""
    config = algorithm(draft["algorithm"]).config
    for group, members in grouped(config).items():
        st.markdown(f"**{t(f'launch.group.{group}')}**")
        _rows(config, members, draft, base, slots)


def number_changed(draft: Draft, base: Mapping[str, Any]) -> int:
    """How many fields differ from their defaults."""
    return len(changes(algorithm(draft["algorithm"]).config, draft["config"], base))


def help_of(config: type[TrainingConfig], name: str, base: Mapping[str, Any]) -> str:
    """What a field means in the reader's language, its range, and its defaults."""
    field = config.__dataclass_fields__[name]
    translated = language() != "en" and has(f"help.{name}")
    meaning = t(f"help.{name}") if translated else field.metadata["help"]
    rules = " ".join(f"{sign} {field.metadata[rule]:g}" for rule, sign in SIGNS.items() if rule in field.metadata)
    default = t("launch.default", default=readable(base[name]))
    if base[name] != field.default:
        default = t("launch.suggested", default=readable(base[name]), algorithm=readable(field.default))
    return session.plain(f"{meaning} {default}{f' ({rules})' if rules else ''}") + f"  \n`{name}`"


def readable(value: Any) -> str:
    """A value in a sentence."""
    if value is None:
        return t("launch.none")
    if isinstance(value, bool):
        return t("launch.on") if value else t("launch.off")
    return shown(value)


def _level(config: type[TrainingConfig], name: str) -> str:
    return str(config.__dataclass_fields__[name].metadata["level"])


def _rows(
    config: type[TrainingConfig], fields: Sequence[str], draft: Draft, base: Mapping[str, Any], slots: session.Slots
) -> None:
    for start in range(0, len(fields), PER_ROW):
        for column, name in zip(st.columns(PER_ROW), fields[start : start + PER_ROW]):
            with column:
                setting(config, name, draft, base, slots)


def setting(
    config: type[TrainingConfig], name: str, draft: Draft, base: Mapping[str, Any], slots: session.Slots
) -> None:
    """One field: its widget, a note when it differs from the default, and a place for its error."""
    values = draft["config"]
    raw = WIDGETS[kind_of(config, name)](config, name, values.get(name, base[name]), base)
    values[name] = raw
    slots.open(name)
    try:
        value = parsed(config, name, raw)
    except ValueError as error:
        slots.say(name, str(error))
        return
    if value == base[name]:
        del values[name]
    else:
        st.caption(f":blue[{t('launch.changed', default=readable(base[name]))}]")


def _number(config: type[TrainingConfig], name: str, value: Any, base: Mapping[str, Any]) -> Any:
    """A text, so that 5e-6 can be typed, and so that what is no number can be told."""
    text = value if isinstance(value, str) else shown(value)
    key = session.seeded(name, text)
    return st.text_input(t(f"field.{name}"), key=key, help=help_of(config, name, base), placeholder=t("launch.none"))


def _switch(config: type[TrainingConfig], name: str, value: Any, base: Mapping[str, Any]) -> Any:
    return st.toggle(t(f"field.{name}"), key=session.seeded(name, bool(value)), help=help_of(config, name, base))


def _choice(config: type[TrainingConfig], name: str, value: Any, base: Mapping[str, Any]) -> Any:
    choices = list(config.__dataclass_fields__[name].metadata["choices"])
    options = choices if value in choices else [*choices, value]  # a wrong one from a file stays, with its error
    return st.selectbox(
        t(f"field.{name}"),
        options,
        key=session.seeded(name, value),
        help=help_of(config, name, base),
        format_func=_choice_name,
    )


def _choice_name(value: Any) -> str:
    key = f"choice.{value}"
    return f"{value} · {t(key)}" if has(key) else str(value)


WIDGETS = {NUMBER: _number, SWITCH: _switch, CHOICE: _choice}
"""The widget of each kind of field, but for devices, which have a page part of their own."""
