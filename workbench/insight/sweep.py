"""What a sweep found: one metric of its finished runs, per cell as a mean with its 95 % interval over seeds.

All runs are read up to the same env_step, the last that every one of them reached, so that none is better merely
because it trained longer. This module says what the numbers are and what else differs, not who has won.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workbench.fields import did_you_mean
from workbench.insight.compare import env_step, factors, in_groups, readable, spec_of
from workbench.insight.overlay import LAST, t_quantile
from workbench.insight.reading import query
from workbench.runs.spec import RunSpec
from workbench.runs.sweep import state_of
from workbench.runs.sweep_spec import CASE, Member, Sweep
from workbench.runs.workspace import FINISHED, RunFolder
from workbench.tracking.trace import read_metric_keys

EVAL_REWARD, TRAIN_REWARD = "eval/turn_1/reward_mean", "turn_1/reward_mean"
EVAL = "eval/"
RUN_COLUMNS = ("run", "state", "value", "env_step", "last_step", "wall_s", "problem")
CELL_COLUMNS = ("n", "mean", "low", "high", "env_step", "wall_s")


@dataclass(frozen=True, eq=False)
class SweepResults:
    """cells: a row per cell, its labels and CELL_COLUMNS: n finished runs with the metric, their mean, the ends of its
    95 % t-interval (NaN for one run), the env_step of the last point used (the least of them), mean seconds from start
    to end with pauses. runs: a row per member, its labels, seed and RUN_COLUMNS; last_step: where the run itself ended.

    cut: points after this env_step are left out, None = nothing is. rule: how a run's points become one value.
    warnings: what forbids to put a difference down to the factor; one sentence each.
    """

    metric: str
    rule: str
    cut: int | None
    cells: pd.DataFrame
    runs: pd.DataFrame
    warnings: tuple[str, ...]


def sweep_results(sweep: Sweep, runs: Mapping[str, RunFolder], equal: bool = True) -> SweepResults:
    """runs: member key -> run, as far as there is one. equal: cut all runs at the least last env_step. Only finished
    runs count. A run without the metric, or with a damaged trace, has no value and says why."""
    done = {key: run for key, run in runs.items() if run.read_status().state == FINISHED}
    metric = sweep.metric or _default_metric(done.values())
    points, problems = _points_of(done, metric)
    last = {key: env_step(done[key]) for key in points}
    cut = min(last.values(), default=None) if equal else None
    rows = [_run_row(member, runs.get(member.key), metric, points, last, cut, problems) for member in sweep.members]
    table = pd.DataFrame(rows)
    rule = "last point" if metric.startswith(EVAL) else "mean of the last tenth of its points"
    return SweepResults(metric, rule, cut, _cells(table, [*sweep.members[0].labels]), table, tuple(_flags(sweep, runs)))


def value_of(points: pd.DataFrame, metric: str, cut: int | None) -> tuple[float, int | None]:
    """(value, env_step of its last point) from points with step and value, in their order; NaN and None without any.

    An evaluation counts by its last point, since it is a mean over items already; training by its last tenth.
    """
    used = points if cut is None else points[points["step"] <= cut]
    if used.empty:
        return math.nan, None
    count = 1 if metric.startswith(EVAL) else max(len(used) // LAST, 1)
    return float(used["value"].iloc[-count:].mean()), int(used["step"].iloc[-1])


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high): the 95 % interval of the mean by Student's t; NaN ends for one value, all NaN for none."""
    known = np.array(values, np.float64)
    if not len(known):
        return math.nan, math.nan, math.nan
    mean = float(known.mean())
    if len(known) == 1:
        return mean, math.nan, math.nan
    half = t_quantile(len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return mean, mean - half, mean + half


# --- reading -------------------------------------------------------------------------------------


def _default_metric(runs: Iterable[RunFolder]) -> str:
    """The evaluation reward where every run has one, else the training reward: all runs by the same measure."""
    found = [readable(functools.partial(_points, run, EVAL_REWARD))[0] for run in runs]
    known = [points for points in found if points is not None]
    return EVAL_REWARD if known and all(len(points) for points in known) else TRAIN_REWARD


def _points_of(runs: Mapping[str, RunFolder], metric: str) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    found, problems = {}, {}
    for key, run in runs.items():
        points, problem = readable(functools.partial(_points, run, metric))
        if points is not None and len(points):
            finite = np.isfinite(points["value"])
            found[key] = points[finite]
            odd = int((~finite).sum())
            problem = f"{odd} of {len(points)} points are not numbers and left out." if odd else ""
        problems[key] = problem or ("" if key in found else _unknown(run, metric))
    return found, problems


def _unknown(run: RunFolder, metric: str) -> str:
    keys = read_metric_keys(run.trace_file)
    return f"It has not logged {metric}{did_you_mean(metric, keys)}."


def _points(run: RunFolder, key: str) -> pd.DataFrame:
    frame = query(run.trace_file, "SELECT step, value FROM metrics WHERE key = ? ORDER BY rowid", (key,))
    return frame.astype({"value": "float64"})


def _run_row(
    member: Member, run: RunFolder | None, metric: str, points: Mapping[str, pd.DataFrame],
    last: Mapping[str, int], cut: int | None, problems: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    status, key = state_of(run), member.key
    value, step = value_of(points[key], metric, cut) if key in points else (math.nan, None)
    problem = problems.get(key, "")
    if key in points and step is None and not problem:
        problem = f"It has no point of {metric} up to env_step {cut}."
    wall = status.ended - status.started if status.ended and status.started else math.nan
    return {**member.labels, "seed": member.seed, "run": run.id if run else "", "state": status.state, "value": value,
            "env_step": step, "last_step": last.get(key), "wall_s": wall,
            "problem": problem or status.error or ""}  # fmt: skip


def _cells(runs: pd.DataFrame, labels: list[str]) -> pd.DataFrame:
    rows = []
    for names, group in runs.groupby(labels, sort=False):
        used = group[group["value"].notna()]
        mean, low, high = interval(used["value"].tolist())
        numbers = (len(used), mean, low, high, used["env_step"].min(), used["wall_s"].mean())
        rows.append(dict(zip(labels, names)) | dict(zip(CELL_COLUMNS, numbers)))
    return pd.DataFrame(rows, columns=[*labels, *CELL_COLUMNS]).astype({"env_step": "Int64", "n": "int64"})


# --- what else differs ---------------------------------------------------------------------------


def _flags(sweep: Sweep, runs: Mapping[str, RunFolder]) -> list[str]:
    """Within one setting of all other labels the runs may differ in what the factor sets, and in the seed."""
    found = []
    if sweep.factor == CASE and len(sweep.named) > 1:
        found.append(
            f"The cases set {len(sweep.named)} keys at once ({', '.join(sweep.named)}), so a difference between them "
            "belongs to the whole bundle and to none of these alone."
        )
    for context, members in _comparisons(sweep).items():
        more = [key for key in factors(_specs(members, runs)) if not in_groups(key, sweep.named)]
        if more:
            where = f" at {context}" if context else ""
            found.append(
                f"The runs{where} differ in more than {sweep.factor}: {', '.join(more)}. A difference in results "
                f"cannot be put down to {sweep.factor} alone; set these keys in base."
            )
    return found


def _comparisons(sweep: Sweep) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {}
    for member in sweep.members:
        context = ", ".join(f"{key}={label}" for key, label in member.labels.items() if key != sweep.factor)
        found.setdefault(context, []).append(member)
    return found


def _specs(members: Sequence[Member], runs: Mapping[str, RunFolder]) -> dict[str, RunSpec]:
    """As the runs have them, since a resume may have changed one; else as the file says."""
    found = {}
    for member in members:
        run = runs.get(member.key)
        spec = readable(functools.partial(spec_of, run))[0] if run is not None else None
        found[member.key] = spec or member.resolved.spec
    return found
