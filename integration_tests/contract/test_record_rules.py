"""What a batch must be to be appended: the rules of Kafka's validator, one by one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from integration_tests.harness import clients, wire
from integration_tests.harness.batches import COMPRESS, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, batch, record, varint
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.wire import MILLISECOND

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NO_TIMESTAMP = -1
TWO = [record(b"a"), record(b"b", offset=1)]
GOOD = batch(TWO)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def answered(target: BrokerHandle, topic: str, records: bytes, version: int = 9) -> Any:
    """What Produce says of a batch, on a connection of its own."""
    with wire.connected(target.bootstrap) as connection:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        timeout = 5_000 * MILLISECOND
        answer = connection("produce", version, topic_data=data, transactional_id=None, acks=-1, timeout=timeout)
        return answer.responses[0].partition_responses[0]


def put(target: BrokerHandle, topic: str, records: bytes, version: int = 9) -> E:
    return answered(target, topic, records, version).error_code  # type: ignore[no-any-return]


def fetched(target: BrokerHandle, topic: str, version: int = 11) -> Any:
    """What Fetch says of the first partition from its start."""
    with wire.connected(target.bootstrap) as connection:
        partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        answer = connection(
            "fetch",
            version,
            max_wait=1_000 * MILLISECOND,
            min_bytes=1,
            topics=[{"topic": topic, "partitions": partitions}],
            forgotten_topics_data=[],
        )
        return answer.responses[0].partitions[0]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


ANY_TOPIC: Mapping[str, tuple[bytes, E]] = {
    "sound": (GOOD, E.none),
    "nothing": (b"", E.invalid_record),
    "two batches": (GOOD + GOOD, E.invalid_record),
    "magic 1": (batch(TWO, magic=1), E.invalid_record),
    "magic 0": (batch(TWO, magic=0), E.invalid_record),
    "magic 3": (batch(TWO, magic=3), E.corrupt_message),
    "cut off": (GOOD[:-1], E.invalid_record),
    "no whole header": (GOOD[:40], E.invalid_record),
    "a bit of the CRC": (flipped(GOOD, 18), E.corrupt_message),
    "a bit of the attributes": (flipped(GOOD, 22), E.corrupt_message),
    "a bit of a record": (flipped(GOOD, len(GOOD) - 3), E.corrupt_message),
    "base offset": (batch(TWO, base_offset=5), E.invalid_record),
    "no records": (batch([]), E.invalid_record),
    "negative count": (batch(TWO, count=-1, last_delta=1), E.invalid_record),
    "more offsets than records": (batch(TWO, last_delta=2), E.invalid_record),
    "fewer offsets than records": (batch(TWO, last_delta=0), E.invalid_record),
    "negative offset delta": (batch(TWO, last_delta=-1), E.invalid_record),
    "more records claimed": (batch(TWO, count=3), E.invalid_record),
    "fewer records claimed": (batch(TWO, count=1), E.invalid_record),
    "record too long": (batch([record(length=1)]), E.invalid_record),
    "record too short": (batch([record(length=-1)]), E.invalid_record),
    "record of negative length": (batch([varint(-5) + b"abc"]), E.invalid_record),
    "bytes behind the records": (batch(body=b"".join(TWO) + b"\0\0", count=2), E.invalid_record),
    "control": (batch(TWO, attributes=CONTROL), E.invalid_record),
    "control of a producer": (batch(TWO, attributes=CONTROL, producer=(7, 0), sequence=0), E.invalid_record),
    "a producer without sequence": (batch(TWO, producer=(7, 0)), E.invalid_record),
    "a sequence without producer": (batch(TWO, sequence=4), E.none),
    "transactional": (
        batch(TWO, attributes=TRANSACTIONAL, producer=(7, 0), sequence=0),
        E.transactional_id_authorization_failed,
    ),
    "time type of the broker": (batch(TWO, attributes=LOG_APPEND_TIME), E.none),
    "no time": (batch([record()], timestamp_ms=NO_TIMESTAMP), E.none),
    "a time long past": (batch([record()], timestamp_ms=1), E.none),
    "59 minutes ahead": (batch([record()], timestamp_ms=now_ms() + 59 * 60_000), E.none),
    "two hours ahead": (batch([record()], timestamp_ms=now_ms() + 2 * HOUR_MS), E.invalid_timestamp),
    "one record ahead": (batch([record(after_ms=2 * HOUR_MS)], span_ms=2 * HOUR_MS), E.invalid_timestamp),
    **{f"codec {codec}": (batch(TWO, attributes=codec), E.none) for codec in range(len(COMPRESS))},
    **{
        f"codec {codec}, more records claimed": (batch(TWO, count=3, attributes=codec), E.invalid_record)
        for codec in range(1, 5)
    },
    **{
        f"codec {codec}, fewer records claimed": (batch(TWO, count=1, attributes=codec), E.invalid_record)
        for codec in range(1, 5)
    },
}


UNREADABLE = {
    **{codec: batch(body=b"".join(TWO), count=2, attributes=codec) for codec in (5, 6, 7)},
    **{codec: batch(body=b"garbage" * 9, count=2, attributes=codec) for codec in range(1, 5)},
}
"""By codec: unknown ones, and bodies that are none of theirs."""


def test_what_any_topic_takes(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("rules")
    clients.create_topic(target.bootstrap, topic)
    found = {name: put(target, topic, records) for name, (records, _) in ANY_TOPIC.items()}
    assert found == {name: error_code for name, (_, error_code) in ANY_TOPIC.items()}
    taken = sum(error_code is E.none for error_code in found.values())
    assert len(clients.read(target.bootstrap, topic)) > taken


def test_bodies_that_can_not_be_decompressed(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    """Kafka has no better name for it than UNKNOWN_SERVER_ERROR."""
    topic = unique("rules")
    clients.create_topic(target.bootstrap, topic)
    found = {codec: put(target, topic, records) for codec, records in UNREADABLE.items()}
    assert set(found.values()) <= {E.unknown_server_error, E.corrupt_message, E.unsupported_compression_type}
    assert put(target, topic, GOOD) is E.none
    assert len(clients.read(target.bootstrap, topic)) == 2


def test_the_records_that_break_a_rule_are_named(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("rules")
    clients.create_topic(target.bootstrap, topic, configs={"cleanup.policy": "compact"})
    records = batch([record(), record(key=None, offset=1), record(offset=2), record(key=None, offset=3)])
    answer = answered(target, topic, records)
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert all(each.batch_index_error_message for each in answer.record_errors)
    assert answer.error_message


def test_a_time_type_that_is_the_brokers_to_set_is_taken_off(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    topic = unique("rules")
    clients.create_topic(target.bootstrap, topic)
    put(target, topic, batch([record()], attributes=LOG_APPEND_TIME, timestamp_ms=1_700_000_000_000))
    assert clients.read(target.bootstrap, topic)[0].timestamp() == (1, 1_700_000_000_000)


CONFIGURED: Mapping[str, tuple[dict[str, str], bytes, E]] = {
    "no key, compacted": (
        {"cleanup.policy": "compact"},
        batch([TWO[0], record(b"b", None, offset=1)]),
        E.invalid_record,
    ),
    "keys, compacted": ({"cleanup.policy": "compact,delete"}, GOOD, E.none),
    "no key, zstd, compacted": (
        {"cleanup.policy": "compact"},
        batch([record(b"b", None)], attributes=4),
        E.invalid_record,
    ),
    "no value, compacted": ({"cleanup.policy": "compact"}, batch([record(None)]), E.none),
    "as large as allowed": ({"max.message.bytes": str(len(GOOD))}, GOOD, E.none),
    "a byte larger": ({"max.message.bytes": str(len(GOOD) - 1)}, GOOD, E.message_too_large),
    "larger than a segment": (
        {"max.message.bytes": "3000000", "segment.bytes": "1048576"},
        batch([record(b"x" * 2_000_000)]),
        E.record_list_too_large,
    ),
    "too old": (
        {"message.timestamp.before.max.ms": str(HOUR_MS)},
        batch([record()], timestamp_ms=now_ms() - 2 * HOUR_MS),
        E.invalid_timestamp,
    ),
    "one too old": (
        {"message.timestamp.before.max.ms": str(HOUR_MS)},
        batch(
            [record(), record(offset=1, after_ms=2 * HOUR_MS)], timestamp_ms=now_ms() - 2 * HOUR_MS, span_ms=2 * HOUR_MS
        ),
        E.invalid_timestamp,
    ),
    "no time, bounded": (
        {"message.timestamp.before.max.ms": str(HOUR_MS)},
        batch([record()], timestamp_ms=NO_TIMESTAMP),
        E.none,
    ),
    "far ahead, allowed": (
        {"message.timestamp.after.max.ms": str(DAY_MS)},
        batch([record()], timestamp_ms=now_ms() + 2 * HOUR_MS),
        E.none,
    ),
    "far ahead, the broker's time": (
        {"message.timestamp.type": "LogAppendTime"},
        batch([record()], timestamp_ms=now_ms() + 2 * HOUR_MS),
        E.none,
    ),
    "time type of the broker, the broker's time": (
        {"message.timestamp.type": "LogAppendTime"},
        batch([record()], attributes=LOG_APPEND_TIME),
        E.invalid_timestamp,
    ),
}


def test_what_topics_take_by_their_configs(target: BrokerHandle) -> None:
    found = {}
    for name, (configs, records, _) in CONFIGURED.items():
        topic = f"rules-{uuid.uuid4().hex[:8]}"
        clients.create_topic(target.bootstrap, topic, configs=configs)
        found[name] = put(target, topic, records)
    assert found == {name: error_code for name, (_, _, error_code) in CONFIGURED.items()}


def test_zstd_needs_a_client_that_knows_it(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("rules")
    clients.create_topic(target.bootstrap, topic)
    zstd = batch(TWO, attributes=4)
    assert put(target, topic, zstd, 6) is E.unsupported_compression_type
    assert put(target, topic, zstd, 7) is E.none
    assert put(target, topic, GOOD, 3) is E.none
    assert fetched(target, topic, 9).error_code is E.none
    compressed = unique("rules")
    clients.create_topic(target.bootstrap, compressed, configs={"compression.type": "zstd"})
    assert put(target, compressed, zstd) is E.none
    for fetch_version in (9, 10):
        assert fetched(target, compressed, fetch_version).error_code is E.none


@pytest.mark.parametrize("codec", range(len(COMPRESS)))
def test_batches_are_kept_as_they_came(target: BrokerHandle, unique: Callable[[str], str], codec: int) -> None:
    topic = unique("rules")
    clients.create_topic(target.bootstrap, topic)
    sent = batch(TWO, attributes=codec)
    assert put(target, topic, sent) is E.none
    kept = fetched(target, topic).records
    assert kept[16:] == sent[16:], "all but the base offset and the leader epoch"
