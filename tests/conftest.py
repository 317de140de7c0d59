"""What every test starts from."""

from __future__ import annotations

import pytest
import structlog
from hypothesis import settings

settings.register_profile("eos", deadline=None)  # how long an example takes says more of the machine than of the code
settings.load_profile("eos")


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    """A command that ran inside another test has set the log's level and form."""
    structlog.reset_defaults()
