"""Transactions on the target that stay open, as after a lost marker: nothing is written over them or guessed."""

from __future__ import annotations

import json
import random

import pytest
from confluent_kafka import Producer, TopicPartition

from integration_tests.conftest import MakeCopying
from integration_tests.exactly_once.test_incidents import INCIDENT, copied_once, ends_with, written
from integration_tests.harness import clients, raw
from integration_tests.harness.copying import Copying

IMPATIENT = {"request_timeout_ms": 2_000}
LARGE = random.Random(1).randbytes(9_000)
"""Compression doesn't help."""


def opened(copying: Copying) -> Producer:
    """A producer that stands inside a transaction over the copy's partition 0, behind all that was copied."""
    writer = clients.transactional(copying.target, f"open-{copying.name}")
    writer.begin_transaction()
    clients.put(writer, copying.copy, b"in the open transaction")
    return writer


@pytest.mark.tier("full")
def test_an_open_transaction_behind_the_copy_stops_the_partition_until_it_has_ended(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1, limits=IMPATIENT)
    copied_once(copying)
    before = written(copying)
    writer = opened(copying)
    copying.load.mixed(30)
    ends_with(copying.run(), "target_transaction_open")
    writer.abort_transaction(clients.TIMEOUT_S)
    assert written(copying) == before
    copying.finish(copying.running())


def test_after_an_abort_nothing_is_committed_over_a_transaction_that_is_open(make_copying: MakeCopying) -> None:
    """The producer's next marker would end what an earlier one of its own has left open."""
    copying = make_copying(partitions=2, limits=IMPATIENT)
    clients.create_topic(copying.target, copying.copy, 2, {"max.message.bytes": "3000"})
    raw.put(copying.source, copying.topic, 0, raw.record(b"k", b"1"))
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"1")
    writer = opened(copying)
    raw.put(copying.source, copying.topic, 1, raw.record(b"k", LARGE))  # refused: the lane aborts
    worker.wait_event("incident", name="target_transaction_open", partition=0)
    worker.wait_event("incident", name="record_too_large", partition=1)
    raw.put(copying.source, copying.topic, 0, raw.record(b"k", b"2"))
    assert worker.wait_exit() == INCIDENT
    writer.abort_transaction(clients.TIMEOUT_S)
    assert written(copying) == [b"1"]


@pytest.mark.tier(embedded="full")
def test_a_transaction_that_was_over_when_its_abort_was_answered_stops_nothing(make_copying: MakeCopying) -> None:
    """Markers are written after EndTxn's answer: that is waited for, many times over while a refusal is searched."""
    copying = make_copying(partitions=2)
    clients.create_topic(copying.target, copying.copy, 2, {"max.message.bytes": "3000"})
    for number in range(100):
        raw.put(copying.source, copying.topic, 0, raw.record(b"k", LARGE if number == 70 else b"%d" % number))
        raw.put(copying.source, copying.topic, 1, raw.record(b"k", b"%d" % number))
    worker = copying.running()
    worker.wait_event("incident", name="record_too_large", partition=0)
    clients.wait_value(copying.target, copying.copy, 1, b"99")
    assert worker.stop() == INCIDENT
    assert written(copying) == [b"%d" % number for number in range(70)]
    assert written(copying, 1) == [b"%d" % number for number in range(100)]


@pytest.mark.tier("extended")
def test_an_aborted_record_that_the_position_covers_is_an_incident(make_copying: MakeCopying) -> None:
    """What a lost commit marker and a later abort leave behind."""
    copying = make_copying(partitions=1)
    copied_once(copying)
    writer = opened(copying)
    hidden = copying.target_ends()[0] - 1
    writer.abort_transaction(clients.TIMEOUT_S)
    position = clients.committed(copying.target, copying.group, copying.copy)
    evidence = json.loads(position.metadata or "") | {"nt": hidden + 1}
    client = clients.consumer(copying.target, group_id=copying.group)
    committed = TopicPartition(copying.copy, 0, position.offset, json.dumps(evidence, separators=(",", ":")))
    client.commit(offsets=[committed], asynchronous=False)
    client.close()
    before = written(copying)
    copying.load.mixed(30)
    ends_with(copying.run(), "target_records_hidden")
    assert written(copying) == before


@pytest.mark.tier("full")
def test_positions_in_a_transaction_that_is_open_are_waited_for(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1, limits=IMPATIENT)
    copied_once(copying)
    writer = clients.transactional(copying.target, f"open-{copying.name}")
    client = clients.consumer(copying.target, group_id=copying.group)
    position = clients.committed(copying.target, copying.group, copying.copy)
    writer.begin_transaction()
    writer.send_offsets_to_transaction([position], client.consumer_group_metadata(), clients.TIMEOUT_S)
    client.close()
    worker = copying.run()
    waits = worker.wait_event("restarted", kind="Retriable")
    assert "find-hanging" in waits["reason"], waits
    copying.load.mixed(30)
    writer.abort_transaction(clients.TIMEOUT_S)
    worker.wait_event("lane_started")
    copying.finish(worker)
