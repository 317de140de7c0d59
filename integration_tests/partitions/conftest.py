"""Fixtures of the tests in which one partition or topic fails and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.two_topics import TwoTopics

MakeTwoTopics = Callable[..., TwoTopics]


@pytest.fixture
def make_two_topics(make_copying: MakeCopying) -> MakeTwoTopics:
    """Makes flows of two topics; keywords as of `Copying`. Each topic has one partition unless told otherwise."""

    def make(**settings: Any) -> TwoTopics:
        return TwoTopics(make_copying(**{"partitions": 1, **settings}))

    return make


@pytest.fixture
def two_topics(make_two_topics: MakeTwoTopics) -> TwoTopics:
    """A flow of two topics with the tests' usual settings."""
    return make_two_topics()
