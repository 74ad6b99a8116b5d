"""One line of arithmetic: what is computed, with which numbers, and whether the trace stored the same result.

Used by insight.why, which knows what the lines mean. Unscored numbers are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

TOLERANCE = 1e-9  # relative and absolute: both sides are float64, only the order of a sum differs
MOST_NUMBERS = 10  # written out in one line
Numbers = Sequence[float] | np.ndarray | pd.Series

SAME, DIFFERS, PART, GIVEN, UNKNOWN = "same", "differs", "part", "given", "unknown"
"""Verdicts of a line: agrees with the trace; does not; a step that the trace does not store; measured, not computed;
cannot be recomputed from this node."""


@dataclass(frozen=True)
class Line:
    """symbol = formula = numbers = result. NaN in result: unscored, or not known here; stored None: nothing to compare.

    key names the rule: reward, joint_return, joint_return_last, return_aligned, return_cross, return_cross_unscored,
    kl_penalty, return_penalised, baseline_raw/mean/rloo/max, advantage, normalized, normalized_off, normalized_single,
    normalized_buffer; team_reward, reward_penalised, target, target_last, value, td_error.
    """

    key: str
    symbol: str
    formula: str
    numbers: str
    result: float
    stored: float | None
    verdict: str


def checked(key: str, symbol: str, formula: str, numbers: str, result: float, *stored: float) -> Line:
    """A line compared with every number the trace stores for it; of those that differ the first is shown."""
    different = [value for value in map(float, stored) if not _same(result, value)]
    verdict, shown = (DIFFERS, different[0]) if different else (SAME, float(stored[0]))
    return Line(key, symbol, formula, numbers, float(result), shown, verdict)


def _same(result: float, stored: float) -> bool:
    if math.isnan(result) or math.isnan(stored):
        return math.isnan(result) and math.isnan(stored)
    return math.isclose(result, stored, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def mean(values: Numbers) -> float:
    """Mean of the scored ones, NaN without any."""
    known = [float(value) for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def number(value: float) -> str:
    return "unscored" if math.isnan(value) else f"{value:.6g}"


def listed(values: Numbers, joint: str = ", ") -> str:
    """The first numbers, and how many there are if not all are written out."""
    rest = f"{joint}... {len(values)} numbers" if len(values) > MOST_NUMBERS else ""
    return joint.join(map(number, list(values)[:MOST_NUMBERS])) + rest
