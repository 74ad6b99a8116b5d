"""What the alarms of a run say, in English and Chinese: what was measured, what it means, what to try.

Braces are filled with the numbers of one alarm, see workbench.insight.health. This module measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.insight.metric_names import Words


@dataclass(frozen=True)
class AlarmWords:
    """Title and text of one alarm, by language."""

    title: Words
    text: Words


def _row(title: str, title_zh: str, text: str, text_zh: str) -> AlarmWords:
    return AlarmWords({"en": title, "zh": title_zh}, {"en": text, "zh": text_zh})


WORDS: dict[str, AlarmWords] = {
    "no_signal": _row(
        "No signal",
        "没有学习信号",
        "Agent {agent}, turn {turn}: in {share:.0%} of the {count} newest groups all completions got the same "
        "return, so nothing is learned from them. Try a higher temperature, more generations, or a reward with finer "
        "steps.",
        "智能体 {agent} 第 {turn} 轮：最近 {count} 个组中有 {share:.0%} 的组内回报完全相同，学不到任何东西。可尝试提"
        "高温度、增加生成数量，或使用更细致的奖励。",
    ),
    "unscored": _row(
        "Not scored",
        "没有评分",
        "Agent {agent}, turn {turn}: {share:.0%} of the {count} newest completions got no reward (None), so nothing is "
        "learned from them. Check the reward function.",
        "智能体 {agent} 第 {turn} 轮：最近 {count} 条回复中有 {share:.0%} 没有得到奖励（None），学不到任何东西。请检查"
        "奖励函数。",
    ),
    "truncation": _row(
        "Cut off",
        "回复被截断",
        "Agent {agent}, turn {turn}: {share:.0%} of the {count} newest completions were cut off before their end. "
        "Raise max_new_tokens, or reward shorter texts.",
        "智能体 {agent} 第 {turn} 轮：最近 {count} 条回复中有 {share:.0%} 未写完就被截断。请调大 max_new_tokens，或奖"
        "励更短的文本。",
    ),
    "length_runaway": _row(
        "Length runs away",
        "长度失控",
        "Agent {agent}, turn {turn}: completions grew from {early:.0f} to {recent:.0f} tokens, {share:.0%} of the "
        "limit of {cap:.0f}. Check whether the reward pays for length alone.",
        "智能体 {agent} 第 {turn} 轮：回复长度从 {early:.0f} 个词元增至 {recent:.0f} 个，达到上限 {cap:.0f} 的 "
        "{share:.0%}。请检查奖励是否只鼓励长度。",
    ),
    "duplicates": _row(
        "Same text within groups",
        "组内文本重复",
        "Agent {agent}, turn {turn}: {share:.0%} of the {count} newest completions repeat another one of their own "
        "group. Groups compare little that way; try a higher temperature. Fine where a task has one right answer.",
        "智能体 {agent} 第 {turn} 轮：最近 {count} 条回复中有 {share:.0%} 与同组的另一条完全相同，组内可比较的内容很"
        "少；可尝试提高温度。若任务只有一个正确答案则属正常。",
    ),
    "stuck_text": _row(
        "One text for everything",
        "千篇一律",
        "Agent {agent}, turn {turn}: {share:.0%} of the {count} newest completions are the same text, over {items} "
        "different items: “{sample}”. Fine only if the task wants the same answer each time.",
        "智能体 {agent} 第 {turn} 轮：最近 {count} 条回复中有 {share:.0%} 是同一文本，跨越 {items} 个不同样本：“"
        "{sample}”。只有当任务每次都要求相同答案时才正常。",
    ),
    "entropy_drop": _row(
        "Entropy fell",
        "熵骤降",
        "Agent {agent}, turn {turn}: entropy fell from {early:.3g} to {recent:.3g} nats per token; the agent hardly "
        "explores any more. Try a lower learning rate or a reference KL. Fine once the task is solved.",
        "智能体 {agent} 第 {turn} 轮：熵从每词元 {early:.3g} 降至 {recent:.3g} nats，智能体几乎不再探索。可尝试降低学"
        "习率或启用参考 KL。任务已学会时属正常。",
    ),
    "kl_jump": _row(
        "KL jumped",
        "KL 突增",
        "Turn {turn}: the KL from the reference rose from {early:.3g} to {recent:.3g} nats per completion within one "
        "log point, at step {step:.0f}. Look at the texts there; try a lower learning rate.",
        "第 {turn} 轮：与参考模型的 KL 在第 {step:.0f} 步的一个记录点内从每条回复 {early:.3g} 升至 {recent:.3g} nats"
        "。请查看该处文本，可尝试降低学习率。",
    ),
    "silent_agent": _row(
        "An agent is silent",
        "有智能体沉默",
        "Agent {agent}, turn {turn}: {share:.0%} of the {count} newest completions are empty. Check its prompt, and "
        "whether the reward is paid without its part.",
        "智能体 {agent} 第 {turn} 轮：最近 {count} 条回复中有 {share:.0%} 为空。请检查其提示词，以及奖励是否不需要它"
        "参与也能得到。",
    ),
    "short_agent": _row(
        "An agent hardly speaks",
        "有智能体几乎不说话",
        "Agent {agent}, turn {turn}: its texts have {recent:.1f} characters on average, the other agents' {early:.0f}"
        ". Check whether it still does its part.",
        "智能体 {agent} 第 {turn} 轮：其文本平均只有 {recent:.1f} 个字符，其他智能体为 {early:.0f} 个。请检查它是否仍"
        "在履行职责。",
    ),
    "reward_hacking": _row(
        "Reward up, texts worse",
        "奖励上升而文本退化",
        "Agent {agent}, turn {turn}: the reward rose from {early:.3g} to {recent:.3g} while different words per word "
        "went from {unique_early:.2f} to {unique:.2f} and repeated three-word phrases from {repeat_early:.0%} to "
        "{repeat:.0%}. The reward may be gamed: read the texts.",
        "智能体 {agent} 第 {turn} 轮：奖励从 {early:.3g} 升至 {recent:.3g}，但不重复词比例从 {unique_early:.2f} 变为 "
        "{unique:.2f}，重复的三词短语从 {repeat_early:.0%} 变为 {repeat:.0%}。奖励可能被钻了空子：请阅读文本。",
    ),
    "baselines_equal": _row(
        "Normalisation makes baselines equal",
        "归一化使各基线等价",
        "Advantages are normalised, so {mode} and the three other baselines give the same numbers ({count} newest "
        "groups checked, largest difference {difference:.1g}). Set advantage_normalization to false to see them "
        "differ.",
        "优势已归一化，因此 {mode} 与其余三种基线给出相同的数值（已检查最近 {count} 个组，最大差异 {difference:.1g}）"
        "。将 advantage_normalization 设为 false 可看到差别。",
    ),
    "ends_in_turn_1": _row(
        "Every branch ends in turn 1",
        "所有分支在第 1 轮结束",
        "{share:.0%} of the {count} newest rollouts stopped after turn 1 of {turns}: their mean reward {reward:.3g} "
        "is above early_termination_threshold ({threshold}). Raise it, or set it to null.",
        "最近 {count} 次展开中有 {share:.0%} 在共 {turns} 轮的第 1 轮后停止：平均奖励 {reward:.3g} 高于 "
        "early_termination_threshold（{threshold}）。请调高该值或设为 null。",
    ),
    "critic_worse": _row(
        "Critic worse than a constant",
        "评论家不如常数",
        "Agent {agent}, turn {turn}: explained variance of the {count} newest values is {recent:.2f}; a constant has "
        "0. Normal at the start; later try a higher critic_learning_rate.",
        "智能体 {agent} 第 {turn} 轮：最近 {count} 个估值的解释方差为 {recent:.2f}，而常数为 0。训练初期属正常；之后"
        "可尝试提高 critic_learning_rate。",
    ),
    "reward_constant": _row(
        "Reward does not vary",
        "奖励恒定不变",
        "All {count} newest rewards of turn {turn} are {reward:.3g}. Nothing is left to learn if that is the best "
        "one; otherwise check the reward function.",
        "第 {turn} 轮最近 {count} 个奖励全部为 {reward:.3g}。若已是最高奖励则无可再学；否则请检查奖励函数。",
    ),
}
"""Alarm code -> its words."""
