"""A lane starts with the partitions that can start, and asks its clusters few questions for any number of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness.two_topics import INCIDENT, TwoTopics, assert_told, numbered
from replicator.model import names
from replicator.model.partition import Partition
from replicator.state.claims import Claim

OLD = 20
PARTITIONS = 30
REQUESTS_MAX = 45
"""Of which most read the flow's own topics, and some are sent again while leaders of new topics are elected. There are
30 partitions, and three offsets of each are asked for: one by one that would be 90 at each side."""
OTHER_FLOWS = 60
DELAY_S, START_S = 0.15, 10.0
UNREACHABLE, TAKEN_OVER = 3, 5


@pytest.fixture
def source_proxy(source: BrokerHandle) -> Iterator[Proxy]:
    """In front of the source."""
    with Proxy(source.bootstrap) as running:
        yield running


def claims_of_others(source: str, name: str) -> None:
    """Other flows have claimed topics there."""
    flows = [f"{name}-other-{number}" for number in range(OTHER_FLOWS)]
    topics = [names.claims_topic(flow) for flow in flows]
    admin, writer = clients.admin(source), clients.producer(source)
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(clients.TIMEOUT_S)
    for flow, topic in zip(flows, topics, strict=True):
        clients.settle(source, topic, 1)
        at = Partition(flow, 0)
        key, value = Claim(at, at, "s", "t", 0, 0, 1, "other", 1, "other-cluster").encode()
        clients.put(writer, topic, value, key=key)


@pytest.mark.tier(kafka="long")
@pytest.mark.parametrize(
    "pattern", [pytest.param(False, id="named", marks=pytest.mark.tier("full")), pytest.param(True, id="by a pattern")]
)
def test_a_deleted_source_topic_keeps_nothing_else_shut(two_topics: TwoTopics, pattern: bool) -> None:
    two = two_topics
    if pattern:
        two.flow.file.write(topics=[f"^{two.name}\\..*"])
    two.assert_stops(two.running(OLD), 0)
    before = two.position(two.first)
    clients.delete_topic(two.source, two.first)
    two.put(two.second, numbered("while it was down", OLD))
    worker = two.flow.running()
    two.wait_copied(two.second, numbered("while it was down", OLD)[-1])
    found = worker.wait_event("incident", name="source_topic_deleted", topic=two.first, partition=0)
    assert found["offset"] == OLD
    assert_told(found, two.first)
    two.assert_second_goes_on()
    two.assert_stops(worker)
    after = two.position(two.first)
    assert after.offset == before.offset
    assert after.metadata != before.metadata, "the position was not committed again, so it may expire"


@pytest.mark.tier("full")
def test_a_topic_that_is_deleted_while_the_lane_starts_keeps_nothing_else_shut(
    make_copying: MakeCopying, source_proxy: Proxy
) -> None:
    """The topics were listed before; what the lane asks for then isn't there any more, and no listing comes soon."""
    limits = {"discovery_interval_ms": 60_000}
    two = TwoTopics(make_copying(partitions=1, source_via=source_proxy.bootstrap, limits=limits))
    two.assert_stops(two.running(OLD), 0)
    two.put(two.second, numbered("while it was down", OLD))
    held = source_proxy.rule("ListOffsets", Side.REQUEST, Action.HOLD)
    worker = two.flow.run()
    held.wait_hit()
    clients.delete_topic(two.source, two.first)
    source_proxy.clear()
    two.wait_copied(two.second, numbered("while it was down", OLD)[-1])
    two.assert_second_goes_on()
    worker.wait_any(
        lambda event: event["event"] in ("incident", "waiting") and event.get("topic") == two.first,
        "word of the first topic",
    )
    two.assert_stops(worker, 0, UNREACHABLE, INCIDENT)
    assert two.position(two.first).offset == OLD


@pytest.mark.tier("extended")
def test_many_partitions_are_asked_about_in_few_requests(
    make_copying: MakeCopying, source_proxy: Proxy, proxy: Proxy
) -> None:
    """Nor does each other flow that writes to the source cost a request, though all of their claims are read."""
    copying = make_copying(partitions=PARTITIONS, source_via=source_proxy.bootstrap, via=proxy.bootstrap)
    copying.load.plain(PARTITIONS * 10)
    claims_of_others(copying.source, copying.name)
    worker = copying.running()
    first = [each.count("ListOffsets") for each in (source_proxy, proxy)]
    copying.wait_copied()
    assert worker.stop() == 0
    before = [each.count("ListOffsets") for each in (source_proxy, proxy)]
    copying.finish(copying.running())
    again = [each.count("ListOffsets") - count for each, count in zip((source_proxy, proxy), before, strict=True)]
    print(f"requests for offsets at source and target: {first} at the first start, {again} at the second")
    assert max(*first, *again) <= REQUESTS_MAX


@pytest.mark.tier("full", kafka="long")
def test_two_workers_that_start_slowly_do_not_fence_each_other(make_copying: MakeCopying, proxy: Proxy) -> None:
    """One of them copies within seconds although each answer takes a while; the other one leaves."""
    copying = make_copying(partitions=PARTITIONS, via=proxy.bootstrap, limits={"transaction_timeout_ms": 60_000})
    copying.load.plain(PARTITIONS * 10)
    proxy.rule("ListOffsets", Side.REPLY, Action.DELAY, delay_s=DELAY_S, times=1_000_000)
    workers = [copying.run(), copying.run()]
    copying.wait_offsets([clients.stable_end(copying.source, copying.topic, n) for n in range(PARTITIONS)], START_S * 6)
    proxy.clear()
    for worker in workers:
        assert len(worker.seen("fenced")) <= 1, worker.tail()
    ended = [worker for worker in workers if not worker.runs_on(START_S)]
    assert [worker.wait_exit() for worker in ended] == [TAKEN_OVER]
    copying.finish(next(worker for worker in workers if worker not in ended))
