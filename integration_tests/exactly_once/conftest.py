"""Fixtures of the exactly-once tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying

MakeCopying = Callable[..., Copying]


@pytest.fixture
def make_copying(source: BrokerHandle, target: BrokerHandle, tmp_path: Path) -> Iterator[MakeCopying]:
    """Makes flows from source to target; keywords as of `Copying`. Their processes end with the test."""
    made: list[Copying] = []

    def make(**settings: Any) -> Copying:
        made.append(Copying(source, target, tmp_path, **settings))
        return made[-1]

    yield make
    for copying in made:
        copying.close()


@pytest.fixture
def copying(make_copying: MakeCopying) -> Copying:
    """A flow with the tests' usual settings."""
    return make_copying()
