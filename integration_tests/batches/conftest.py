"""Flows with `engine: batches`. All tests here have the tier full, and long on real Kafka, whatever they say where they
were taken from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying


@pytest.fixture(params=[pytest.param("batches", marks=pytest.mark.tier("full", kafka="long"))])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine of the flows."""
    return str(request.param)


@pytest.fixture
def make_copying(source: BrokerHandle, target: BrokerHandle, tmp_path: Path, engine: str) -> Iterator[MakeCopying]:
    """Makes flows of this engine; else as everywhere."""
    made: list[Copying] = []

    def make(**settings: Any) -> Copying:
        made.append(Copying(source, target, tmp_path, **{"engine": engine, **settings}))
        return made[-1]

    yield make
    for copying in made:
        copying.close()


@pytest.fixture
def copying(make_copying: MakeCopying) -> Copying:
    """A flow with the tests' usual settings."""
    return make_copying()
