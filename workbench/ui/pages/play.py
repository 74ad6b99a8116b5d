"""Send an item or a prompt through the whole team, next to the team before training, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from workbench.insight.compare import readable, spec_of
from workbench.runs.play_process import MAX_PROMPT, MAX_SAMPLES, RUNNING, Play, PlayRequest, plays, start_play
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import FINISHED, RunFolder
from workbench.runs.workspace import RUNNING as TRAINING
from workbench.tasks import TASKS
from workbench.types import Item
from workbench.ui import play_parts as parts
from workbench.ui import state
from workbench.ui.text import plain, t
from workbench.ui.widgets import choose_run, tolerant

TICK_SECONDS = 1.0
ITEM, PROMPT = "item", "prompt"
FINAL, NO_WEIGHTS = "final", "none"
"""Weights beside the steps of checkpoints: the final model; and of a run without any, whose initial team plays."""
SHOWN = 80  # characters of an item in the list


def page() -> None:
    """The run and the play that the address names (?run=, ?play=)."""
    st.title(t("page.play"))
    st.caption(t("play.about"))
    run = choose_run("play-run")
    if run is None:
        return
    with tolerant():
        request = _form(run, spec_of(run))
        _button(run, request)
    with tolerant():
        _shown(run)


# --- what to play --------------------------------------------------------------------------------


def _form(run: RunFolder, spec: RunSpec) -> PlayRequest | None:
    """The request that the widgets say, None while something is missing."""
    left, right = st.columns([2, 1])
    with right:
        options = _weights(run)
        chosen = st.selectbox(
            t("play.weights"), options, format_func=_weights_name, key=f"play-weights-{run.id}",
            help=t("play.weights_help"),
        )  # fmt: skip
        samples = st.slider(t("play.samples"), 1, MAX_SAMPLES, 2, key="play-samples", help=t("play.samples_help"))
    with left:
        item, prompt = _source(spec)
    if prompt is not None and not prompt.strip():
        return None
    checkpoint = int(chosen) if chosen.isdigit() else None
    return PlayRequest(item, prompt, samples, checkpoint, trained=chosen != NO_WEIGHTS)


def _weights_name(option: str) -> str:
    return t("play.no_weights") if option == NO_WEIGHTS else parts.weights(None if option == FINAL else int(option))


def _weights(run: RunFolder) -> list[str]:
    """What `build.build_trained` can load: the final model, and the steps of checkpoints, newest first."""
    steps = sorted(run.checkpoints(), reverse=True)
    final = run.model_folder.is_dir() and (run.read_status().state == FINISHED or not steps)
    return [*([FINAL] if final else []), *map(str, steps)] or [NO_WEIGHTS]


def _source(spec: RunSpec) -> tuple[int, str | None]:
    """(item, prompt); the prompt is None when an item is played."""
    kind = st.segmented_control(
        t("play.source"), (ITEM, PROMPT), default=ITEM, format_func=lambda name: t(f"play.source_{name}"),
        key="play-source", required=True,
    )  # fmt: skip
    if kind == PROMPT:
        text = st.text_area(t("play.prompt"), key="play-prompt", max_chars=MAX_PROMPT, help=t("play.prompt_help"))
        return 0, text
    items = _items(spec)
    if items is None:
        return int(st.number_input(t("play.item"), 0, value=0, key="play-item-number", help=t("play.item_own"))), None
    key = f"play-item-{spec.task}"
    names = [f"{number} · {' '.join(str(item.get('prompt', item)).split())}" for number, item in enumerate(items)]
    number = st.selectbox(t("play.item"), range(len(items)), format_func=lambda i: names[i][:SHOWN], key=key)
    return number, None


def _items(spec: RunSpec) -> Sequence[Item] | None:
    """The items of a built-in task; None for data or a file of the user's own, which this process does not load."""
    task = TASKS.get(spec.task)
    if task is None or spec.dataset is not None:
        return None
    found, _ = readable(lambda: task.load_eval_items() or task.load_train_items())
    return found  # type: ignore[return-value]


def _button(run: RunFolder, request: PlayRequest | None) -> None:
    busy = [other.id for other in state.workspace().runs() if other.read_status().state == TRAINING]
    if busy:
        st.caption(t("play.busy", runs=", ".join(busy)))
    st.button(
        t("play.start"),
        icon=":material/play_arrow:",
        type="primary",
        key="play-start",
        disabled=request is None,
        on_click=_start,
        args=(run, request),
    )
    if message := st.session_state.pop("play-error", None):
        st.error(plain(message))


def _start(run: RunFolder, request: PlayRequest) -> None:
    """Before the page is drawn again; a refusal is said below the button."""
    try:
        st.query_params["play"] = start_play(run, request).id
    except (ValueError, OSError) as error:
        st.session_state["play-error"] = str(error)


# --- what was played -----------------------------------------------------------------------------


def _shown(run: RunFolder) -> None:
    found = {play.id: play for play in plays(run)}
    if not found:
        st.info(t("play.none"))
        return
    st.divider()
    play = _choose(found)
    running = play.state == RUNNING
    st.fragment(_live, run_every=TICK_SECONDS if running else None)(run, play.id, running)


def _choose(found: dict[str, Play]) -> Play:
    """The play that the address names, else the newest; with several, one can be picked."""
    named = st.query_params.get("play", "")
    if len(found) == 1:
        return next(iter(found.values()))
    key = "play-shown"
    st.session_state[key] = named if named in found else next(iter(found))
    names = {name: parts.what(play) for name, play in found.items()}
    chosen = st.selectbox(t("play.earlier"), list(found), format_func=names.__getitem__, key=key, on_change=_name_play)
    return found[chosen]


def _name_play() -> None:
    st.query_params["play"] = st.session_state["play-shown"]


def _live(run: RunFolder, play_id: str, was_running: bool) -> None:
    play = next((play for play in plays(run) if play.id == play_id), None)
    if play is None or (play.state == RUNNING) != was_running:
        st.rerun()  # the whole page, which stops ticking
    if play.state == RUNNING:
        parts.progress(play)
    with tolerant():
        parts.outcome(run, play)
