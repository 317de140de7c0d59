"""Fixtures of the tests in which one partition or topic fails and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import Kind
from integration_tests.harness.granting import take_all
from integration_tests.harness.secured import Secured, secured_broker
from integration_tests.harness.two_topics import TwoTopics

MakeTwoTopics = Callable[..., TwoTopics]
SecuredPair = tuple[Secured, Secured]


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


@pytest.fixture(scope="module")
def running_pair(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPair]:
    """Two brokers that check rights."""
    here, there = (tmp_path_factory.mktemp(name) for name in ("source", "target"))
    with secured_broker(kind, here) as source, secured_broker(kind, there) as target:
        for each in (source, target):
            clients.warm_up(each.bootstrap)
        yield source, target


@pytest.fixture
def pair(running_pair: SecuredPair) -> Iterator[SecuredPair]:
    """The same, with no rights of an earlier test."""
    yield running_pair
    for each in running_pair:
        take_all(each)
