"""Every page in a real browser: nothing goes wrong or leaves this machine, on a phone, in both languages, by mouse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_run import until, until_gone, until_state
from playwright.sync_api import expect
from served import App, trained
from watched import PATIENCE, OpenWindow, Window, points

from workbench.runs.workspace import RunFolder
from workbench.ui.pages.run import TABS
from workbench.ui.text import table

PAGES = {"": "launch", "runs": "runs", "compare": "compare", "lab": "lab", "play": "play"}
"""Address -> name in the table of texts; the run page and its tabs come with a run."""
ZH, EN = "简体中文", "English"
FITS = """() => {
    const main = document.querySelector('[data-testid=stMain]');
    return [document.documentElement.scrollWidth - innerWidth, main.scrollWidth - main.clientWidth];
}"""
PLACE = """(chart, root) => {
    const plot = chart.querySelector('.js-plotly-plot'), box = plot.getBoundingClientRect();
    const {xaxis: x, yaxis: y} = plot._fullLayout;
    for (const line of plot._fullData)
        for (const [i, place] of (line.customdata ?? []).entries())
            if (place && place[1] < 0 && place[0] !== root)
                return [place[0], box.x + x._offset + x.l2p(line.x[i]), box.y + y._offset + y.l2p(line.y[i])];
}"""
"""Number and place on the screen of a prompt below the root of the drawn tree."""


@pytest.fixture(scope="module")
def runs(app: App) -> dict[str, RunFolder]:
    """Two finished runs: two turns with a group baseline, and one with a critic."""
    found = {algorithm: trained(app.workspace, algorithm) for algorithm in ("magrpo", "maac")}
    for run in found.values():
        assert until_state(run, "finished", "failed").error is None
        until_gone(run)
    return found


def addresses(runs: dict[str, RunFolder]) -> list[str]:
    """All pages, all tabs of the run with a group, and the TD tab of the run with a critic."""
    tabs = [f"run?run={runs['magrpo'].id}&tab={tab}" for tab in TABS]
    chosen = ",".join(run.id for run in runs.values())
    return [*(PAGES.keys() - {"compare"}), f"compare?runs={chosen}", *tabs, f"run?run={runs['maac'].id}&tab=td"]


def test_every_page_and_tab_loads_nothing_from_elsewhere_and_says_no_error(
    runs: dict[str, RunFolder], window: OpenWindow
) -> None:
    """The fixture `window` looks at the console and at all requests; the icon of a tab is not among them."""
    here = window()
    for address in addresses(runs):
        here.open(address)
        expect(here.page.locator("[data-testid=stAlertContentError]")).to_have_count(0)
        icon = here.page.locator("link[rel*=icon]").first.get_attribute("href") or ""
        assert not icon.startswith(("http://", "https://", "//")) or icon.startswith(here.url)


def test_every_page_fits_a_phone(runs: dict[str, RunFolder], window: OpenWindow) -> None:
    here = window("phone")
    for address in addresses(runs):
        here.open(address)
        assert here.page.evaluate(FITS) == [0, 0], address
    buttons = {"": "preset-start-quickstart", f"run?run={runs['magrpo'].id}": "clone", "play": "play-start"}
    for address, key in buttons.items():
        here.open(address)
        button = here.button(key)
        expect(button).to_be_visible(timeout=PATIENCE)
        box = button.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390


def switch(window: Window, language: str) -> None:
    window.key("language").get_by_text(language).click()


def test_the_language_changes_on_every_page_and_back(runs: dict[str, RunFolder], window: OpenWindow) -> None:
    here = window()
    run = f"run={runs['magrpo'].id}"
    for address, name in {**PAGES, f"run?{run}&tab=advantages": "run"}.items():
        here.open(address)
        here.title(table()[f"page.{name}"]["en"])
        switch(here, ZH)
        here.title(table()[f"page.{name}"]["zh"])
        here.settled()
        assert leftovers(here) == []
        assert name != "run" or (run in here.page.url and "tab=advantages" in here.page.url)
        switch(here, EN)
        here.title(table()[f"page.{name}"]["en"])
        assert name != "run" or run in here.page.url


def leftovers(window: Window) -> list[str]:
    """English sentences of ours on a page that should be Chinese; single words may be names of settings or data."""
    shown = window.page.locator("body").inner_text()
    ours = [texts["en"] for texts in table().values() if "en" in texts and texts["en"] not in texts["zh"]]
    return [text for text in ours if " " in text and "{" not in text and text in shown]


def test_a_click_on_a_prompt_of_the_tree_opens_its_node(runs: dict[str, RunFolder], window: OpenWindow) -> None:
    here = window()
    here.open(f"run?run={runs['magrpo'].id}&tab=advantages")
    here.page.wait_for_url(re.compile(r"node=\d+"))
    root = int(re.search(r"node=(\d+)", here.page.url)[1])  # type: ignore[index]
    tree = here.key("adv-tree")
    until(lambda: points(tree) > 0)
    tree.scroll_into_view_if_needed()
    node, x, y = tree.evaluate(PLACE, root)
    here.page.mouse.click(x, y)
    here.page.wait_for_url(re.compile(rf"node={node}(&|$)"), timeout=PATIENCE)
    here.sees(re.compile(rf"Completions at node {node}\b"))


def test_a_row_of_the_list_opens_the_run(runs: dict[str, RunFolder], window: OpenWindow) -> None:
    here = window()
    here.open("runs")
    grid = here.key("runs-table").locator("canvas").first
    expect(grid).to_be_visible(timeout=PATIENCE)
    grid.click(position={"x": 200, "y": 52}, force=True)  # the first row below the titles: the newest run
    here.page.wait_for_url(re.compile(r"/run\?.*run="), timeout=PATIENCE)
    assert f"run={runs['maac'].id}" in here.page.url
    here.title("Run")


@pytest.mark.parametrize(("tab", "key", "holds"), [
    ("advantages", "adv-tree-csv", b"\xef\xbb\xbf"), ("spec", "spec-download", b"task: rendezvous"),
])  # fmt: skip
def test_a_download_is_made_at_the_click(
    runs: dict[str, RunFolder], window: OpenWindow, tab: str, key: str, holds: bytes
) -> None:
    here = window()
    here.open(f"run?run={runs['magrpo'].id}&tab={tab}")
    with here.page.expect_download(timeout=PATIENCE) as waiting:
        here.button(key).click()
    assert holds in Path(waiting.value.path()).read_bytes()


def test_the_lab_draws_what_is_typed(app: App, window: OpenWindow) -> None:
    """Four returns at first; one more completion is one more bar of each of the four baselines."""
    here = window()
    here.open("lab")
    chart = here.key("lab-baselines-advantage")
    until(lambda: points(chart) > 0)
    before = points(chart)
    here.key("lab-size").get_by_test_id("stNumberInputStepUp").click()
    until(lambda: points(chart) * 4 == before * 5)
