"""What all tests share."""

import signal
from pathlib import Path

import pytest

BROWSER = Path(__file__).parent / "browser"


def pytest_configure():
    """Signals as in a terminal: whoever starts the tests in the background may have had SIGINT or SIGHUP ignored,
    and a run leaves an ignored signal ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """With several workers a file stays with one of them, and so do all browser tests: two at once are too much."""
    for item in items:
        group = "browser" if BROWSER in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
