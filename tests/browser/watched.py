"""Pages of a real browser that note what must not happen, and waiting on what they show."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Error, Locator, Page, Request, expect

PATIENCE = 120_000.0  # milliseconds; a deadline on a slow machine, not a time that anything takes

PROBE = re.compile(r"/[a-z]+/_stcore/(health|host-config)$")
"""Streamlit's page asks below its own path first (/runs/_stcore/health), for servers below a path, and then at the
root, where ours is. The browser reports the two 404s of an address such as /runs; no setting against it is known."""
INLINE = ("data", "blob")


@dataclass
class Notes:
    """What a page did that it should not, one line each."""

    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


class Window:
    """One tab of a browser at the app."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url, self.notes = page, url, Notes()
        self.server_is_down = False  # a test that kills the server expects the page to complain
        page.set_default_timeout(PATIENCE)
        page.on("console", self._said)
        page.on("pageerror", self._threw)
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        place = message.location.get("url", "")
        probe = "404" in message.text and PROBE.search(urlsplit(place).path)
        if message.type == "error" and not probe and not self.server_is_down:
            self.notes.errors.append(f"{message.text} ({place})")

    def _threw(self, error: Error) -> None:
        if not self.server_is_down:
            self.notes.errors.append(f"uncaught: {error}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in INLINE and parts.hostname != "127.0.0.1":
            self.notes.foreign.append(request.url)

    def open(self, path: str) -> None:
        """Load an address anew, such as a bookmark does."""
        self.page.goto(f"{self.url}/{path}")
        self.settled()

    def settled(self) -> None:
        """Until the script has run, with nothing on the page that went wrong."""
        expect(self.page.locator("h1")).to_be_visible(timeout=PATIENCE)  # before the first run there is nothing at all
        expect(self.page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible(
            timeout=PATIENCE
        )
        expect(self.page.locator("[data-testid=stException]")).to_have_count(0)

    def key(self, key: str) -> Locator:
        """What was drawn with this key."""
        return self.page.locator(f".st-key-{key}")

    def button(self, key: str) -> Locator:
        return self.key(key).locator("button, a").first

    def sees(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible(timeout=PATIENCE)

    def title(self, text: str) -> None:
        expect(self.page.locator("h1")).to_have_text(text, timeout=PATIENCE)

    def clean(self) -> None:
        """Nothing of what must not happen has happened."""
        assert self.notes == Notes(), self.notes


OpenWindow = Callable[..., Window]
"""window(width="desk"), the fixture's type."""


def points(chart: Locator) -> int:
    """How many points all lines of a plotly chart have together; 0 while it is not there."""
    return sum(chart.evaluate_all(POINTS))


POINTS = """charts => charts.flatMap(chart => chart.querySelector('.js-plotly-plot')?._fullData ?? [])
    .map(line => line.x?.length ?? 0)"""
