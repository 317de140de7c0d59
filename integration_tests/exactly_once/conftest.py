"""Fixtures of the exactly-once tests."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.copying import Copying


@pytest.fixture
def copying(make_copying: MakeCopying) -> Copying:
    """A flow with the tests' usual settings."""
    return make_copying()
