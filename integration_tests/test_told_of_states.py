"""`status`, `top`, the status page and the metrics tell the same of what partitions of a running flow can be besides:
positions that contradict the clusters, copies that stand still, a source that is away, a lane that has just begun.

`tests.test_told_states` holds that every state is in one of these tables, or in those of `test_told_everywhere`.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import command
from integration_tests.harness.processes import wait_until
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness.told import (
    IN_SYNC,
    Expected,
    assert_shown,
    assert_status,
    metrics,
    status,
    wait_doing,
)
from integration_tests.harness.two_topics import INCIDENT
from integration_tests.partitions.test_plan_and_run import Damage
from integration_tests.test_metrics import observed
from replicator import config
from replicator.inspect import status as asked_status
from replicator.model.commands import commands_for
from replicator.model.partition import Partition
from replicator.observe.view import Doing

pytestmark = pytest.mark.tier("long")

RECORDS, AFTER = 10, 5
MINUTE_MS = 60_000
CONNECT_MS = 20_000
WHOLE_RATE = 1
"""Bytes a second: what one record takes isn't made up for within a test."""

CONTRADICTED = {
    "source_cluster_changed": Expected(Doing.STOPPED, "source_cluster_changed", "other_source"),
    "source_topic_changed": Expected(Doing.STOPPED, "source_topic_changed", "other_source"),
    "source_truncated": Expected(Doing.STOPPED, "source_truncated", "source_truncated"),
    "target_lost_data": Expected(Doing.STOPPED, "target_lost_data", "target_lost_data"),
    "position_unreadable": Expected(Doing.STOPPED, "position_unreadable", "foreign_position"),
    "position_expired": Expected(Doing.STOPPED, "position_expired", "position_expired"),
}
"""Positions that contradict the clusters, by the end of their topics' names."""
WRITTEN = {name for name in CONTRADICTED if commands_for(name)}
"""Those of them that a lane writes to the claims topic: the others are found by whoever asks both clusters."""
AWAY = Expected(Doing.WAITING, "no_answer", "waiting")
"""What is copied, while the source doesn't answer."""
STANDING = {
    "sync": Expected(Doing.COPYING, "", "behind"),
    "held": Expected(Doing.COPYING, "", "source_waits"),
    "slow": Expected(Doing.COPYING, "", "limited"),
}
"""What stands still under the limit of its flow, or behind an open transaction, and is copied all the same."""
LONG = {"sync": "stalled", "held": "source_waits", "slow": "stalled"}
"""The states of the same once nothing has moved for long."""
BEGUN = {
    "copied": Expected(Doing.UNDECIDED, "", "in_sync"),
    "more": Expected(Doing.UNDECIDED, "", "behind"),
    "new": Expected(Doing.UNDECIDED, "", "not_started"),
}
"""What a lane has that waits for its producer."""


def now_ms() -> int:
    """Wall clock."""
    return time.time_ns() // 1_000_000


def copied(copying: Copying, *names: str) -> dict[str, Partition]:
    """The flow has copied some records of each of these topics, and its process has stopped; their partitions."""
    topics = {name: f"{copying.name}.{name}" for name in names}
    copying.file.write(topics=[f"^{copying.name}[.].*"])
    for topic in topics.values():
        clients.create_topic(copying.source, topic)
        clients.put(clients.producer(copying.source), topic, *[b"%d" % number for number in range(RECORDS)])
    worker = copying.running("", "--shared")
    for topic in topics.values():
        clients.wait_value(copying.target, f"{topic}.copy", 0, b"%d" % (RECORDS - 1))
    assert worker.stop() == 0, worker.tail()
    return {name: Partition(topic, 0) for name, topic in topics.items()}


def expire(copying: Copying, expired: Partition, others: list[Partition]) -> None:
    """A position goes, as Kafka removes those that were not committed for long."""
    admin = clients.admin(copying.target)
    kept = [clients.committed(copying.target, copying.group, f"{at.topic}.copy") for at in others]
    admin.delete_consumer_groups([copying.group])[copying.group].result(clients.TIMEOUT_S)
    again = ConsumerGroupTopicPartitions(copying.group, kept)
    admin.alter_consumer_group_offsets([again])[copying.group].result(clients.TIMEOUT_S)
    assert clients.committed(copying.target, copying.group, f"{expired.topic}.copy").offset < 0


def written_down(copying: Copying) -> list[str]:
    """Incidents of the flow that a lane has written down."""
    return [row["incident"] for row in copying.asked("status")[1]["partitions"] if row["occurrence"]]


