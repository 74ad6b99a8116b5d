"""The sections of a report about one run. What cannot be read is said in the place where it would stand."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path

import plotly.graph_objects as go

from workbench.insight.compare import readable, spec_of
from workbench.insight.curves import Curves, advance
from workbench.insight.health import Settings, check, settings_of
from workbench.insight.metric_names import Panel, panels
from workbench.report.charts import panel_figure
from workbench.report.markup import Html, div, facts, folded, joined, tag
from workbench.report.samples import samples
from workbench.runs.endings import log_tail
from workbench.runs.spec import RunSpec
from workbench.runs.workspace import ACTIVE, FINISHED, RunFolder, RunStatus
from workbench.tracking import trace

LEFT_OUT = ("time/rollout_s", "time/reward_s", "time/update_s", "tokens_per_s", "agent_*/turn_*/loss")
"""Metrics about the machine, or that say little about learning."""
GIB = 2**30
Draw = Callable[[go.Figure], Html]
"""Takes a figure into the page and returns the place where it will stand."""


def spec_or_reason(run: RunFolder) -> tuple[RunSpec | None, str]:
    return readable(lambda: spec_of(run))


def guarded(what: str, build: Callable[[], Html]) -> Html:
    """A section's content, or why there is none."""
    content, problem = readable(build)
    return notice(f"{what} cannot be shown: {problem}") if content is None else content


def notice(text: str) -> Html:
    return div("notice", text)


def about(run: RunFolder) -> Html:
    """What the run is, when it was, and how far it is."""
    status = run.read_status()
    spec, problem = spec_or_reason(run)
    step, _ = readable(lambda: read_curves(run.trace_file).last_step)
    end = status.ended or status.heartbeat
    rows = [
        ("Run", run.id),
        ("State", status.state),
        ("Algorithm", spec.algorithm if spec else ""),
        ("Task", spec.task if spec else ""),
        ("Models", (spec.model or ", ".join(spec.agents or [])) if spec else ""),
        ("Seed", str(spec.config.get("seed", 0)) if spec else ""),
        ("Items", f"{status.step} of {status.total}" if status.total else ""),
        ("env_step", str(step) if step else ""),
        ("Latest training reward", "" if status.reward is None else f"{status.reward:.4g}"),
        ("Started", when(status.started)),
        ("Ended", when(status.ended)),
        ("Duration", f"{end - status.started:,.0f} s, pauses included" if end and status.started else ""),
        ("Peak memory", ", ".join(f"{device} {used / GIB:.2f} GiB" for device, used in (status.memory or {}).items())),
    ]
    return joined([*_state_notices(run, status, problem), facts(rows)])


def when(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds else ""


def _state_notices(run: RunFolder, status: RunStatus, problem: str) -> list[Html]:
    found = [notice(f"The spec cannot be read: {problem}")] if problem else []
    if status.state in ACTIVE:
        found.append(notice(f"This run is still {status.state}; the report shows what there was when it was written."))
    elif status.state != FINISHED:
        found.append(notice(f"This run is {status.state}. {status.error or ''}"))
        tail = "\n".join(log_tail(run.log_file))
        if tail:
            found.append(folded("The last lines of its log", tag("pre", tail)))
    return found


def alarms(run: RunFolder) -> Html:
    """What the health rules find, most urgent first."""

    def build() -> Html:
        spec, _ = spec_or_reason(run)
        found = check(run.trace_file, settings_of(spec) if spec else Settings())
        if not found:
            return tag("p", "None of the rules found anything.")
        return joined(
            div(f"finding {one.severity}", tag("b", f"{one.severity}: {one.title['en']}. "), one.text["en"])
            for one in found
        )

    return guarded("The alarms", build)


def read_curves(path: Path) -> Curves:
    """All points of a trace. Raises TraceError."""
    found = advance(path)
    while found.behind:
        found = advance(path, found)
    return found


def chosen_panels(keys: list[str]) -> list[Panel]:
    return [panel for panel in panels(keys) if panel.pattern not in LEFT_OUT]


def curves(run: RunFolder, draw: Draw) -> Html:
    """A chart per metric."""

    def build() -> Html:
        found = read_curves(run.trace_file)
        if not found.curves:
            return tag("p", "No metric was logged yet.")
        return div("charts", *(draw(panel_figure(panel, found)) for panel in chosen_panels(found.keys)))

    return guarded("The curves", build)


def completions(run: RunFolder) -> Html:
    return guarded("The completions", lambda: samples(run.trace_file))


def settings(run: RunFolder) -> Html:
    """The whole spec, and how to repeat the run."""

    def build() -> Html:
        spec = spec_of(run)
        text = spec.dump()
        address = f"data:text/yaml;base64,{base64.b64encode(text.encode()).decode()}"
        link = tag("a", "spec.yaml", attributes={"href": address, "download": "spec.yaml"})
        needs = f" It needs the task file {spec.task.partition(':')[0]}, too." if ".py" in spec.task else ""
        return joined([
            tag("p", "To repeat it: save ", link, ", whose text is below, and run this command. The same seed gives "
                "the same numbers on the same machine with the same package versions." + needs),
            tag("pre", "workbench train spec.yaml"),
            folded("spec.yaml", tag("pre", text)),
        ])  # fmt: skip

    return guarded("The settings", build)


def trace_keys(run: RunFolder) -> list[str]:
    """The metrics of a run; none when its trace cannot be read."""
    return readable(lambda: trace.read_metric_keys(run.trace_file))[0] or []
