"""Configs of target topics follow the source's while a worker runs, on both brokers."""

from __future__ import annotations

import pytest

from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.partitions.conftest import MakeTwoTopics

RETENTION, BYTES, MIN_ISR = "retention.ms", "max.message.bytes", "min.insync.replicas"


def configs(two: TwoTopics, topic: str) -> dict[str, str]:
    return clients.topic_configs(two.target, topic)


@pytest.mark.tier("extended", kafka="full")
def test_a_running_worker_sets_them(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics(topic_configs={"sync": True}, limits={"discovery_interval_ms": 500})
    worker = two.running(10)
    copy, other = two.copy_of(two.first), two.copy_of(two.second)
    before = configs(two, copy)
    clients.set_topic_config(two.target, copy, MIN_ISR, "1")
    mark = worker.mark()
    clients.set_topic_config(two.source, two.first, BYTES, str(int(before[BYTES]) - 1))
    clients.set_topic_config(two.source, two.first, RETENTION, "123456789")
    found = worker.wait_event("topic_configs_set", after=mark, topic=copy)
    assert found["configs"] == f"{RETENTION}: {before[RETENTION]} → 123456789"
    after = configs(two, copy)
    assert (after[RETENTION], after[BYTES], after[MIN_ISR]) == ("123456789", before[BYTES], "1")
    assert configs(two, other)[RETENTION] == before[RETENTION]
    mark = worker.mark()
    clients.set_topic_config(two.source, two.first, BYTES, str(int(before[BYTES]) + 1))
    worker.wait_event("topic_configs_set", after=mark, topic=copy)
    assert configs(two, copy)[BYTES] == str(int(before[BYTES]) + 1)
    two.put(two.first, numbered("new", 10))
    two.wait_position(two.first, 20)
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
def test_plan_says_what_would_be_set(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics(topic_configs={"sync": True})
    two.assert_stops(two.running(10), 0)
    clients.set_topic_config(two.source, two.first, RETENTION, "123456789")
    code, plan = two.flow.asked("plan")
    assert code == 0, plan["findings"]
    changes = {topic["source"]: topic["changes"] for topic in plan["topics"]}
    assert changes[two.second] is None
    assert changes[two.first]["after"] == {RETENTION: "123456789"}
    assert configs(two, two.copy_of(two.first))[RETENTION] != "123456789"
