"""Fetch as it is written and read by hand, compared with kio's codecs; and bytes that are no response."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from embedded_broker.wire import schema
from replicator.model.fetches import FetchAsk, FetchedPart, FetchFrom
from replicator.wire import fetch
from replicator.wire.response_limits import BadResponse
from tests.budget import budget
from tests.replicator.wire.fake_broker import response

VERSIONS = range(fetch.VERSIONS[0], fetch.VERSIONS[1] + 1)
AT = 9  # behind correlation id, tagged fields and throttle time
CODE, SESSION = 0, 77


def told(part: FetchedPart, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "partition_index": part.key[1],
        "error_code": part.code,
        "high_watermark": part.high_watermark,
        "last_stable_offset": part.last_stable,
        "log_start_offset": part.log_start,
        "preferred_read_replica": part.preferred,
        "records": bytes(part.records),
        "aborted_transactions": [{"producer_id": one, "first_offset": first} for one, first in part.aborted] or None,
    }
    if part.leader >= 0:
        found["current_leader"] = {"leader_id": part.leader, "leader_epoch": part.leader_epoch}
    return found


def sample(version: int, seed: int) -> tuple[bytes, list[FetchedPart]]:
    draw = random.Random(seed)
    topics, parts = [], list[FetchedPart]()
    for _ in range(draw.randrange(4)):
        topic_id = draw.randbytes(16)
        of_topic = [
            FetchedPart(
                (topic_id, index), draw.choice((0, 1, 6)), draw.randrange(2**62), draw.choice((-1, 2**40)),
                draw.randrange(99), draw.choice((-1, 3)), *draw.choice(((-1, -1), (4, 9))),
                tuple((draw.randrange(2**40), draw.randrange(2**62)) for _ in range(draw.choice((0, 1, 130)))),
                memoryview(draw.randbytes(draw.choice((0, 1, 300)))),
            )
            for index in range(draw.choice((0, 1, 5)))
        ]  # fmt: skip
        topics.append({"topic_id": UUID(bytes=topic_id), "partitions": [told(part, version) for part in of_topic]})
        parts += of_topic
    data = response("fetch", version, 7, {"session_id": SESSION, "responses": topics})[4:]
    return data, parts


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(10))
def test_responses_are_read_as_kio_writes_them(version: int, seed: int) -> None:
    data, parts = sample(version, seed)
    assert fetch.read(data, AT, 0.5) == (CODE, SESSION, tuple(parts), 0.5)


def test_records_are_not_copied() -> None:
    records = b"r" * 10_000_000
    part = FetchedPart((b"i" * 16, 0), 0, 1, 1, 0, records=memoryview(records))
    topic = {"topic_id": UUID(bytes=b"i" * 16), "partitions": [told(part, 17)]}
    data = response("fetch", 17, 7, {"responses": [topic]})[4:]
    tracemalloc.start()
    try:
        found = fetch.read(data, AT)
        taken_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.parts[0].records.obj is data
    assert found.parts[0].records == records
    assert taken_bytes < 100_000


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_by_kio_as_they_were_meant(version: int) -> None:
    ids = b"a" * 16, b"b" * 16
    parts = (
        ((ids[0], 3), FetchFrom(2**40, 5, 100)),
        ((ids[1], 0), FetchFrom(0, -1, 7)),
        ((ids[0], 4), FetchFrom(1, 2, 3)),
    )
    ask = FetchAsk(9, 2, parts, ((ids[1], 200),))
    data = fetch.request("me", version, ask, fetch.FetchLimits(1_000, 500, "zone a"))
    found = schema.load("fetch", version).read(data, 8 + 2 + 2 + 1)
    assert (found.session_id, found.session_epoch, found.max_bytes, found.min_bytes) == (9, 2, 1_000, 1)
    assert (found.isolation_level, found.max_wait.total_seconds(), found.rack_id) == (1, 0.5, "zone a")
    rows = {
        (topic.topic_id.bytes, each.partition): (each.fetch_offset, each.current_leader_epoch, each.partition_max_bytes)
        for topic in found.topics
        for each in topic.partitions
    }
    assert rows == dict(parts)
    assert {each.last_fetched_epoch for topic in found.topics for each in topic.partitions} == {-1}
    assert [(topic.topic_id.bytes, topic.partitions) for topic in found.forgotten_topics_data] == [(ids[1], (200,))]


def test_a_response_that_is_cut_is_refused() -> None:
    data = next(data for data in (sample(16, seed)[0] for seed in range(999)) if 300 < len(data) < 1_500)
    for end in range(AT, len(data)):
        with pytest.raises(BadResponse):
            fetch.read(data[:end], AT)
    with pytest.raises(BadResponse):
        fetch.read(data + b"\0", AT)


def test_an_altered_response_is_refused_or_read_and_takes_no_more_memory_than_its_size_allows() -> None:
    data = next(data for data in (sample(16, seed)[0] for seed in range(999)) if 300 < len(data) < 1_500)
    draw = random.Random(1)
    tracemalloc.start()
    try:
        for _ in range(budget(300, 100_000)):
            altered = bytearray(data)
            for _ in range(draw.choice((1, 1, 5))):
                altered[draw.randrange(AT, len(data))] = draw.choice((0, 0xFF, 0x7F, 0x80, draw.randrange(256)))
            with suppress(BadResponse):
                fetch.read(bytes(altered), AT)
        assert tracemalloc.get_traced_memory()[1] < 100 * len(data)
    finally:
        tracemalloc.stop()
