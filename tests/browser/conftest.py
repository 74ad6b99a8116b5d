"""A headless Chromium for what an AppTest cannot see. Without a browser every test here is skipped, and says why."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

sys.path.append(str(Path(__file__).parents[1] / "runs"))  # for fake_run.py, which waits for runs and finds processes

from served import App, served
from watched import OpenWindow, Window

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDTHS = {"desk": (1400, 1000), "phone": (390, 844)}


def browser_path() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if browser_path() is None:
        reason = f"there is no browser: none of {', '.join(BROWSERS)} is on the PATH (apt-get install chromium)"
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One per module: while Playwright is at work, no other test of this process could use asyncio."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The app with an empty workspace of the module's own."""
    with served(tmp_path_factory.mktemp("browser") / "work") as app:
        yield app


@pytest.fixture
def window(chromium: Browser, app: App) -> Iterator[OpenWindow]:
    """window(width="desk"): a tab in a browser that knows nothing yet; all must be without errors at the end."""
    opened: list[Window] = []

    def open_window(width: str = "desk") -> Window:
        wide, high = WIDTHS[width]
        context = chromium.new_context(viewport={"width": wide, "height": high})
        opened.append(Window(context.new_page(), app.url))
        return opened[-1]

    yield open_window
    for one in opened:
        one.page.context.close()
    for one in opened:
        one.clean()
