"""The arithmetic of a group is the same for numpy, which the app uses, and for torch, which trains."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from workbench import estimators

GROUPS = [[1.0], [-2.0, 3.0], [0.5, 0.5, 0.5], [-1.0, 0.0, 4.0, 1.0]]


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("name", [*estimators.BASELINES, "normalized", "td"])
def test_numpy_and_torch_agree_in_kind_and_number(name, group):
    def function(values):
        if name == "td":
            return estimators.td_errors(estimators.td_targets(values, values * 2, 0.9), values * 2)
        return (estimators.BASELINES | {"normalized": estimators.normalized})[name](values)

    array, tensor = function(np.array(group)), function(torch.tensor(group, dtype=torch.float64))
    assert isinstance(array, np.ndarray) and isinstance(tensor, torch.Tensor)
    assert array.shape == tuple(tensor.shape) == (len(group),)
    assert array.tolist() == pytest.approx(tensor.tolist(), abs=1e-12)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_hand_worked_numbers_in_both_kinds(kind):
    group = kind([1.0, 2.0, 6.0])  # sum 9, mean 3, deviations -2 -1 3, population variance 14/3
    assert estimators.raw_baseline(group).tolist() == [0, 0, 0]
    assert estimators.mean_baseline(group).tolist() == [3, 3, 3]
    assert estimators.rloo_baseline(group).tolist() == [4, 3.5, 1.5]
    assert estimators.max_baseline(group).tolist() == [6, 6, 6]
    assert estimators.normalized(group).tolist() == pytest.approx([-0.92582, -0.46291, 1.38873], abs=1e-5)
    # 1 + 0.5 * 4, 2 + 0.5 * 8, and the last turn alone
    assert estimators.td_targets(group, kind([0.0, 4.0, 8.0]), 0.5).tolist() == [3, 6, 6]
    assert group.tolist() == [1, 2, 6]  # the inputs stay as they were


def test_estimators_need_no_torch():
    code = "import sys, workbench.estimators; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
