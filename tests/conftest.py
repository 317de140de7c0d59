"""What every test starts from."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    """A command that ran inside another test has bound the log to that test's stderr, which is closed by now."""
    structlog.reset_defaults()
