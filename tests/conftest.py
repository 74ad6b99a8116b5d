"""What all tests share."""

import signal


def pytest_configure():
    """Signals as in a terminal: whoever starts the tests in the background may have had SIGINT or SIGHUP ignored,
    and a run leaves an ignored signal ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
