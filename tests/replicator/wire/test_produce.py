"""Produce as it is written and read by hand, compared with kio's codecs; and bytes that are no response."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from embedded_broker.wire import schema
from replicator.model.partition import Partition
from replicator.wire import produce
from replicator.wire.produce import ProducedPart
from replicator.wire.response_limits import BadResponse
from tests.budget import budget
from tests.replicator.wire.fake_broker import response

VERSIONS = range(produce.VERSIONS[0], produce.VERSIONS[1] + 1)
HEADER_BYTES = 4 + 8 + 2 + len("me") + 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_by_kio_as_they_were_meant(version: int) -> None:
    batches = [
        (Partition("a", 3), (b"head", memoryview(b"x" * 300))),
        (Partition("topic" * 40, 0), (b"", memoryview(b"y"))),
        (Partition("a", 200), (b"another", memoryview(b"z" * 20_000))),
    ]
    pieces = produce.request(77, "me", version, "flow.1.0", 5_000, batches)
    data = b"".join(pieces)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert data[4:12] == bytes([0, 0, 0, version, 0, 0, 0, 77])
    found = schema.load("produce", version).read(data, HEADER_BYTES)
    assert (found.transactional_id, found.acks, found.timeout) == ("flow.1.0", -1, timedelta(seconds=5))
    rows = {
        Partition(topic.name, each.index): bytes(each.records)
        for topic in found.topic_data
        for each in topic.partition_data
    }
    assert rows == {at: head + bytes(records) for at, (head, records) in batches}


def test_batches_are_not_copied() -> None:
    batches = [(Partition("a", number), (b"h" * 61, memoryview(bytearray(1 << 20)))) for number in range(5)]
    tracemalloc.start()
    try:
        pieces = produce.request(1, "me", 11, "flow.1.0", 5_000, batches)
        taken_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [id(each) for each in pieces if isinstance(each, memoryview)] == [id(records) for _, (_, records) in batches]
    assert taken_bytes < 100_000


def told(index: int, part: ProducedPart) -> dict[str, Any]:
    append_time = None if part.append_time_ms < 0 else EPOCH + timedelta(milliseconds=part.append_time_ms)
    errors = [{"batch_index": number, "batch_index_error_message": "no key"} for number in part.bad_records]
    return {
        "index": index,
        "error_code": part.code,
        "base_offset": part.base_offset,
        "log_append_time": append_time,
        "log_start_offset": 5,
        "record_errors": errors,
        "error_message": part.detail or None,
    }


def sample(version: int, seed: int) -> tuple[bytes, dict[Partition, ProducedPart]]:
    draw, topics, expected = random.Random(seed), list[dict[str, Any]](), dict[Partition, ProducedPart]()
    for number in range(draw.randrange(4)):
        name, rows = f"t{number}" * draw.choice((1, 80)), dict[int, ProducedPart]()
        for index in range(draw.choice((0, 1, 150))):
            bad = tuple(range(draw.choice((0, 0, 3))))
            rows[index] = ProducedPart(
                draw.choice((0, 7, 87)), draw.choice((-1, 2**40)), draw.choice((-1, 1_700_000_000_000)), bad, "refused"
            )
        topics.append({"name": name, "partition_responses": [told(index, part) for index, part in rows.items()]})
        expected |= {Partition(name, index): part for index, part in rows.items()}
    answer = {"responses": topics, "throttle_time": timedelta(seconds=2)}
    return response("produce", version, 7, answer)[8:], expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(10))
def test_responses_are_read_as_kio_writes_them(version: int, seed: int) -> None:
    data, expected = sample(version, seed)
    assert produce.read(data) == (expected, 2.0)


def test_what_a_broker_says_of_a_record_counts_where_it_says_nothing_of_the_batch() -> None:
    part = told(0, ProducedPart(87, -1, -1, (4,)))
    data = response("produce", 11, 7, {"responses": [{"name": "t", "partition_responses": [part]}]})[8:]
    assert produce.read(data).parts == {Partition("t", 0): ProducedPart(87, -1, -1, (4,), "no key")}


@pytest.mark.tier("default")
def test_a_response_that_is_cut_or_altered_is_refused_or_read_and_takes_no_memory_that_it_only_claims() -> None:
    data = next(data for data in (sample(11, seed)[0] for seed in range(999)) if 60 < len(data) < 9_000)
    for end in range(0, len(data), 1 + len(data) // 300):
        with pytest.raises(BadResponse):
            produce.read(data[:end])
    with pytest.raises(BadResponse):
        produce.read(data + b"\0")
    draw = random.Random(1)
    tracemalloc.start()
    try:
        for _ in range(budget(300, 100_000)):
            altered = bytearray(data)
            for _ in range(draw.choice((1, 1, 5))):
                altered[draw.randrange(len(data))] = draw.choice((0, 0xFF, 0x7F, 0x80, draw.randrange(256)))
            with suppress(BadResponse):
                produce.read(bytes(altered))
        assert tracemalloc.get_traced_memory()[1] < 100 * len(data)
    finally:
        tracemalloc.stop()
