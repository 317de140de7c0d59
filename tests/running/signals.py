"""Processes that tests start meet the signals that they send in their default state. A pytest plugin (`conftest.py`).

A run that was started under nohup, or in the background by a script, ignores some signals, and what it starts would
ignore them too. A handler instead lets this process live on, and children begin with the default.
"""

from __future__ import annotations

import os
import signal

import pytest

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
IGNORED = "EOS_TESTS_IGNORE"
"""Tells the workers of pytest-xdist, which are children too, what this process was told to ignore."""


def pytest_configure(config: pytest.Config) -> None:
    """Catch what is ignored, here and in the workers, and do nothing."""
    told = os.environ.get(IGNORED, "").split(",") if hasattr(config, "workerinput") else []
    ignored = [each for each in SIGNALS if signal.getsignal(each) == signal.SIG_IGN or each.name in told]
    for each in ignored:
        signal.signal(each, lambda number, frame: None)
    os.environ[IGNORED] = ",".join(each.name for each in ignored)
