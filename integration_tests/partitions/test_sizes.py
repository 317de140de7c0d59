"""Sizes: batches that the target doesn't take, records that only the source could hold, limits that are too small."""

from __future__ import annotations

import random
import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.load import fill
from integration_tests.harness.two_topics import TwoTopics, assert_told
from integration_tests.partitions.conftest import MakeTwoTopics

MIB = 1 << 20
LATER = pytest.mark.tier(embedded="full")
LARGE = 20 * MIB
SOURCE = {"max.message.bytes": str(64 * MIB)}
WORKER_BYTES_MAX = 400 * MIB
COPIED_S, LARGE_COPIED_S = 180.0, 180.0


def write_around_a_large_record(two: TwoTopics) -> None:
    """Two small records of the first topic, a large one and another small one."""
    writer = clients.producer(two.source, message_max_bytes=64 * MIB, message_timeout_ms=60_000)
    for value in (b"1", b"2", random.Random(2).randbytes(LARGE), b"behind"):
        clients.put(writer, two.first, value, key=b"key")


@pytest.mark.tier("full")
def test_a_target_with_small_batches_gets_all_records(make_copying: MakeCopying) -> None:
    """The target topic takes the limit of the source's; no batch that is sent may be larger."""
    copying = make_copying(partitions=2, source_configs={"max.message.bytes": str(64 * 1024)})
    value = random.Random(1).randbytes(1_024)
    fill(copying.source, copying.topic, [10_000, 10_000], lambda _, n: (b"%d" % n, value), batch_size=32_000)
    worker = copying.running()
    took_s = copying.wait_offsets([10_000, 10_000], COPIED_S)
    print(f"20,000 records of 1 KiB copied in {took_s:.1f} s")
    assert not worker.seen("aborted")
    copying.wait_copied()
    assert worker.stop() == 0, worker.tail()
    exact = assert_exact(copying.source, copying.topic, copying.target, copying.copy, copying.partitions)
    assert exact == 20_000 + copying.load.committed


def test_a_large_record_that_the_target_does_not_take_stops_its_partition(make_two_topics: MakeTwoTopics) -> None:
    """Three partitions in one lane: the large record's stands before it, the two others are copied."""
    two = make_two_topics(partitions=2, source_configs=SOURCE)
    clients.create_topic(two.target, two.copy_of(two.first), 2)
    write_around_a_large_record(two)
    worker = two.flow.running()
    found = worker.wait_any(
        lambda event: event.get("name") in ("record_too_large", "record_refused"), "incident of the large record", 0, 30
    )
    assert (found["event"], found["topic"], found["partition"], found["offset"]) == ("incident", two.first, 0, 2)
    assert_told(found)
    two.put(two.first, [b"beside"], partition=1)
    two.wait_copied(two.first, b"beside", 1)
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert two.values(two.first) == [b"1", b"2"]


@pytest.mark.tier("extended")
@pytest.mark.parametrize(
    "limit", [None, pytest.param(32 * MIB, marks=LATER)], ids=["default limits", "a record may be as large"]
)
def test_a_large_record_that_the_target_takes(make_two_topics: MakeTwoTopics, limit: int | None) -> None:
    """With a limit that allows it it is copied. Below the limit it is copied or told; either way in bounded memory."""
    limits = {} if limit is None else {"record_bytes_max": limit}
    two = make_two_topics(partitions=2, source_configs=SOURCE, limits=limits)
    write_around_a_large_record(two)
    worker = two.flow.running()
    largest = 0
    deadline = time.monotonic() + LARGE_COPIED_S
    while two.position(two.first).offset < 4 and not (limit is None and worker.seen("incident")):
        assert time.monotonic() < deadline, worker.tail()
        largest = max(largest, worker.memory_bytes())
        time.sleep(0.05)
    print(f"largest memory of the worker: {largest / MIB:.0f} MiB")
    assert largest < WORKER_BYTES_MAX
    told = worker.seen("incident")
    if told:
        expected = ("record_too_large", two.first, 0, 2)
        assert (told[0]["name"], told[0]["topic"], told[0]["partition"], told[0]["offset"]) == expected
    two.put(two.first, [b"beside"], partition=1)
    two.wait_copied(two.first, b"beside", 1)
    two.assert_second_goes_on()
    two.assert_stops(worker, 4 if told else 0)
    copied = [len(value or b"") for value in two.values(two.first)]
    assert copied == ([1, 1] if told else [1, 1, LARGE, len(b"behind")])


def test_a_small_limit_copies_small_records(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=2, limits={"record_bytes_max": 1_024})
    writer = clients.producer(copying.source)
    clients.put(writer, copying.topic, *[b"ten bytes%d" % (n % 10) for n in range(100)], key=b"key")
    worker = copying.running()
    copying.wait_offsets([100, 0], COPIED_S / 2)
    assert not worker.seen("incident")
    assert worker.stop() == 0, worker.tail()
    assert len(clients.read(copying.target, copying.copy)) == 100


@pytest.mark.tier("full")
@pytest.mark.parametrize("delivery", ["exactly_once", pytest.param("at_least_once", marks=LATER)])
def test_records_that_only_their_compression_made_small_enough(make_two_topics: MakeTwoTopics, delivery: str) -> None:
    """2 MB of text each, which the source took as zstd: the target takes them so, with the source's limit."""
    two = make_two_topics(delivery=delivery)
    writer = clients.producer(two.source, message_max_bytes=64 * MIB, compression_type="zstd")
    values = [b"%d " % number * (2 * MIB // len(b"%d " % number)) for number in range(3)]
    for value in (b"before", *values, b"behind"):
        clients.put(writer, two.first, value)
    worker = two.flow.running()
    # At least once the last record may stand there before the large ones: the first session wrote it behind one that
    # the target refused.
    two.wait_position(two.first, len(values) + 2)
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    assert not worker.seen("incident")
    assert len(worker.seen("restarted")) == 1, "compressed from the second session on"
    if delivery == "exactly_once":
        assert two.values(two.first) == [b"before", *values, b"behind"]
    else:
        assert {value or b"" for value in two.values(two.first)} == {b"before", *values, b"behind"}


@pytest.mark.tier("full")
def test_a_codec_that_the_file_wants_is_kept_and_its_record_too_large_is_named(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics()
    two.flow.file.write_to_target({"compression.type": "none"})
    writer = clients.producer(two.source, message_max_bytes=64 * MIB, compression_type="zstd")
    clients.put(writer, two.first, b"before", b"0" * 2 * MIB)
    worker = two.flow.running()
    found = worker.wait_event("incident", name="record_too_large", topic=two.first)
    assert (found["partition"], found["offset"]) == (0, 1)
    assert "compression.type" in str(found["advice"])
    two.assert_second_goes_on()
    two.assert_stops(worker)
