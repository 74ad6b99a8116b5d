"""Why a completion got its number: the arithmetic line by line, each recomputed and compared with what was stored.

Every line starts from numbers stored in the trace, not from the line above it, so a wrong number shows up in the
line that made it and not in all that follow. A line that does not agree says so. Baselines, normalisation and TD
targets come from workbench.estimators; returns are summed here anew, which is what makes this a check.
Keys name the rule of a line, for whoever translates; this module knows no screen and no run folder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.config import ActorCriticConfig, MAGRPOConfig, TrainingConfig
from workbench.estimators import BASELINES, STD_FLOOR, normalized, td_errors, td_targets
from workbench.insight.arithmetic import DIFFERS, GIVEN, PART, UNKNOWN, Line, checked, listed, mean, number
from workbench.insight.tree import LAST, end_of_tree, root_of
from workbench.tracking import trace

MOST_JOINTS = 16  # lines; joint responses that differ from the trace are always shown
NUMBERS = ("node_id", "agent", "k", "kl", "reward", "return", "baseline", "advantage", "normalized", "value", "target",
           "td_error")  # fmt: skip


@dataclass(frozen=True)
class Explanation:
    """lines from the reward to the number that weighs the completion. agree: no line differs from the trace.

    remark: "" or why there is less to see: "evaluation" (no advantage is computed), "unscored" (no reward, so no
    gradient), "pending" (actor-critic: not yet used in an update). more_joints: joint responses that contain the
    completion and agree, beyond those listed.
    """

    lines: tuple[Line, ...]
    remark: str = ""
    more_joints: int = 0

    @property
    def agree(self) -> bool:
        return all(line.verdict != DIFFERS for line in self.lines)


@dataclass(frozen=True)
class _Facts:
    """What the trace says around one completion."""

    own: pd.Series  # its row
    group: pd.DataFrame  # the agent's completions at the node, own included
    joints: pd.DataFrame  # joint responses that contain it
    team: pd.DataFrame  # all agents' completions at the node
    futures: dict[int, np.ndarray]  # joint -> returns of the child node it led to
    next_value: float | None  # actor-critic: the agent's value at the next turn; NaN = not stored, None = no next turn
    evaluated: bool

    @property
    def scored(self) -> pd.DataFrame:
        return self.group[self.group["return"].notna()]

    def place(self) -> int:
        """Where the completion stands among the scored ones of its group."""
        return int((self.scored["k"] < self.own["k"]).sum())


def explain(path: str | Path, node_id: int, agent: int, k: int, config: TrainingConfig) -> Explanation:
    """The arithmetic of completion k of an agent at a node; config is the run's.

    Raises ValueError for a completion that the trace does not have, TraceError for a bad file.
    """
    facts = _read(path, node_id, agent, k)
    joints, more = _shown([_joint_return(joint, facts.futures) for _, joint in facts.joints.iterrows()])
    if facts.evaluated:
        rewards = _own_reward(facts) if isinstance(config, ActorCriticConfig) else [_reward(facts)]
        return Explanation((*rewards, *joints), "evaluation", more)
    if isinstance(config, ActorCriticConfig):
        return _critic_lines(facts, config)
    if not isinstance(config, MAGRPOConfig):
        raise ValueError(f"There is no explanation for runs with a {type(config).__name__}.")
    lines = (_reward(facts), *joints, *_return_lines(facts, config))
    if math.isnan(facts.own["return"]):
        return Explanation((*lines, *_left_out(facts)), "unscored", more)
    return Explanation((*lines, *_weight_lines(facts, config)), more_joints=more)


# --- REINFORCE -----------------------------------------------------------------------------------


def _reward(facts: _Facts) -> Line:
    rewards = facts.joints["reward"].tolist()
    formula = "r" if len(rewards) == 1 else "mean of the rewards of its joint responses"
    numbers = number(rewards[0]) if len(rewards) == 1 else f"mean({listed(rewards)})"
    return checked("reward", "reward", formula, numbers, mean(rewards), facts.own["reward"])


def _joint_return(joint: pd.Series, futures: dict[int, np.ndarray]) -> Line:
    """R = r + mean of the child node's scored returns; unscored if the reward or the whole child node is."""
    symbol, reward, future = f"R[{joint['joint']}]", float(joint["reward"]), futures.get(int(joint["joint"]))
    if future is None:
        formula = f"r[{joint['joint']}]"
        return checked("joint_return_last", symbol, formula, number(reward), reward, joint["return"])
    numbers = f"{number(reward)} + mean({listed(future)})"
    formula = f"r[{joint['joint']}] + mean(returns of its child node)"
    return checked("joint_return", symbol, formula, numbers, reward + mean(future), joint["return"])


