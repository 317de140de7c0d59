"""Somebody else writes into a target partition in the middle of a transaction: the acknowledgements have a gap."""

from __future__ import annotations

import pytest

from integration_tests.harness import clients
from integration_tests.harness.load import fill
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness.two_topics import assert_told
from integration_tests.partitions.conftest import MakeTwoTopics

RECORDS = 5_000  # of 1 KiB: several produce requests in one transaction
FOUND_S = 120.0
LARGER_AND_LARGER = 6  # commits after which a transaction may have all of them


@pytest.mark.tier("full")
@pytest.mark.parametrize("nth", [2, *(pytest.param(nth, marks=pytest.mark.tier("full")) for nth in (3, 5))])
def test_a_gap_between_two_produce_requests_is_found(make_two_topics: MakeTwoTopics, proxy: Proxy, nth: int) -> None:
    """Whether the later request is of the same transaction or of the next one: the other topic goes on."""
    two = make_two_topics(via=proxy.bootstrap, commit={"interval_ms": 5_000})
    worker = two.running(10)
    for number in range(LARGER_AND_LARGER):
        clients.put(clients.producer(two.source), two.first, b"%d" % number)
        clients.wait_value(two.target, two.copy_of(two.first), 0, b"%d" % number)
    worker.suspend()
    fill(two.source, two.first, [RECORDS], lambda _, number: (b"%d" % number, b"x" * 1_024), batch_size=16_384)
    held = proxy.rule("Produce", Side.REQUEST, Action.HOLD, nth=nth, client=".lane")
    worker.resume()
    held.wait_hit()
    clients.put(clients.producer(two.target), two.copy_of(two.first), b"somebody's")
    proxy.clear()
    found = worker.wait_event("incident", topic=two.first, partition=0, timeout_s=FOUND_S)
    assert_told(found)
    two.assert_second_goes_on()
    two.assert_stops(worker)
    copied = two.values(two.first)
    assert copied.index(b"somebody's") == len(copied) - 1, "records were committed behind one that is not ours"


def test_records_of_somebody_else_between_two_transactions_are_found(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics()
    worker = two.running(10)
    clients.put(clients.producer(two.target), two.copy_of(two.first), b"somebody's")
    clients.put(clients.producer(two.source), two.first, b"later")
    found = worker.wait_event("incident", topic=two.first, partition=0, timeout_s=FOUND_S)
    assert_told(found)
    assert found["name"] == "target_has_later_records"
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert two.values(two.first)[-1] == b"somebody's"
