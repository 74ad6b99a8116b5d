"""Which language models the agents and critics start from: a built-in one, a folder, a GGUF file, or a hub name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st
import yaml

from workbench.models.locations import BUILTINS, ModelError, locate
from workbench.runs.spec import RunSpec
from workbench.runs.yamlfile import parse_yaml
from workbench.ui.form import session
from workbench.ui.form.draft import Draft
from workbench.ui.text import has, t

DTYPES = ("float32", "bfloat16", "float16")
LORA = {"r": 8, "lora_alpha": 16}
"""What a new adapter starts with in the form."""


# --- what is wrong with a model -------------------------------------------------------------------


def troubles(spec: RunSpec) -> dict[str, str]:
    """model, agents or critic -> why a model it names cannot be used, one sentence. Only what needs no network."""
    named = {"model": spec.model, "agents": spec.agents, "critic": spec.critic}
    found = {}
    for field, value in named.items():
        for source in [value] if isinstance(value, str) else value or []:
            reason = trouble(source, spec.model_options)
            if reason is not None:
                found[field] = reason
    return found


def trouble(source: str, options: Mapping[str, Any]) -> str | None:
    """Why this model cannot be used, None when nothing speaks against it."""
    if source == "builtin:tiny":  # made in memory, it lies nowhere
        return t("model.tiny_options") if options.get("dtype") or options.get("lora") else None
    try:
        place = locate(source)
    except (ModelError, OSError, StopIteration) as error:
        return str(error) or t("model.missing", source=source)
    if isinstance(place, str) and place.count("/") > 1:  # a hub name has one at most
        return t("model.missing", source=source)
    if isinstance(place, Path) and place.is_dir():
        folder = place / str(options.get("subfolder") or "")
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            return t("model.empty_folder", folder=folder)
    return None


# --- widgets --------------------------------------------------------------------------------------


def agents(draft: Draft, count: int, slots: session.Slots) -> None:
    """One model for all agents, or one for each."""
    listed = draft.get("agents")
    each = st.toggle(t("launch.model_each"), key=session.seeded("agents-each", listed is not None))
    if each:
        before = _spread(listed or draft.get("model"), count)
        draft["agents"] = [_model(f"agent-{i}", t("launch.agent", number=i), before[i]) for i in range(count)]
        draft["model"] = None
        slots.open("agents")
    else:
        draft["model"] = _model("model", t("launch.model"), _spread(draft.get("model") or listed, 1)[0])
        draft["agents"] = None
    slots.open("model")


def critics(draft: Draft, count: int, slots: session.Slots) -> None:
    """The critic, or one for each agent. count: how many there are."""
    value = draft.get("critic") or draft.get("model") or draft.get("agents")
    each = count > 1 and st.toggle(
        t("launch.critic_each"), key=session.seeded("critics-each", isinstance(draft.get("critic"), list))
    )
    if each:
        before = _spread(value, count)
        draft["critic"] = [_model(f"critic-{i}", t("launch.critic_of", number=i), before[i]) for i in range(count)]
    else:
        draft["critic"] = _model("critic", t("launch.critic"), _spread(value, 1)[0])
    slots.open("critic")


def options(draft: Draft, slots: session.Slots) -> None:
    """Number format, adapter, and everything else that model_config takes, as YAML."""
    given = dict(draft.get("model_config") or {})
    left, right = st.columns(2)
    with left:
        dtype = given.pop("dtype", None) or DTYPES[0]
        choices = [*DTYPES, *([dtype] if dtype not in DTYPES else [])]
        chosen = st.selectbox(
            t("launch.dtype"), choices, key=session.seeded("dtype", dtype), help=t("launch.dtype_help")
        )
    with right:
        lora = _adapter(given.pop("lora", None))
    rest = _rest(given, slots)
    kept = {"dtype": chosen} if chosen != DTYPES[0] or (draft.get("model_config") or {}).get("dtype") else {}
    draft["model_config"] = {**kept, **({"lora": lora} if lora is not None else {}), **rest}


def _adapter(lora: Any) -> dict[str, Any] | None:
    wanted = st.toggle(t("launch.lora"), key=session.seeded("lora", lora is not None), help=t("launch.lora_help"))
    if not wanted:
        return None
    found = dict(lora) if isinstance(lora, Mapping) else dict(LORA)
    for column, name in zip(st.columns(2), LORA):
        value = found.get(name, LORA[name])
        with column:
            found[name] = st.number_input(
                f"`{name}`", 1, 4096, key=session.seeded(f"lora-{name}", min(max(int(value), 1), 4096))
            )
    return found


def _rest(given: dict[str, Any], slots: session.Slots) -> dict[str, Any]:
    """What stands under model_config besides; the text stays as it is while it is not valid."""
    text = yaml.safe_dump(given, sort_keys=False, allow_unicode=True) if given else ""
    typed = st.text_area(
        t("launch.model_options"), key=session.seeded("model-options", text), help=t("launch.model_options_help")
    )
    slots.open("model_config")
    try:
        found = parse_yaml(typed, "model_config") or {}
    except ValueError as error:
        slots.say("model_config", str(error))
        return given
    if isinstance(found, dict):
        return found
    slots.say("model_config", t("launch.model_options_help"))
    return given


def _model(name: str, label: str, value: str) -> str:
    """A built-in model or any other name; what is typed becomes an option of its own."""
    key = session.seeded(name, value)
    present = [str(st.session_state[key] or ""), value]
    choices = list(dict.fromkeys([*BUILTINS, *filter(None, present)]))
    chosen = st.selectbox(
        label,
        choices,
        key=key,
        accept_new_options=True,
        help=t("launch.model_help"),
        placeholder=t("launch.model_type"),
    )
    if has(f"model.{chosen}"):
        st.caption(t(f"model.{chosen}"))
    return (chosen or "").strip()


def _spread(value: Any, count: int) -> list[str]:
    """The model of each of `count`, when one or several are named."""
    names = [value] if isinstance(value, str) else list(value or [BUILTINS[0]])
    return [names[min(i, len(names) - 1)] for i in range(count)]
