"""What all tests share."""

import signal

import pytest

BROWSER = "tests/browser/"


def pytest_configure():
    """Signals as in a terminal: whoever starts the tests in the background may have had SIGINT or SIGHUP ignored,
    and a run leaves an ignored signal ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several workers (-n) a file stays with one of them, and all browser tests with one: two at once are too much
    for two cores."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneBrowser(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return BROWSER if nodeid.startswith(BROWSER) else super()._split_scope(nodeid)

    return OneBrowser(config, log)
