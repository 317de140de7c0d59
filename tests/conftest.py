"""What every test starts from."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    """A command that ran inside another test has set the log's level and form."""
    structlog.reset_defaults()