def _return_lines(facts: _Facts, config: MAGRPOConfig) -> list[Line]:
    """The completion's return: its joint returns summed, minus the reference KL penalty if there is one."""
    returns, count = facts.joints["return"], len(facts.joints)
    total = mean(returns) * count  # an unscored joint response counts as the mean of the others
    if count == 1:
        step = ("return_aligned", f"R[{facts.joints['joint'].iloc[0]}]", number(total))
    elif returns.notna().all() or returns.isna().all():
        step = ("return_cross", "sum of R over its joint responses", listed(returns, " + "))
    else:
        numbers = f"mean({listed(returns.dropna())}) * {count}"
        step = ("return_cross_unscored", "mean of its scored R * number of its joint responses", numbers)
    if not config.reference_kl_enabled:
        key, formula, numbers = step
        return [checked(key, "return", formula, numbers, total, facts.own["return"])]
    key, formula, numbers = step
    coefficient, kl = config.reference_kl_coef, float(facts.own["kl"])
    penalty = count * coefficient * kl
    times = f"{count} * " if count > 1 else ""
    last = ("return_penalised", "return", "S - penalty", f"{number(total)} - {number(penalty)}")
    return [
        Line(key, "S", formula, numbers, total, None, PART),
        Line("kl_penalty", "penalty", "joint responses * coefficient * KL" if times else "coefficient * KL",
             f"{times}{number(coefficient)} * {number(kl)}", penalty, None, PART),
        checked(*last, total - penalty, facts.own["return"]),
    ]  # fmt: skip


def _weight_lines(facts: _Facts, config: MAGRPOConfig) -> list[Line]:
    """Baseline, advantage, normalised advantage."""
    own, mode, g = facts.own, config.advantage_mode, facts.place()
    returns, advantages = facts.scored["return"].to_numpy(), facts.scored["advantage"].to_numpy()
    baseline = float(BASELINES[mode](returns)[g])
    numbers = f"{number(own['return'])} - {number(own['baseline'])}"
    return [
        checked(f"baseline_{mode}", "baseline", *_baseline_words(mode, returns, g), baseline, own["baseline"]),
        checked("advantage", "A", "return - baseline", numbers, own["return"] - own["baseline"], own["advantage"]),
        _normalized(advantages, g, config.advantage_normalization, own["normalized"]),
    ]


def _baseline_words(mode: str, returns: np.ndarray, g: int) -> tuple[str, str]:
    """Formula and numbers of one baseline; what it amounts to is for BASELINES to say."""
    others = np.delete(returns, g)
    words = {
        "raw": ("0", "0"),
        "mean": ("mean(returns of the group)", f"mean({listed(returns)})"),
        "rloo": ("mean(returns of the others)", f"mean({listed(others)})"),
        "max": ("max(returns of the group)", f"max({listed(returns)})"),
    }
    if mode == "rloo" and not len(others):
        return "return, as there are no others", number(returns[g])
    return words[mode]


def _normalized(advantages: np.ndarray, g: int, on: bool, stored: float) -> Line:
    own = float(advantages[g])
    if not on:
        return checked("normalized_off", "weight", "A, as normalisation is off", number(own), own, stored)
    if len(advantages) == 1:
        return checked("normalized_single", "weight", "A, as the group has one member", number(own), own, stored)
    spread = float(advantages.std())
    divisor = number(spread) if spread >= STD_FLOOR else f"max({number(spread)}, {number(STD_FLOOR)})"
    numbers = f"({number(own)} - {number(float(advantages.mean()))}) / {divisor}"
    return checked("normalized", "weight", "(A - mean) / std", numbers, float(normalized(advantages)[g]), stored)


def _left_out(facts: _Facts) -> list[Line]:
    """An unscored completion has no baseline and no advantage; a stored one would be wrong."""
    names = {"baseline": "baseline", "advantage": "A", "normalized": "weight"}
    return [
        checked(name, symbol, "none without a return", number(math.nan), math.nan, facts.own[name])
        for name, symbol in names.items()
    ]


# --- actor-critic --------------------------------------------------------------------------------


