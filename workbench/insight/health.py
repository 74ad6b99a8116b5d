"""Is this run healthy? Rules look at a window of a trace and raise alarms in plain language, with the nodes to look at.

Every rule is a function of a Window in RULES; the words stand in health_words. A rule that lacks what it needs, such
as a critic or the spec, stays silent. This module measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbench.insight import health_signal, health_texts
from workbench.insight.alarms import Alarm, Severity
from workbench.insight.health_data import Settings, Window, read_window, settings_of

__all__ = ["RULES", "SEVERITIES", "Alarm", "Settings", "Severity", "Window", "check", "judge", "settings_of"]

SEVERITIES: tuple[Severity, ...] = ("alarm", "warning", "info")  # most urgent first

RULES: dict[str, Callable[[Window], list[Alarm]]] = {
    "no_signal": health_signal.no_signal,
    "unscored": health_signal.unscored,
    "reward_constant": health_signal.reward_constant,
    "ends_in_turn_1": health_signal.ends_in_turn_1,
    "critic_worse": health_signal.critic_worse,
    "entropy_drop": health_signal.entropy_drop,
    "kl_jump": health_signal.kl_jump,
    "truncation": health_texts.truncation,
    "length_runaway": health_texts.length_runaway,
    "duplicates": health_texts.duplicates,
    "stuck_text": health_texts.stuck_text,
    "silent_agent": health_texts.silent_agent,
    "short_agent": health_texts.short_agent,
    "reward_hacking": health_texts.reward_hacking,
    "baselines_equal": health_signal.baselines_equal,
}
"""Every rule by the code of its alarms."""


def check(path: str | Path, settings: Settings | None = None) -> list[Alarm]:
    """All alarms of a trace, most urgent first. Raises TraceError."""
    return judge(read_window(path, settings or Settings()))


def judge(window: Window) -> list[Alarm]:
    """All alarms of a window, most urgent first."""
    found = [] if window.recent.empty else [alarm for rule in RULES.values() for alarm in rule(window)]
    return sorted(found, key=lambda alarm: SEVERITIES.index(alarm.severity))
