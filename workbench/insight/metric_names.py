"""What every metric key means: title, unit, one sentence and which direction is good, in English and Chinese.

Keys come from the trainers; this module computes none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Words = dict[str, str]
"""A text by language: "en", "zh"."""

Direction = Literal["up", "down", "none"]


@dataclass(frozen=True)
class Meaning:
    """One row of METRICS. unit: as written beside an axis, "" for a plain number; good: the direction to hope for."""

    title: Words
    unit: Words
    text: Words
    good: Direction


@dataclass(frozen=True, order=True)
class Key:
    """A metric key taken apart: `agent_1/turn_2/entropy` -> agent 1, turn 2, name "entropy"."""

    scope: str  # "" in training, "eval" for an evaluation
    name: str
    turn: int | None
    agent: int | None

    @property
    def pattern(self) -> str:
        """The key with * for numbers, which is how METRICS knows it."""
        parts = [self.scope, "" if self.agent is None else "agent_*", "" if self.turn is None else "turn_*", self.name]
        return "/".join(filter(None, parts))


@dataclass(frozen=True)
class Panel:
    """The keys that share a chart: one metric, a line per agent and turn."""

    pattern: str
    meaning: Meaning
    keys: tuple[str, ...]


UNITS = {"": "", "reward": "奖励", "reward squared": "奖励平方", "share": "比例", "tokens": "词元",
         "tokens/s": "词元/秒", "nats per token": "nats/词元", "nats per completion": "nats/回复",
         "s per log point": "秒/记录点"}  # fmt: skip
"""English to Chinese."""


def _row(en: str, zh: str, unit: str, good: Direction, text: str, text_zh: str) -> Meaning:
    return Meaning({"en": en, "zh": zh}, {"en": unit, "zh": UNITS[unit]}, {"en": text, "zh": text_zh}, good)


METRICS: dict[str, Meaning] = {
    "turn_*/reward_mean": _row("Mean reward", "平均奖励", "reward", "up",
        "Mean processed reward of the joint responses of this turn.",
        "本轮所有联合回复经处理后的平均奖励。"),
    "turn_*/expected_return": _row("Expected return", "期望回报", "reward", "up",
        "Undiscounted sum of rewards from this turn to the end, averaged over branches.",
        "从本轮到结束的无折扣奖励之和，对各分支取平均。"),
    "turn_*/unscored_fraction": _row("Unscored responses", "未评分比例", "share", "down",
        "Share of joint responses to which the reward function gave None; they are not learned from.",
        "奖励函数返回 None 的联合回复所占比例；这些回复不参与学习。"),
    "turn_*/reference_kl_mean": _row("KL from the reference", "与参考模型的 KL", "nats per completion", "none",
        "How far the agents have moved from their initial models (k3 estimate, summed over a completion).",
        "智能体偏离初始模型的程度（k3 估计，对整条回复求和）。"),
    "turn_*/reference_kl_penalty_mean": _row("KL penalty", "KL 惩罚", "reward", "down",
        "What the reference KL costs in reward: coefficient times KL.",
        "参考 KL 折算成的奖励损失：系数乘以 KL。"),
    "eval/turn_*/reward_mean": _row("Evaluation reward", "评估奖励", "reward", "up",
        "Mean reward of one completion per agent on the evaluation items.",
        "在评估样本上，每个智能体各写一条回复所得的平均奖励。"),
    "eval/turn_*/expected_return": _row("Evaluation return", "评估回报", "reward", "up",
        "Undiscounted sum of rewards from this turn on, on the evaluation items.",
        "在评估样本上，从本轮起的无折扣奖励之和。"),
    "agent_*/turn_*/loss": _row("Policy loss", "策略损失", "", "none",
        "Mean of -(advantage x sequence score); its size says little about progress.",
        "-(优势 × 序列得分) 的平均；其大小并不反映进展。"),
    "agent_*/turn_*/grad_norm": _row("Gradient norm", "梯度范数", "", "none",
        "Length of the gradient before clipping; sudden peaks mean unstable steps.",
        "裁剪前梯度的长度；突然的尖峰表示更新不稳定。"),
    "agent_*/turn_*/entropy": _row("Entropy", "熵", "nats per token", "none",
        "How undecided the agent is about the next token; near 0 it no longer explores.",
        "智能体对下一个词元的犹豫程度；接近 0 时不再探索。"),
    "agent_*/turn_*/completion_tokens": _row("Completion length", "回复长度", "tokens", "none",
        "Mean number of tokens per completion, the terminator included.",
        "每条回复的平均词元数，含结束符。"),
    "agent_*/turn_*/truncated_fraction": _row("Truncated completions", "截断比例", "share", "down",
        "Share of completions that were cut at max_new_tokens instead of ending by themselves.",
        "因达到 max_new_tokens 而被截断、未自行结束的回复比例。"),
    "agent_*/turn_*/advantage_std": _row("Spread of advantages", "优势的离散程度", "reward", "none",
        "Standard deviation of the advantages within a group, before normalisation; 0 teaches nothing.",
        "归一化之前组内优势的标准差；为 0 时学不到东西。"),
    "agent_*/turn_*/zero_variance_fraction": _row("Groups without signal", "无信号组比例", "share", "down",
        "Share of groups in which all advantages are equal, so that nothing is learned from them.",
        "组内优势全部相同、因而学不到东西的组所占比例。"),
    "agent_*/turn_*/value_loss": _row("Critic loss", "评论家损失", "reward squared", "down",
        "Mean squared difference between TD target and the critic's value.",
        "TD 目标与评论家估值之差的均方。"),
    "agent_*/turn_*/td_error_mean": _row("Mean TD error", "平均 TD 误差", "reward", "none",
        "Target minus value on average; away from 0 the critic is too low (above) or too high (below).",
        "目标减估值的平均；偏离 0 表示评论家偏低（大于 0）或偏高（小于 0）。"),
    "agent_*/turn_*/td_error_abs": _row("Size of TD errors", "TD 误差绝对值", "reward", "down",
        "Mean absolute difference between target and value.",
        "目标与估值之差的绝对值的平均。"),
    "agent_*/turn_*/explained_variance": _row("Explained variance", "解释方差", "share", "up",
        "Share of the targets' variance that the critic predicts; 1 is perfect, below 0 is worse than a constant.",
        "评论家预测到的目标方差比例；1 为完美，低于 0 不如一个常数。"),
    "time/rollout_s": _row("Time: rollout", "用时：生成", "s per log point", "down",
        "Seconds spent on generating text between two log points.", "两个记录点之间用于生成文本的秒数。"),
    "time/reward_s": _row("Time: reward", "用时：奖励", "s per log point", "down",
        "Seconds spent in the reward function between two log points.", "两个记录点之间奖励函数所用的秒数。"),
    "time/update_s": _row("Time: update", "用时：更新", "s per log point", "down",
        "Seconds spent on optimizer steps between two log points.", "两个记录点之间优化器更新所用的秒数。"),
    "tokens_per_s": _row("Generation speed", "生成速度", "tokens/s", "up",
        "Generated tokens per second of generation.", "生成阶段每秒产生的词元数。"),
}  # fmt: skip
"""Key pattern -> meaning, in the order in which charts stand on a page."""

KEY = re.compile(r"(?:(eval)/)?(?:agent_(\d+)/)?(?:turn_(\d+)/)?(.+)")


def parse(key: str) -> Key:
    """The parts of a key; a key of the user's own keeps what does not fit as its name."""
    match = KEY.fullmatch(key)
    if match is None:
        return Key("", key, None, None)
    scope, agent, turn, name = match.groups()
    return Key(scope or "", name, int(turn) if turn else None, int(agent) if agent else None)