def _critic_lines(facts: _Facts, config: ActorCriticConfig) -> Explanation:
    own, lines = facts.own, _own_reward(facts)
    reward, kl = float(own["reward"]), float(own["kl"])
    if config.reference_kl_enabled:
        numbers = f"{number(reward)} - {number(config.reference_kl_coef)} * {number(kl)}"
        reward -= config.reference_kl_coef * kl
        lines.append(Line("reward_penalised", "r'", "r - coefficient * KL", numbers, reward, None, PART))
    lines.append(_target(facts, reward, config.discount))
    if math.isnan(own["target"]):
        return Explanation((*lines, *_left_out(facts)), "unscored")
    value, target = float(own["value"]), float(own["target"])
    error = float(td_errors(np.array([target]), np.array([value]))[0])
    lines += [
        checked("value", "V", "the critic's estimate when the completion was sampled", number(value), value,
                 own["baseline"]),
        checked("td_error", "A", "target - V", f"{number(target)} - {number(value)}", error, own["td_error"],
                 own["advantage"]),
        _weight(own, config.advantage_normalization),
    ]  # fmt: skip
    return Explanation(tuple(lines), "pending" if math.isnan(own["normalized"]) else "")


def _own_reward(facts: _Facts) -> list[Line]:
    """Rewards may be per agent; the joint response's is their mean."""
    reward, rewards = float(facts.own["reward"]), facts.team.loc[facts.team["k"] == facts.own["k"], "reward"].tolist()
    stored = facts.joints["reward"].iloc[0]
    return [
        Line("reward", "r", "reward of this agent", number(reward), reward, None, GIVEN),
        checked(
            "team_reward", "r[team]", "mean of the agents' rewards", f"mean({listed(rewards)})", mean(rewards), stored
        ),
    ]


def _target(facts: _Facts, reward: float, discount: float) -> Line:
    """r + discount * V(next turn), and r alone at the last turn."""
    stored = facts.own["target"], facts.own["return"]
    if facts.next_value is None:
        target = float(td_targets(np.array([reward]), np.array([math.nan]), discount)[0])
        return checked("target_last", "target", "r, as this was the last turn", number(reward), target, *stored)
    numbers = f"{number(reward)} + {number(discount)} * {number(facts.next_value)}"
    target = float(td_targets(np.array([reward, math.nan]), np.array([math.nan, facts.next_value]), discount)[0])
    if math.isnan(facts.next_value) and not math.isnan(reward):
        numbers = f"{number(reward)} + {number(discount)} * (a value that is not in the trace)"
        return Line("target", "target", "r + discount * V(next turn)", numbers, math.nan, stored[0], UNKNOWN)
    return checked("target", "target", "r + discount * V(next turn)", numbers, target, *stored)


def _weight(own: pd.Series, normalization: bool) -> Line:
    stored, error = float(own["normalized"]), float(own["td_error"])
    if normalization:  # its group is the agent's buffer of that update, nodes of other items
        formula = "(A - mean) / std over the agent's buffer at this turn"
        return Line("normalized_buffer", "weight", formula, "", math.nan, stored, UNKNOWN)
    if math.isnan(stored):
        return Line("normalized_off", "weight", "A, as normalisation is off", number(error), error, None, UNKNOWN)
    return checked("normalized_off", "weight", "A, as normalisation is off", number(error), error, stored)


# --- reading and writing ---------------------------------------------------------------------------


def _read(path: str | Path, node_id: int, agent: int, k: int) -> _Facts:
    stop = end_of_tree(path, root_of(path, node_id))
    team = trace.read_completions(path, node_ids=[node_id], columns=NUMBERS)
    group = team[team["agent"] == agent]
    if (own := group[group["k"] == k]).empty:
        raise ValueError(f"Node {node_id} has no completion {k} of agent {agent}.")
    joints = trace.read_joints(path, node_ids=[node_id])
    joints = joints[[response[agent] == k for response in joints["responses"]]]
    children = trace.read_children(path, [node_id], stop, LAST)
    children = children[children["parent_joint"].isin(joints["joint"])]
    below = trace.read_joints(path, node_ids=children["node_id"].tolist())
    futures = {
        int(joint): below.loc[below["node_id"] == child, "return"].to_numpy()
        for child, joint in zip(children["node_id"], children["parent_joint"])
    }
    evaluated = bool(trace.read_nodes(path, node_ids=[node_id])["phase"].iloc[0] == "eval")
    return _Facts(own.iloc[0], group, joints, team, futures, _next_value(path, children, agent), evaluated)


def _next_value(path: str | Path, children: pd.DataFrame, agent: int) -> float | None:
    """An actor-critic's tree of several turns is one chain, so there is one next completion per agent."""
    if children.empty:
        return None
    rows = trace.read_completions(path, [int(children["node_id"].iloc[0])], columns=("agent", "value"))
    return float(rows.loc[rows["agent"] == agent, "value"].iloc[0])


def _shown(joints: Sequence[Line]) -> tuple[list[Line], int]:
    """The first lines and all that differ; how many are left out."""
    shown = [line for i, line in enumerate(joints) if i < MOST_JOINTS or line.verdict == DIFFERS]
    return shown, len(joints) - len(shown)
