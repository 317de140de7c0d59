"""Records that the source deleted before they were copied: the incident names exactly which."""

from __future__ import annotations

import re

import pytest

from integration_tests.harness import clients
from integration_tests.harness.replicator import Event
from integration_tests.harness.two_topics import TwoTopics, assert_told, numbered

OLD, GONE_BELOW = 100, 200
PIECE = 10


def assert_names_the_range(found: Event, two: TwoTopics) -> None:
    """From where the flow stands to the record before the new log start; everything before it is copied."""
    assert found["name"] == "source_records_gone"
    assert found["partition"] == 0
    assert_told(found, f"source offsets {found['offset']} to {GONE_BELOW - 1}")
    assert OLD <= found["offset"] < GONE_BELOW
    expected = numbered("old", OLD) + numbered("unread", 2 * OLD)[: found["offset"] - OLD]
    assert two.values(two.first) == expected


def lose(two: TwoTopics) -> None:
    """Write behind what was copied, and delete the first half of it. In pieces: a fetch may wait for one of them."""
    values = numbered("unread", 2 * OLD)
    for at in range(0, len(values), PIECE):
        two.put(two.first, values[at : at + PIECE])
    clients.delete_records(two.source, two.first, 0, GONE_BELOW)


@pytest.mark.tier("full")
def test_deleted_under_the_running_worker(two_topics: TwoTopics) -> None:
    two = two_topics
    worker = two.running(OLD)
    worker.suspend()
    lose(two)
    worker.resume()
    found = worker.wait_any(
        lambda event: event["event"] == "incident" and event.get("topic") == two.first, "incident of the first topic"
    )
    assert_names_the_range(found, two)
    two.assert_second_goes_on()
    two.assert_stops(worker)


@pytest.mark.tier("full", kafka="long")
def test_deleted_while_no_worker_runs(two_topics: TwoTopics) -> None:
    two = two_topics
    two.assert_stops(two.running(OLD), 0)
    lose(two)
    worker = two.flow.running()
    found = worker.wait_event("incident", topic=two.first)
    assert found["offset"] == OLD
    assert_names_the_range(found, two)
    two.assert_second_goes_on()
    two.assert_stops(worker)


@pytest.mark.tier("full")
def test_a_truncated_source_names_both_offsets(two_topics: TwoTopics) -> None:
    """The topic ends below the position, and it is the same topic: nothing but a lost log end explains that."""
    two = two_topics
    worker = two.running(OLD)
    two.assert_stops(worker, 0)
    client = clients.consumer(two.target, group_id=two.flow.group)
    position = two.position(two.first)
    ahead = type(position)(position.topic, 0, OLD + 7, position.metadata)
    client.commit(offsets=[ahead], asynchronous=False)
    client.close()
    worker = two.flow.running()
    found = worker.wait_event("incident", name="source_truncated", topic=two.first)
    assert (found["partition"], found["offset"]) == (0, OLD + 7)
    assert sorted(map(int, re.findall(r"\b1\d\d\b", found["detail"])))[:1] == [OLD], found["detail"]
    assert_told(found)
    two.assert_second_goes_on()
    two.assert_stops(worker)
