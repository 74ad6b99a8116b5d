"""The part of a report that sets several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from workbench.insight.compare import config_diff, runs_table, warning
from workbench.insight.overlay import overlay
from workbench.report.charts import overlay_figure
from workbench.report.markup import Html, div, joined, shown, table, tag
from workbench.report.sections import Draw, chosen_panels, notice, spec_or_reason, trace_keys
from workbench.runs.workspace import RunFolder

COLUMNS = ("id", "state", "algorithm", "task", "seed", "reward", "env_step", "duration", "problem")
MOST_CHARTS = 24  # more make the page slow, and nobody reads them


def overview(runs: Sequence[RunFolder]) -> Html:
    """A row per run; reward: the latest logged in training, duration: seconds."""
    return table(runs_table(runs)[list(COLUMNS)].astype("object"))


def differences(runs: Sequence[RunFolder]) -> Html:
    """The settings that differ, and whether that allows a comparison at all."""
    read = {run.id: spec_or_reason(run) for run in runs}
    specs = {name: spec for name, (spec, _) in read.items() if spec is not None}
    problems = [notice(f"The settings of {name} are missing: {reason}") for name, (_, reason) in read.items() if reason]
    caution = warning(specs) if specs else None
    frame = config_diff(specs).map(_plain) if specs else pd.DataFrame()
    frame = frame.reset_index(names="setting")
    content = table(frame) if len(frame) else tag("p", "All settings are the same.")
    return joined([*problems, *([notice(caution["en"])] if caution else []), content])


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else shown(value)


def overlays(runs: Sequence[RunFolder], draw: Draw) -> Html:
    """A chart per metric key; runs that differ in nothing but the seed are one group with a band."""
    keys = sorted({key for run in runs for key in trace_keys(run)})
    wanted = [key for panel in chosen_panels(keys) for key in panel.keys]
    found = {key: overlay(runs, key) for key in wanted[:MOST_CHARTS]}
    missing = _missing(runs, {name: why for one in found.values() for name, why in one.problems.items()})
    rest = wanted[MOST_CHARTS:]
    left = [tag("p", f"Not drawn, to keep the page light: {', '.join(rest)}.")] if rest else []
    empty = [key for key, one in found.items() if not len(one.lines)]
    left += [notice(f"Not drawn, since they hold no finite number: {', '.join(empty)}.")] if empty else []
    charts = div("charts", *(draw(overlay_figure(key, one)) for key, one in found.items() if len(one.lines)))
    return joined([tag("p", "Bold: the mean over the runs of a group, which differ in the seed alone; shaded: its 95 % "
                       "interval (from two runs on); faint: every run."), *missing, charts, *left])  # fmt: skip


def _missing(runs: Sequence[RunFolder], reasons: Mapping[str, str]) -> list[Html]:
    """Runs that are in no chart at all."""
    absent = [run.id for run in runs if not trace_keys(run)]
    return [notice(f"Not in the charts: {name}. {reasons.get(name, 'It has not logged any metric.')}")
            for name in absent]  # fmt: skip
