"""Fixtures of the contract tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.transacting import TransactionClient, transaction_client


@pytest.fixture
def client(target: BrokerHandle, unique: Callable[[str], str]) -> Iterator[TransactionClient]:
    """A transactional id of its own, with a topic and a group."""
    with transaction_client(target.bootstrap, unique("answers"), unique("id"), unique("group")) as made:
        yield made