def test_they_tell_the_same_of_positions_that_contradict_and_of_a_source_that_is_away(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    copying = make_copying(partitions=1)
    asked = observed(copying)
    well = Partition(copying.topic, 0)
    at = copied(copying, *CONTRADICTED)
    expire(copying, at["position_expired"], [well, *(it for name, it in at.items() if name != "position_expired")])
    for name in CONTRADICTED:
        if name != "position_expired":
            getattr(Damage(copying, at[name].topic), name)()
    expected = {at[name]: it for name, it in CONTRADICTED.items()} | {well: IN_SYNC}
    worker = copying.running("", "--shared")
    wait_doing(asked, copying, expected)
    assert_status(asked, copying, expected)
    assert_shown(asked, copying)

    wait_until(lambda: set(written_down(copying)) == WRITTEN, "they are written down", worker.tail)
    source.kill()
    expected[well] = AWAY
    expected |= {at[name]: CONTRADICTED[name]._replace(state="waiting") for name in CONTRADICTED.keys() - WRITTEN}
    wait_doing(asked, copying, expected)
    asked.wait("the lag is unknown", lambda it: it.value("eos_flow_lag_records", flow=copying.name) is None)
    assert_status(asked, copying, expected, compared=False)
    assert_shown(asked, copying)
    source.restart()
    expected[well] = IN_SYNC
    wait_doing(asked, copying, expected)
    assert worker.stop() == INCIDENT, worker.tail()


def test_they_tell_the_same_of_what_stands_still_while_it_is_copied(make_copying: MakeCopying) -> None:
    """A limit that lets nothing through meanwhile, and a transaction that is open at the source for long."""
    copying = make_copying(partitions=1)
    asked = observed(copying)
    well = Partition(copying.topic, 0)
    at = copied(copying, *STANDING)
    command(copying, "pause", "--topics", at["slow"].topic)
    long_ago_ms = now_ms() - 10 * MINUTE_MS
    Damage(copying, at["slow"].topic).moved(long_ago_ms)
    writer = clients.producer(copying.source)
    clients.put(writer, at["slow"].topic, *[b"more"] * AFTER, timestamp=long_ago_ms)
    held_back = clients.transactional(copying.source, f"{copying.name}-open")
    held_back.begin_transaction()
    clients.put(held_back, at["held"].topic, b"not committed", timestamp=long_ago_ms)

    worker = copying.running("", "--shared")
    command(copying, "rate", "--bytes-per-s", str(WHOLE_RATE))
    asked.wait(
        "the limit holds", lambda it: it.value("eos_flow_rate_limit_bytes_per_second", flow=copying.name) == WHOLE_RATE
    )
    clients.put(writer, at["sync"].topic, b"x" * 100_000)
    moved = {"flow": copying.name, "topic": at["sync"].topic, "partition": "0"}
    asked.wait("one is copied", lambda it: (it.value("eos_partition_position", **moved) or 0) > RECORDS)
    clients.put(writer, at["sync"].topic, *[b"more"] * AFTER)
    command(copying, "resume", "--topics", at["slow"].topic)
    expected = {at[name]: it for name, it in STANDING.items()} | {well: IN_SYNC}
    wait_doing(asked, copying, expected)
    asked.wait(
        "the lags are known",
        lambda it: {metrics(it, copying.name)[at[name]][1].lag_records for name in ("sync", "slow")} == {AFTER},
    )
    assert_status(asked, copying, expected)
    assert_shown(asked, copying)
    worker.wait_event("summary", after=worker.mark(), lag_records=2 * AFTER, copying=len(expected), waiting=0)

    loaded = config.load(copying.file.path)
    later = asked_status.status(
        loaded.flows[copying.name], loaded, now_ms=now_ms() + 10 * MINUTE_MS, connect_timeout_ms=CONNECT_MS
    )
    by_metrics = metrics(asked, copying.name)
    rows = {Partition(row.source_topic, row.partition): row for row in later.partitions}
    assert {name: rows[it].state for name, it in at.items()} == LONG
    for name, it in at.items():
        assert (rows[it].position, rows[it].lag_records) == by_metrics[it][1][1:], name
    held_back.abort_transaction()
    assert worker.stop() == 0, worker.tail()


def test_they_tell_the_same_of_a_lane_that_has_just_begun(make_copying: MakeCopying, proxy: Proxy) -> None:
    """Its producer isn't initialized yet: so it has read no position, whatever `status` finds on the target."""
    copying = make_copying(partitions=1, via=proxy.bootstrap)
    asked = observed(copying)
    at = copied(copying, *(name for name in BEGUN if name != "new"))
    at |= {"new": Partition(f"{copying.name}.new", 0)}
    clients.create_topic(copying.source, at["new"].topic)
    for name in ("more", "new"):
        clients.put(clients.producer(copying.source), at[name].topic, *[b"more"] * AFTER)
    held = proxy.rule("InitProducerId", Side.REPLY, Action.HOLD)
    worker = copying.run("", "--shared")
    held.wait_hit()
    expected = {at[name]: it for name, it in BEGUN.items()} | {Partition(copying.topic, 0): BEGUN["copied"]}
    wait_doing(asked, copying, expected)
    assert_status(asked, copying, expected, unknown=expected)
    assert_shown(asked, copying)
    assert not asked.ready()[0]
    proxy.clear()
    expected = dict.fromkeys(expected, IN_SYNC)
    wait_doing(asked, copying, expected)
    wait_until(
        lambda: {state for state, _ in status(copying).values()} == {"in_sync"}, "everything is copied", worker.tail
    )
    assert_status(asked, copying, expected)
    assert_shown(asked, copying)
    assert worker.stop() == 0, worker.tail()
