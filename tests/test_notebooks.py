"""The teaching notebooks: each runs from first to last cell without a network, and is stored without results."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = ["01_first_run", "02_baselines_and_variance", "03_trees_and_joint_modes", "04_critics_and_td_errors",
         "05_reference_kl", "06_your_own_task", "07_compare_runs"]  # fmt: skip
LONGEST_CELL = 12  # lines of code
CELL_SECONDS = 400  # generous: a loaded machine must not fail a notebook that takes a minute on a quiet one
ABSOLUTE = re.compile(r"""["' (=](?:/(?:home|root|tmp|work|usr|opt|var|mnt|data|Users)\b|[A-Z]:\\|~/)""")
ANSWER = re.compile(r"<details><summary>Answer</summary>\n\n.+\n\n</details>\Z", re.DOTALL)
NO_NETWORK = {"HF_HUB_OFFLINE": "1", "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9",
              "no_proxy": ""}  # fmt: skip


def read(name: str) -> NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def cells(notebook: NotebookNode, kind: str) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def test_every_notebook_is_tested() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_is_stored_clean(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in cells(notebook, "code"):
        assert (cell.outputs, cell.execution_count) == ([], None)
        assert len(cell.source.splitlines()) <= LONGEST_CELL, cell.source
    for cell in notebook.cells:
        assert not ABSOLUTE.search(cell.source), cell.source


@pytest.mark.parametrize("name", NAMES)
def test_it_teaches(name: str) -> None:
    """A title, formulas, what is shown and what is not, and two or three exercises whose answers are folded away."""
    texts = [cell.source for cell in cells(read(name), "markdown")]
    assert texts[0].startswith(f"# {name[:2]} · ") and "You will" in texts[0]
    assert any("## What this shows, and what it does not" in text for text in texts)
    assert any("$$" in text for text in texts)
    exercises = texts[[text.rstrip().endswith("## Exercises") for text in texts].index(True) + 1 :]
    assert 2 <= len(exercises) <= 3
    for number, exercise in enumerate(exercises, start=1):
        assert exercise.startswith(f"**{number}.** ") and ANSWER.search(exercise), exercise


@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are drawn, no cell complains, and nothing is left beside the notebook or in the temporary folder.

    IPython's files go to a folder of the test's own, so that no user's start-up files run.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    folders = {"TMPDIR": str(temporary), "IPYTHONDIR": str(tmp_path / "ipython")}
    for key, value in {**NO_NETWORK, **folders, "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before, notebook = tree(), read(name)
    place = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in cells(notebook, "code") for output in cell.outputs]
    assert not [output.text for output in outputs if output.output_type == "stream" and "Warning" in output.text]
    assert sum("application/vnd.plotly.v1+json" in output.get("data", {}) for output in outputs) >= 1
    assert tree() == before
    assert not list(temporary.glob("*/runs")) and not list(temporary.glob("**/*.db"))


def tree() -> list[str]:
    """Every file and folder beside the notebooks and one level above."""
    return sorted([*os.listdir(FOLDER), *os.listdir(FOLDER.parent)])
