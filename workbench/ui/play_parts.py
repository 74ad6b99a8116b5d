"""One play on the page: how far it is, and both teams side by side, turn by turn and agent by agent.

Whatever a model wrote is shown as plain text, never as markup.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from statistics import fmean

import streamlit as st

from workbench.runs.play_process import FAILED, RECORD, RUNNING, STAGES, Episode, Play, PlayedText, PlayedTurn, cancel
from workbench.runs.workspace import RunFolder
from workbench.ui.text import plain, t
from workbench.ui.widgets import download

TEAMS = {"trained": "blue", "untrained": "gray"}
"""Team -> colour of its rewards."""


def progress(play: Play) -> None:
    """Of a play that is going on: what it does, since when, and the button that ends it."""
    stage = play.record.stage
    elapsed = time.time() - play.record.started if play.record.started else 0.0
    text = t(f"play.stage_{stage}")
    st.progress((STAGES.index(stage) + 0.5) / len(STAGES), text=f"{text} · {t('play.elapsed', seconds=elapsed)}")
    st.button(t("play.cancel"), icon=":material/cancel:", key="play-cancel", on_click=cancel, args=(play,))


def outcome(run: RunFolder, play: Play) -> None:
    """What was played, and what went wrong."""
    if play.state == FAILED:
        st.error(plain(play.record.error or ""), icon=":material/error:")
    played = {team: episodes for team in TEAMS if (episodes := _episodes(play, team)) is not None}
    if not played:
        return
    _summary(play, played)
    sample = _sample(play)
    longest = max(len(episodes[sample]) for episodes in played.values())
    for turn in range(longest):
        st.markdown(f"**{t('play.turn', turn=turn + 1)}**")
        for column, (team, episodes) in zip(st.columns(len(TEAMS)), played.items()):
            with column:
                if turn < len(episodes[sample]):
                    _turn(play, team, episodes[sample], turn)
    if play.state != RUNNING:
        make = partial(RECORD.dump_json, play.record, indent=2)
        download(t("play.download"), make, f"play-{run.id}.json", "play-download")


def _episodes(play: Play, team: str) -> tuple[Episode, ...] | None:
    """The episodes of a team, None before they are played."""
    return play.record.trained if team == "trained" else play.record.untrained


def what(play: Play) -> str:
    """One line that tells a play from another: when, what, and with which weights."""
    request = play.request
    when = time.strftime("%H:%M:%S", time.localtime(int(play.id.split("-")[0]) / 1e9))
    item = t("play.item_short", item=request.item) if request.prompt is None else f"“{request.prompt[:40]}”"
    return f"{when} · {item} · {t('play.times', samples=request.samples)} · {weights(request.checkpoint)}"


def weights(checkpoint: int | None) -> str:
    """The name of the weights that a request names."""
    return t("play.final") if checkpoint is None else t("play.checkpoint", step=checkpoint)


def _name(play: Play, team: str) -> str:
    """On a narrow screen the teams stand below each other, so that each says which it is."""
    return weights(play.request.checkpoint) if team == "trained" else t("play.untrained")


def _summary(play: Play, played: dict[str, tuple[Episode, ...]]) -> None:
    for column, (team, episodes) in zip(st.columns(len(TEAMS)), played.items()):
        with column, st.container(key=f"play-{team}"):
            st.subheader(_name(play, team))
            rewards = [turn.reward for episode in episodes for turn in episode if turn.reward is not None]
            if rewards:
                st.metric(t("play.mean_reward"), f"{fmean(rewards):.3f}", help=t("play.mean_reward_help"))
            else:
                st.caption(t("play.unscored"))


def _sample(play: Play) -> int:
    """Which of several samples to look at; both teams show the same one."""
    count = play.request.samples
    if count == 1:
        return 0
    names = list(range(count))
    return st.segmented_control(
        t("play.sample"), names, default=0, format_func=lambda i: str(i + 1), key=f"play-sample-{play.id}",
        required=True,
    )  # fmt: skip


def _turn(play: Play, team: str, episode: Sequence[PlayedTurn], place: int) -> None:
    turn = episode[place]
    reward = t("play.unscored") if turn.reward is None else t("play.reward", reward=turn.reward)
    st.badge(f"{_name(play, team)}: {reward}", color=TEAMS[team])  # type: ignore[arg-type]
    for agent, text in enumerate(turn.texts):
        _agent(agent, text, turn.agent_rewards, f"{team}-{place}")
    if turn.enough:
        st.caption(t("play.enough"))
    if place == len(episode) - 1:
        st.caption(t("play.ended", turn=turn.turn))


def _agent(agent: int, text: PlayedText, rewards: Sequence[float | None], key: str) -> None:
    with st.container(border=True, key=f"play-{key}-{agent}"):
        own = rewards[agent] if len(set(rewards)) > 1 else None  # a shared reward stands above
        said = "" if own is None else f" · {t('play.reward', reward=own)}"
        st.markdown(f"**{t('play.agent', agent=agent)}**{said}")
        with st.expander(t("play.shown")):
            st.code(text.prompt, language=None, wrap_lines=True)
        st.code(text.text or t("play.nothing"), language=None, wrap_lines=True)
        st.caption(t("play.finished" if text.finished else "play.cut", tokens=text.tokens))
