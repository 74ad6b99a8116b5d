"""One metric of several runs: curves over the same steps with bands over seeds, and end values beside parameters.

Runs whose specs differ in nothing but seed, name and tracking are one group. This module judges no difference.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workbench.insight.compare import NO_FACTORS, config_diff, factors, flat_spec, in_groups, readable, spec_of
from workbench.insight.reading import query
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import RunFolder

GRID = 200  # stretches of env_step in an overlay: as many as a chart can show apart
LAST = 10  # the end value of a metric is the mean of this part of its points, a tenth: one point is noise
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
        2.042)  # fmt: skip
"""0.975 quantiles of Student's t for 1 to 30 degrees of freedom."""


@dataclass(frozen=True, eq=False)
class Overlay:
    """lines: run, group, step, value. bands: group, step, mean, low, high, runs: the 95 % t-interval of the mean over
    the runs that have reached a step and not ended before it; NaN for a single run. problems: run -> why it is missing.
    """

    lines: pd.DataFrame
    bands: pd.DataFrame
    problems: Mapping[str, str]


def overlay(runs: Sequence[RunFolder], key: str, grid: int = GRID) -> Overlay:
    """Means of the metric over `grid` equal stretches from step 0 to the last step of all runs.

    A step is the middle of its stretch; one without a point lies on the straight line between its neighbours,
    and nothing is drawn beyond a run's own points.
    """
    points, problems = _read(runs, key)
    specs, unknown = _specs([run for run in runs if run.id in points])
    labels = groups(specs)
    edges = np.linspace(0, max((frame["step"].max() for frame in points.values()), default=1) or 1, grid + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    means = {name: _stretches(points[name], edges) for name in labels}
    lines = [_line(name, labels[name], middles, values) for name, values in means.items()]
    bands = [
        _band(label, middles, np.stack([means[name] for name in labels if labels[name] == label]))
        for label in dict.fromkeys(labels.values())
    ]
    return Overlay(_stacked(lines, "run", "group", "step", "value"),
                   _stacked(bands, "group", "step", "mean", "low", "high", "runs"), problems | unknown)  # fmt: skip


def groups(specs: Mapping[str, RunSpec]) -> dict[str, str]:
    """Run -> its group's label: the values in which the groups differ, such as "algorithm=magrpo"."""
    keys = {name: _without_seed(spec) for name, spec in specs.items()}
    first = {key: name for name, key in reversed(list(keys.items()))}
    heads = {name: specs[name] for name in first.values()}
    varied = factors(heads)
    flat = {key: flat_spec(heads[name]) for key, name in first.items()}
    labels = {
        key: ", ".join(f"{name.removeprefix('config.')}={values.get(name)}" for name in varied) or values["algorithm"]
        for key, values in flat.items()
    }
    return {name: labels[key] for name, key in keys.items()}


def _without_seed(spec: RunSpec) -> str:
    return repr(sorted((key, value) for key, value in flat_spec(spec).items() if not in_groups(key, NO_FACTORS)))


def _read(runs: Sequence[RunFolder], key: str) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    found, problems = {}, {}
    for run in runs:
        points, problem = readable(functools.partial(_points, run, key))
        if points is None or points.empty:
            problems[run.id] = problem or f"Run {run.id} has not logged {key}."
        else:
            found[run.id] = points
    return found, problems


def _specs(runs: Sequence[RunFolder]) -> tuple[dict[str, RunSpec], dict[str, str]]:
    found, problems = {}, {}
    for run in runs:
        spec, problem = readable(functools.partial(spec_of, run))
        if spec is None:
            problems[run.id] = problem
        else:
            found[run.id] = spec
    return found, problems


def _points(run: RunFolder, key: str) -> pd.DataFrame:
    """step and value of the finite points, in order."""
    frame = query(run.trace_file, "SELECT step, value FROM metrics WHERE key = ? ORDER BY rowid", (key,))
    frame = frame.astype({"value": "float64"})
    return frame[np.isfinite(frame["value"])]


def _stretches(points: pd.DataFrame, edges: np.ndarray) -> np.ndarray:
    """[grid] mean value of each stretch, NaN outside the run's points."""
    count = len(edges) - 1
    at = np.searchsorted(edges[1:-1], points["step"].to_numpy(), side="right")
    sizes = np.bincount(at, minlength=count)
    filled = np.flatnonzero(sizes)
    means = np.bincount(at, points["value"].to_numpy(), count)[filled] / sizes[filled]
    return np.interp(np.arange(count), filled, means, left=np.nan, right=np.nan)


def _line(run: str, group: str, steps: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"run": run, "group": group, "step": steps, "value": values}).dropna(subset=["value"])


def _band(group: str, steps: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    """values [runs, grid]"""
    frame = pd.DataFrame(values.T)
    count, half = frame.count(axis=1), _half_width(frame)
    mean = frame.mean(axis=1)
    columns = {"step": steps, "mean": mean, "low": mean - half, "high": mean + half, "runs": count}
    return pd.DataFrame({"group": group, **columns})[count > 0]


def _half_width(frame: pd.DataFrame) -> pd.Series:
    """Half of the t-interval of each row's mean over its known values; NaN for fewer than two."""
    count = frame.count(axis=1)
    quantile = count.map(lambda n: t_quantile(n - 1) if n > 1 else math.nan)
    return quantile * frame.std(axis=1, ddof=1) / np.sqrt(count.clip(lower=1))


def t_quantile(freedom: int) -> float:
    """The 0.975 quantile of Student's t; above 30 degrees of freedom its expansion, right to 0.004."""
    if freedom <= len(T_95):
        return T_95[freedom - 1]
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom)


def _stacked(frames: Sequence[pd.DataFrame], *columns: str) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(columns))


# --- end values beside parameters ----------------------------------------------------------------


def final_value(run: RunFolder, key: str) -> float:
    """Mean of the last tenth of a metric's finite points, at least one; NaN without any. Raises TraceError."""
    points = _points(run, key)["value"]
    return float(points.iloc[-max(len(points) // LAST, 1) :].mean())


@dataclass(frozen=True)
class Axis:
    """One axis of a parallel-coordinates chart: a number per run; texts: what the numbers of a category stand for."""

    key: str
    values: tuple[float, ...]
    texts: tuple[str, ...] | None = None


def parallel(runs: Sequence[RunFolder], key: str) -> tuple[list[str], list[Axis]]:
    """The runs that have a spec and the metric, and an axis per parameter they differ in; the last is the metric.

    None, truth values, words and mixtures are categories, numbered in the order in which they appear.
    """
    points, _ = _read(runs, key)
    specs, _ = _specs([run for run in runs if run.id in points])
    if not specs:
        return [], []
    names = list(specs)
    differing = config_diff(specs)
    axes = [_axis(str(k), row.tolist()) for k, row in differing.iterrows() if not in_groups(str(k), NO_FACTORS)]
    ends = [final_value(run, key) for run in runs if run.id in specs]
    return names, [*axes, Axis(key, tuple(ends))]


def _axis(key: str, values: Sequence[Any]) -> Axis:
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return Axis(key, tuple(map(float, values)))
    texts = tuple(dict.fromkeys(map(str, values)))
    return Axis(key, tuple(float(texts.index(str(value))) for value in values), texts)
