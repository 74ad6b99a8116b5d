"""Alarms about numbers: rewards and returns that teach nothing, critics, entropy, the reference KL.

Every threshold is a constant with its reason. A rule that lacks what it needs stays silent.
"""

from __future__ import annotations

import numpy as np

from workbench import estimators
from workbench.insight.alarms import LEAST, MAX_LINKS, Alarm, alarm, places, severity, share_alarms
from workbench.insight.health_data import EARLY_POINTS, Window, nodes_near
from workbench.insight.metric_names import parse

SAME_RETURN = 1e-6  # the floor of the standard deviation in normalisation: a smaller spread is no signal
NO_SIGNAL = (0.5, 0.9)  # half the work is wasted; nearly all of it is
UNSCORED = (0.25, 0.9)  # a quarter of the texts was sampled for nothing; nearly all were
TURN_1 = 0.95  # a stray branch in twenty does not train turn 2
CRITIC_LEAST = 32  # values; with fewer the variance of the targets itself is chance
CRITIC = (0.0, -0.5)  # worse than a constant; far worse
ENTROPY = (0.25, 0.1)  # of its first value: below a quarter exploration ends, at a tenth it has
KL_FACTOR, KL_LEAST, KL_BEFORE = 3.0, 0.5, 20  # three times the 20 points before, and by half a nat: not noise


def no_signal(window: Window) -> list[Alarm]:
    """Groups of two and more whose returns are all the same."""
    found = []
    scored = window.recent.dropna(subset=["return"])
    for place, rows in places(scored[scored["value"].isna()]):
        groups = rows.groupby("node_id")["return"].agg(["min", "max", "size"])
        groups = groups[groups["size"] > 1]
        flat = groups["max"] - groups["min"] <= SAME_RETURN
        grade = severity(flat.mean(), NO_SIGNAL) if len(groups) >= LEAST else None
        if grade:
            nodes = groups.index[flat][::-1]
            numbers = {"share": float(flat.mean()), "count": len(groups), **place}
            found.append(alarm(window, "no_signal", grade, nodes, numbers))
    return found


def unscored(window: Window) -> list[Alarm]:
    """Completions to which the task gave no reward."""
    return share_alarms(window, "unscored", UNSCORED, window.recent["reward"].isna())


def reward_constant(window: Window) -> list[Alarm]:
    """Every recent reward of a turn is the same number."""
    found = []
    for _, rows in window.recent.dropna(subset=["reward"]).groupby("turn"):
        rewards = rows["reward"]
        if len(rewards) >= LEAST and rewards.max() - rewards.min() <= SAME_RETURN:
            numbers = {"turn": int(rows["turn"].iloc[0]), "count": len(rewards), "reward": rewards.iloc[0]}
            found.append(alarm(window, "reward_constant", "warning", rows["node_id"][::-1], numbers))
    return found


def baselines_equal(window: Window) -> list[Alarm]:
    """Normalisation is on: every baseline gives what the chosen one gives. Measured on the recent groups."""
    if not window.settings.normalization:
        return []
    groups = [
        rows["return"].to_numpy() for _, rows in window.recent.dropna(subset=["return"]).groupby(["node_id", "agent"])
    ]
    groups = [returns for returns in groups if len(returns) > 1 and np.ptp(returns) > SAME_RETURN]
    if not groups:
        return []
    widest = max(float(np.ptp(_normalized_by_all(returns), axis=0).max()) for returns in groups)
    numbers = {"mode": window.settings.advantage_mode, "count": len(groups), "difference": widest}
    return [alarm(window, "baselines_equal", "info", window.nodes["node_id"][::-1], numbers)]


def _normalized_by_all(returns: np.ndarray) -> np.ndarray:
    """[baselines, G]"""
    return np.stack([estimators.normalized(returns - b(returns)) for b in estimators.BASELINES.values()])


def ends_in_turn_1(window: Window) -> list[Alarm]:
    """Rollouts of several turns that all stop after the first."""
    settings = window.settings
    roots = window.nodes[window.nodes["turn"] == 1]
    stopped = roots["terminated"]
    if not settings.num_turns or settings.num_turns < 2 or len(roots) < LEAST or stopped.mean() < TURN_1:
        return []
    reward = window.recent[window.recent["node_id"].isin(roots["node_id"])]["reward"].mean()
    numbers = {"share": stopped.mean(), "count": len(roots), "turns": settings.num_turns, "reward": reward,
               "threshold": settings.threshold}  # fmt: skip
    return [alarm(window, "ends_in_turn_1", "alarm", roots[stopped]["node_id"][::-1], numbers)]


def critic_worse(window: Window) -> list[Alarm]:
    """Explained variance of the recent values below that of a constant."""
    found = []
    for place, rows in places(window.recent.dropna(subset=["value", "target"])):
        if len(rows) < CRITIC_LEAST:
            continue
        explained = estimators.explained_variance(rows["value"].to_numpy(), rows["target"].to_numpy())
        grade = severity(explained, CRITIC) if explained < 0 else None
        if grade:
            worst = rows.loc[rows["td_error"].abs().sort_values(ascending=False).index, "node_id"]
            numbers = {"recent": explained, "count": len(rows), **place}
            found.append(alarm(window, "critic_worse", grade, worst, numbers))
    return found


# --- metrics -------------------------------------------------------------------------------------


def entropy_drop(window: Window) -> list[Alarm]:
    """The newest tenth of the entropy's points against the first."""
    found = []
    for key, points in window.series.items():
        at = parse(key)
        if at.name != "entropy" or len(points) < LEAST:
            continue
        size = min(max(len(points) // 10, LEAST // 4), EARLY_POINTS)
        early, recent = points["value"][:size].mean(), points["value"][-size:].mean()
        grade = severity(recent / early, ENTROPY) if early > 0 else None
        if grade:
            nodes = window.nodes[window.nodes["turn"] == at.turn]["node_id"][::-1]
            steps = int(points["step"].iloc[0]), int(points["step"].iloc[-1])
            numbers = {"agent": at.agent, "turn": at.turn, "early": early, "recent": recent}
            found.append(alarm(window, "entropy_drop", grade, nodes, numbers, steps))
    return found


def kl_jump(window: Window) -> list[Alarm]:
    """The highest rise of the reference KL above the median of the points before it."""
    found = []
    for key, points in window.series.items():
        before = points["value"].rolling(KL_BEFORE).median().shift(1)
        jumps = (points["value"] > KL_FACTOR * before) & (points["value"] - before > KL_LEAST)
        at = parse(key)
        if at.name != "reference_kl_mean" or not jumps.any():
            continue
        worst = int(np.nanargmax((points["value"] - before).where(jumps).to_numpy()))
        low, high = int(points["step"].iloc[worst - 1]), int(points["step"].iloc[worst])
        numbers = {"turn": at.turn, "early": before[worst], "recent": points["value"][worst], "step": high}
        nodes = nodes_near(window.path, low, high, MAX_LINKS) if window.path else ()
        found.append(alarm(window, "kl_jump", "warning", nodes, numbers, (low, high)))
    return found
