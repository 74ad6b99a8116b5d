"""Charts of advantages, critics and the lab: the numbers of the table stand in the figure, axes have names."""

import numpy as np
import pandas as pd
import pytest

from workbench.insight.lab import SmallGame, baseline_table, exact_estimators
from workbench.ui.charts.advantages import MODES, baselines_figure, flips_figure, histogram_figure, signal_figure
from workbench.ui.charts.lab import MEASURES, quality_figure
from workbench.ui.charts.td import calibration_figure, heat_figure, variance_figure


def say(key, **values):
    return " ".join([key, *map(str, values.values())])


HISTOGRAM = pd.DataFrame({"agent": [0, 0], "turn": [1, 1], "left": [-1.0, 0.0], "right": [0.0, 1.0], "count": [1, 3]})
SIGNAL = pd.DataFrame({"bucket": [0, 1], "agent": 0, "step_from": [0, 10], "step_to": [8, 20], "share": [0.25, np.nan]})
FLIPS = pd.DataFrame({"first": ["raw"], "second": ["max"], "completions": [8], "opposite": [2], "one_zero": [4]})
HEAT = pd.DataFrame({"agent": [0, 0, 1], "turn": [1, 1, 1], "bucket": [0, 1, 1], "step_from": [0.0, 10.0, 10.0],
                     "step_to": [10.0, 20.0, 20.0], "td_error_mean": [-2.0, 1.0, 0.5], "td_error_abs": [2.0, 1.0, 0.5],
                     "explained_variance": [np.nan, 0.5, -7.0], "count": 1})  # fmt: skip
CALIBRATION = pd.DataFrame({"agent": [0, 0], "bin": [0, 1], "value_mean": [0.0, 1.0], "realised_mean": [0.5, 1.5],
                            "realised_std": [0.1, 0.2], "count": [5, 6]})  # fmt: skip
RETURNS = baseline_table([0.0, 1.0, 2.0])
EXACT = exact_estimators(SmallGame(), 2)


@pytest.mark.parametrize(
    "figure",
    [
        histogram_figure(HISTOGRAM, say, "x"),
        signal_figure(SIGNAL, say),
        flips_figure(FLIPS, say),
        heat_figure({"run": HEAT}, "td_error_mean", say),
        heat_figure({"one": HEAT, "two": HEAT}, "td_error_abs", say),
        calibration_figure(CALIBRATION, say),
        variance_figure(HEAT, say),
        *(baselines_figure(RETURNS, column, "mean", say) for column in ("advantage", "normalized")),
        *(quality_figure(EXACT.table, measure, say) for measure in MEASURES),
    ],
)
def test_every_chart_has_a_title_named_axes_and_no_webgl(figure):
    assert figure.layout.title.text
    axes = list(figure.select_xaxes()), list(figure.select_yaxes())
    assert all(any(axis.title.text for axis in kind) for kind in axes)
    assert not [trace for trace in figure.data if trace.type.endswith("gl")]


def test_the_histogram_shows_shares():
    trace = histogram_figure(HISTOGRAM, say, "x").data[0]
    assert trace.x.tolist() == [-1, 0, 1]
    assert trace.y.tolist() == [0.25, 0.75, 0]  # 1 and 3 of 4; the last edge closes the outline


def test_disagreements_are_shares_of_the_completions():
    opposite, one_zero = flips_figure(FLIPS, say).data
    assert (opposite.x.tolist(), one_zero.x.tolist()) == ([0.25], [0.5])  # 2 and 4 of 8


def test_signal_is_drawn_in_the_middle_of_its_stretch():
    trace = signal_figure(SIGNAL, say).data[0]
    assert trace.x.tolist() == [4, 15]
    assert trace.y[0] == 0.25


def test_bars_hold_the_advantages_and_mark_the_mode_in_use():
    figure = baselines_figure(RETURNS, "advantage", "mean", say)
    bars = dict(zip(MODES, figure.data))
    assert bars["mean"].y.tolist() == [-1, 0, 1]
    assert bars["max"].y.tolist() == [-2, -1, 0]
    assert [bar.marker.line.width for bar in figure.data] == [0, 2, 0, 0]


def test_the_heat_map_is_centred_on_zero_and_leaves_holes():
    figure = heat_figure({"run": HEAT}, "td_error_mean", say)
    grid = figure.data[0]
    assert list(grid.x) == [5, 15]
    assert grid.z[0].tolist() == [-2, 1]
    assert np.isnan(grid.z[1][0])
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-2, 2)


def test_two_runs_share_the_colours():
    figure = heat_figure({"one": HEAT, "two": HEAT.assign(td_error_mean=9.0)}, "td_error_mean", say)
    assert len(figure.data) == 2
    assert figure.layout.coloraxis.cmax == 9


def test_a_far_too_low_explained_variance_does_not_squeeze_the_rest():
    low, high = variance_figure(HEAT, say).layout.yaxis.range
    assert low >= -2.2
    assert high > 1


def test_calibration_has_the_line_of_a_perfect_critic():
    line, agent = calibration_figure(CALIBRATION, say).data
    assert line.x.tolist() == line.y.tolist() == [0, 1]
    assert agent.y.tolist() == [0.5, 1.5]
    assert agent.error_y.array.tolist() == [0.1, 0.2]


def test_the_game_shows_each_estimator_off_and_on():
    rows = EXACT.table.set_index(["mode", "normalization"])
    bar = quality_figure(EXACT.table, "ratio", say).data[1]
    assert bar.y.tolist() == [pytest.approx(0.5), rows.loc[("mean", True), "ratio"]]  # (K-1)/K with K = 2
