"""The page as a whole: what stands where, its look, and the one script that draws all charts.

The file carries plotly.js and everything else it needs. A content security policy keeps it from loading anything, and
lets only the script written here run, should a text ever get past the escaping.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from workbench.report import comparison, sections
from workbench.report.machine import machine
from workbench.report.markup import Html, facts, folded, joined, section, tag
from workbench.report.style import STYLE
from workbench.runs.workspace import RunFolder

DRAW = """
for (const [place, figure] of CHARTS) {
  Plotly.newPlot(place, figure.data, figure.layout, {displaylogo: false, responsive: true});
}
"""


def default_name(runs: Sequence[RunFolder]) -> str:
    """report-<id>.html, with the number of other runs if there are any."""
    more = f"-and-{len(runs) - 1}-more" if len(runs) > 1 else ""
    return f"report-{runs[0].id}{more}.html"


def write_report(runs: Sequence[RunFolder], file: Path, force: bool = False) -> None:
    """Write the report on one run, or the comparison of several.

    Raises ValueError with one sentence for a file that exists (unless `force`) or has no folder, and OSError when the
    disk refuses; what cannot be read of a run is said in the report.
    """
    if file.exists() and not force:
        raise ValueError(f"{file} exists already; use --force to replace it, or -o for another file.")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {file.absolute().parent}; create it first.")
    text = build(runs)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def build(runs: Sequence[RunFolder]) -> str:
    """The page as a text."""
    charts = Charts()
    parts = _one(runs[0], charts) if len(runs) == 1 else _several(runs, charts)
    title = f"Report on {runs[0].id}" if len(runs) == 1 else f"Report on {len(runs)} runs"
    written = tag("p", f"Written {sections.when(time.time())}.", attributes={"class": "quiet"})
    body = [tag("h1", title), written, *parts, _environment()]
    return _document(title, joined(body), charts)


class Charts:
    """The figures of a page and the places where they stand."""

    def __init__(self) -> None:
        self.figures: list[go.Figure] = []

    def draw(self, figure: go.Figure) -> Html:
        """An empty block that the script fills."""
        self.figures.append(figure)
        return tag("div", attributes={"id": f"chart-{len(self.figures)}", "class": "chart"})

    def script(self) -> str:
        """Nothing in it can end the script element: < does not occur."""
        pairs = [f'["chart-{number}", {figure.to_json()}]' for number, figure in enumerate(self.figures, start=1)]
        data = ",\n".join(pairs).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        return f"const CHARTS = [{data}];{DRAW}"


def _one(run: RunFolder, charts: Charts) -> list[Html]:
    return [
        section("The run", sections.about(run)),
        section("Alarms", sections.alarms(run)),
        section("Curves", sections.curves(run, charts.draw)),
        section("Completions", sections.completions(run)),
        section("Settings", sections.settings(run)),
    ]


def _several(runs: Sequence[RunFolder], charts: Charts) -> list[Html]:
    return [
        section("The runs", comparison.overview(runs)),
        section("What they differ in", comparison.differences(runs)),
        section("Curves", comparison.overlays(runs, charts.draw)),
        *(section(run.id, *_in_short(run)) for run in runs),
    ]


def _in_short(run: RunFolder) -> list[Html]:
    """One of several runs."""
    return [
        sections.about(run),
        sections.alarms(run),
        folded("Completions", sections.completions(run)),
        folded("Settings, and how to repeat it", sections.settings(run)),
    ]


def _environment() -> Html:
    note = tag("p", "The machine on which this report was written; a run does not record its own.")
    return section("Environment", note, facts(machine()))


def _document(title: str, body: Html, charts: Charts) -> str:
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    scripts = [get_plotlyjs(), charts.script()] if charts.figures else []
    head = joined([
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        Html(f"<style>{STYLE}</style>"),
    ])  # fmt: skip
    ends = joined(Html(f'<script nonce="{nonce}">{script}</script>\n') for script in scripts)
    page = tag("html", tag("head", head), tag("body", tag("main", body), ends), attributes={"lang": "en"})
    return f"<!doctype html>\n{page}\n"