def meaning(key: str) -> Meaning:
    """What a key means; one that a task or callback logs itself is shown by its own name."""
    parts = parse(key)
    if parts.pattern in METRICS:
        return METRICS[parts.pattern]
    title = parts.name if not parts.scope else f"{parts.scope}/{parts.name}"
    text = {"en": "Logged by the task or a callback of this run.", "zh": "由本次运行的任务或回调记录。"}
    return Meaning({"en": title, "zh": title}, {"en": "", "zh": ""}, text, "none")


def label(key: str, language: str = "en") -> str:
    """What tells a line from its neighbours in a panel: "agent 0, turn 1"; "" when it stands alone."""
    parts, words = parse(key), {"en": ("agent {}", "turn {}"), "zh": ("智能体 {}", "第 {} 轮")}[language]
    numbers = zip(words, (parts.agent, parts.turn))
    return ", ".join(word.format(number) for word, number in numbers if number is not None)


def panels(keys: Iterable[str]) -> list[Panel]:
    """Keys of one pattern together, their lines by agent and turn; known patterns in METRICS' order, then the rest."""
    found: dict[str, list[str]] = {}
    for key in sorted(keys, key=lambda k: (parse(k).agent or 0, parse(k).turn or 0, k)):
        found.setdefault(parse(key).pattern, []).append(key)
    place = {pattern: number for number, pattern in enumerate(METRICS)}
    order = sorted(found, key=lambda pattern: (place.get(pattern, len(place)), pattern))
    return [Panel(pattern, meaning(found[pattern][0]), tuple(found[pattern])) for pattern in order]
