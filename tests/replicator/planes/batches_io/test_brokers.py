"""Whose turn it is to answer what any broker can: each one's, and not that of one that doesn't answer."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from replicator.planes.batches_io import brokers as brokers_module
from replicator.planes.batches_io.brokers import Brokers, BrokerSettings
from replicator.wire.access import access
from replicator.wire.connection import Address, ConnectionLost
from tests.replicator.wire.fake_broker import flow_of

FIVE: dict[int, Address] = {number: ("127.0.0.1", 9_000 + number) for number in range(5)}


def brokers_of(*bootstrap: int) -> Brokers:
    """The loop never connects."""
    named = ",".join(f"{host}:{port}" for host, port in (FIVE[number] for number in bootstrap))
    source = flow_of(0, bootstrap_servers=named).source
    return Brokers(BrokerSettings(source, access(source), "me", 1 << 20, 5.0), Mock(), lambda _: None)


def asked(brokers: Brokers) -> int:
    link = brokers.any()
    assert link is not None
    return next(number for number, address in FIVE.items() if address == link.address)


@pytest.mark.parametrize("missing", range(5))
def test_each_broker_has_its_turn_whoever_tells_of_the_others(missing: int) -> None:
    """The others don't name the one that is cut off, which names all. It is known by bootstrap.servers, or not."""
    brokers, turns = brokers_of(0, 1, 2), list[int]()
    others = {number: address for number, address in FIVE.items() if number != missing}
    brokers.learn(others)
    for _ in range(10):
        turns.append(asked(brokers))
        brokers.learn(FIVE if turns[-1] == missing else others)
        brokers.another(FIVE[turns[-1]])
    known = list(FIVE) if missing in (0, 1, 2) else list(others)
    assert turns == (known * 3)[:10]


def test_a_broker_that_did_not_answer_is_left_out_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked where no other is left."""
    monkeypatch.setattr("random.uniform", lambda *_: 0.0)
    brokers = brokers_of(0)
    brokers.learn({number: FIVE[number] for number in range(3)})
    brokers.another(FIVE[0])
    link = brokers.any()
    assert link is not None
    assert link.address == FIVE[1]
    link.lose(ConnectionLost("no answer in time"))
    turns = []
    for _ in range(4):
        turns.append(asked(brokers))
        brokers.another(FIVE[turns[-1]])
    assert turns == [2, 0, 2, 0]
    for number in (0, 2):
        link = brokers._link(FIVE[number], brokers_module.ANY)
        assert link is not None
        link.lose(ConnectionLost("no answer in time"))
    assert asked(brokers) == 1
