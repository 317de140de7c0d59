"""`new_partitions: stop`: the topic that has grown stops as it runs, and the others go on."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics, assert_told, numbered
from integration_tests.partitions.conftest import MakeTwoTopics
from integration_tests.test_control import typed

OLD = 20
FOUND_S = 120.0  # the discovery interval of the tests is a second


def grow(two: TwoTopics) -> None:
    """One more partition for the first topic."""
    clients.grow_topic(two.source, two.first, 2)


def test_a_topic_that_grows_under_the_running_worker_stops(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics(new_partitions="stop")
    worker = two.running(OLD)
    grow(two)
    found = worker.wait_event("incident", name="source_partitions_added", topic=two.first, timeout_s=FOUND_S)
    assert_told(found, "1", "2")
    for partition in range(2):
        two.put(two.first, numbered("after it had grown", OLD), partition)
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert two.values(two.first) == numbered("old", OLD), "it goes on although the flow says stop"
    assert clients.topics(two.target)[two.copy_of(two.first)] == 1
    assert two.position(two.first).offset == OLD


@pytest.mark.tier("full")
def test_it_goes_on_once_the_flow_says_copy(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics(new_partitions="stop")
    worker = two.running(OLD)
    grow(two)
    worker.wait_event("incident", name="source_partitions_added", topic=two.first, timeout_s=FOUND_S)
    for partition in range(2):
        two.put(two.first, numbered("after it had grown", OLD), partition)
    two.assert_stops(worker)
    two.flow.file.write(new_partitions="copy")
    worker = two.flow.running()
    for partition in range(2):
        two.wait_copied(two.first, numbered("after it had grown", OLD)[-1], partition)
    two.assert_stops(worker, 0)
    assert two.values(two.first) == numbered("old", OLD) + numbered("after it had grown", OLD)
    assert two.values(two.first, 1) == numbered("after it had grown", OLD)


@pytest.mark.tier("long")
@pytest.mark.parametrize("crash", [True, False])
def test_a_topic_grows_that_the_flow_has_made_and_not_claimed_yet(make_copying: MakeCopying, crash: bool) -> None:
    """The process dies between the opening and its first claims, or somebody has paused the flow before them."""
    copying = make_copying(partitions=2, start={"kind": "latest"})
    writer = clients.producer(copying.source)
    clients.put(writer, copying.topic, b"before")
    copying.run("fenced@1=kill").wait_exit()
    if not crash:
        typed(copying, "pause")
        worker = copying.running()
        worker.wait_event("waiting", reason="paused", partition=0)
    wanted = {0: b"after", 1: b"after", 2: b"in a new partition"}
    clients.grow_topic(copying.source, copying.topic, 3)
    for partition, value in wanted.items():
        clients.put(clients.producer(copying.source), copying.topic, value, partition=partition)
    if crash:
        code, plan = copying.asked("plan")
        assert (code, [it["action"] for it in plan["topics"]]) == (0, ["grow"])
        worker = copying.run()
    worker.wait_event("topic_grown", topic=copying.copy, timeout_s=FOUND_S)
    if not crash:
        typed(copying, "resume")
    for partition, value in wanted.items():
        clients.wait_value(copying.target, copying.copy, partition, value)
        assert [m.value() for m in clients.read(copying.target, copying.copy, partition)] == [value]
    assert worker.seen("incident") == []
    assert worker.stop() == 0
