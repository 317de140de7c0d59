"""Bad input: a clear word, an exit code, and nothing lost: everything before the record in question is there."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import TopicPartition
from kio.records.schema import Record

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients, raw
from integration_tests.harness.compare import assert_exact, wait_key
from integration_tests.harness.copying import Copying
from integration_tests.harness.replicator import Replicator

INCIDENT = 4
LATER = pytest.mark.tier(embedded="full")


def written(copying: Copying, partition: int = 0) -> list[bytes | None]:
    """Values on the target."""
    return clients.values(clients.read(copying.target, copying.copy, partition))


def ends_with(worker: Replicator, *names: str) -> None:
    """The worker of one partition tells one of these incidents and, with nothing left to do, exits with code 4."""
    worker.wait_any(
        lambda event: event.get("name") in names or str(event.get("detail", "")).startswith(names),
        f"incident {names}",
    )
    code = worker.wait_exit()
    assert code == INCIDENT, f"exit code {code}\n{worker.tail()}"


@pytest.mark.tier("extended")
@pytest.mark.parametrize(
    ("bad", "name"),
    [
        pytest.param(raw.record(b"k", b"bad", [(b"\xff\xfe", b"v")]), "header_not_carriable", marks=LATER),
        (raw.record(b"k", b"bad", [(b"\xed\xa0\x80", b"v")]), "header_not_carriable"),
        pytest.param(raw.record(b"k", b"bad", timestamp_ms=0), "timestamp_not_carriable", marks=LATER),
    ],
    ids=["not UTF-8", "a lone surrogate", "timestamp 0"],
)
def test_a_record_that_the_client_library_can_not_carry_stops_its_partition_before_it(
    make_copying: MakeCopying, bad: Record, name: str
) -> None:
    copying = make_copying(partitions=2)
    before = [b"%d" % number for number in range(200)]  # so many that Python has specialised the lines that copy
    clients.put(clients.producer(copying.source), copying.topic, *before, key=b"k")
    raw.put(copying.source, copying.topic, 0, bad)
    raw.put(copying.source, copying.topic, 0, raw.record(b"k", b"behind"))
    worker = copying.running()
    found = worker.wait_event("incident", name=name)
    assert (found["topic"], found["partition"], found["offset"]) == (copying.topic, 0, 200)
    raw.put(copying.source, copying.topic, 1, raw.record(b"key", b"the other partition goes on"))
    clients.wait_value(copying.target, copying.copy, 1, b"the other partition goes on")
    assert written(copying) == before
    assert worker.stop() == INCIDENT
    worker = copying.running()
    worker.wait_event("incident", name=name)
    assert worker.stop() == INCIDENT
    assert written(copying) == before, "a restart went past the record"


@pytest.mark.tier("extended")
@pytest.mark.xfail(strict=True, reason="librdkafka ends a header key at a zero byte and can't be asked for its length")
def test_a_header_key_with_a_zero_byte_is_never_cut(make_copying: MakeCopying) -> None:
    """The `records` plane alters such a record unseen: a limit of the library that the guarantees name."""
    copying = make_copying(partitions=1)
    raw.put(copying.source, copying.topic, 0, raw.record(b"k", b"bad", [(b"a\x00b", b"v")]))
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"bad")
    assert worker.stop() == 0
    assert_exact(copying.source, copying.topic, copying.target, copying.copy, 1)


def test_a_record_that_the_target_is_too_small_for_stops_its_partition_before_it(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=2)
    clients.create_topic(copying.target, copying.copy, 2, {"max.message.bytes": "3000"})
    large = random.Random(1).randbytes(9_000)  # compression doesn't help
    for value in (b"1", b"2", large, b"behind"):
        raw.put(copying.source, copying.topic, 0, raw.record(b"k", value))
    raw.put(copying.source, copying.topic, 1, raw.record(b"k", b"the other partition"))
    worker = copying.running()
    found = worker.wait_event("incident", name="record_too_large")
    assert (found["topic"], found["partition"], found["offset"]) == (copying.topic, 0, 2)
    assert "has 9073 bytes" in found["detail"], found  # with its key, its lengths and the batch's header
    assert f"max.message.bytes of topic '{copying.copy}' was 3000 when last listed" in found["detail"], found
    clients.wait_value(copying.target, copying.copy, 1, b"the other partition")
    assert written(copying) == [b"1", b"2"]
    assert worker.stop() == INCIDENT


def test_a_target_topic_with_data_but_no_position_is_not_touched(copying: Copying) -> None:
    clients.create_topic(copying.target, copying.copy, copying.partitions)
    clients.put(clients.producer(copying.target), copying.copy, b"somebody's")
    copying.load.mixed(50)
    worker = copying.run()
    worker.wait_event("incident", name="target_not_empty", partition=0)
    worker.wait_event("lane_started")
    assert worker.stop() == INCIDENT
    assert written(copying) == [b"somebody's"]


@pytest.mark.tier("extended")
def test_a_target_topic_with_fewer_partitions_is_refused(copying: Copying) -> None:
    clients.create_topic(copying.target, copying.copy, copying.partitions - 1)
    worker = copying.run()
    assert worker.wait_exit() == INCIDENT
    assert "target_topic_too_small" in worker.tail()


@pytest.mark.tier("extended")
def test_records_deleted_before_they_were_copied_are_told_and_not_skipped(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    copied_once(copying)
    clients.put(clients.producer(copying.source), copying.topic, *[b"%d" % number for number in range(10)])
    end = clients.stable_end(copying.source, copying.topic)
    clients.delete_records(copying.source, copying.topic, 0, end - 2)
    ends_with(copying.run(), "source_records_gone")
    assert len(written(copying)) == copying.load.committed


@pytest.mark.tier("extended")
def test_a_source_topic_that_was_deleted_and_made_again_is_an_incident(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    copied_once(copying)
    clients.delete_topic(copying.source, copying.topic)
    clients.create_topic(copying.source, copying.topic)
    many = copying.load.committed * 2
    clients.put(clients.producer(copying.source), copying.topic, *[b"other" for _ in range(many)])
    ends_with(copying.run(), "source_topic_recreated")
    assert len(written(copying)) == copying.load.committed


@pytest.mark.tier("extended")
def test_a_target_topic_that_was_made_again_under_the_running_worker_is_an_incident(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    worker = copied_once(copying, stop=False)
    clients.delete_topic(copying.target, copying.copy)
    clients.create_topic(copying.target, copying.copy)
    copying.load.mixed(50)
    # What is found depends on when it looks: between the two, the topic is gone.
    ends_with(worker, "target_topic_recreated", "target_topic_deleted", "target_lost_data", "position_expired")
    assert written(copying) == [], "a hole: records were written to the new topic as if nothing had happened"


def test_a_position_that_expired_is_not_taken_for_a_new_partition(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    copied_once(copying)
    admin = clients.admin(copying.target)
    admin.delete_consumer_groups([copying.group])[copying.group].result(clients.TIMEOUT_S)
    ends_with(copying.run(), "position_expired")
    assert len(written(copying)) == copying.load.committed


def test_somebody_else_writing_to_the_target_topic_is_an_incident_at_the_next_start(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    copied_once(copying)
    clients.put(clients.producer(copying.target), copying.copy, b"not ours")
    ends_with(copying.run(), "target_has_later_records")


def test_a_position_that_was_set_back_is_an_incident(make_copying: MakeCopying) -> None:
    """Copying again what is there already is the one thing that must never happen."""
    copying = make_copying(partitions=1)
    copied_once(copying)
    old = clients.committed(copying.target, copying.group, copying.copy)
    copied_once(copying)
    client = clients.consumer(copying.target, group_id=copying.group)
    back = TopicPartition(copying.copy, 0, old.offset, old.metadata)
    client.commit(offsets=[back], asynchronous=False)
    client.close()
    before = written(copying)
    ends_with(copying.run(), "target_has_later_records")
    assert written(copying) == before


def copied_once(copying: Copying, *, stop: bool = True) -> Replicator:
    """Write and copy some records; the worker, stopped unless told otherwise."""
    copying.load.plain(20)
    worker = copying.running()
    copying.load.finish()
    wait_key(copying.target, copying.copy, copying.partitions, copying.load.last)
    if stop:
        assert worker.stop() == 0, worker.tail()
    return worker
