"""From fetched bytes to what is written: the records are those that a read_committed reader gets, whatever is done."""

from __future__ import annotations

import random
import resource
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_tests.harness import batches as raw
from kafka_records.batch import check_crc, read_header, stamp
from kafka_records.compression import ZSTD
from kafka_records.records import Record, decode
from kafka_records.small_batches import BATCH_BYTES_MAX, BYTES_MAX, SmallBatches
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.planes.batches import merge
from replicator.planes.batches.committed import FetchedRange, Selected, select
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.merge import BatchMerger, MergeLimits
from replicator.planes.batches.rewrite import ProducerIdentity, rewritten, why_decoded
from tests.budget import budget
from tests.kafka_records.batches import CODECS, by_aiokafka, with_right_crcs
from tests.replicator.planes.batches.logs import EPOCH, STEPS, Step, built, old_message, singly

pytestmark = pytest.mark.tier("default")

AT = Partition("orders", 3)
MIB = 2**20
INCOMPRESSIBLE = random.Random(1).randbytes(40_000)


def merged(
    selected: Sequence[Selected], limits: MergeLimits, drained: Sequence[int] = ()
) -> tuple[list[WritableBatch], Incident | None]:
    """All that is written of the batches; behind those in `drained` the source has nothing more."""
    merger, found = BatchMerger(AT, limits), list[WritableBatch]()
    for number, each in enumerate(selected):
        taken = merger.take(each)
        found += taken.batches
        if number in drained:
            found += merger.drain().batches
    last = merger.drain()
    return found + last.batches, last.refused


def written(batches: Sequence[WritableBatch]) -> list[Record]:
    """What the target's log has, with source offsets; each batch is one that a broker takes."""
    records, sequence = list[Record](), 0
    for batch in batches:
        made = b"".join(rewritten(batch.header, batch.data, ProducerIdentity(4, 2), sequence))
        check_crc(made)
        header = read_header(made)
        assert header.last_offset_delta + 1 == header.record_count == batch.records > 0
        assert why_decoded(header, len(made)) is None
        found = decode(made)
        assert [record.offset for record in found] == list(range(len(found)))
        assert header.max_timestamp >= max(record.timestamp_ms for record in found)
        offsets = [offset for first, end in batch.runs for offset in range(first, end)]
        records += [record._replace(offset=offset) for offset, record in zip(offsets, found, strict=True)]
        sequence += batch.records
    return records


@settings(max_examples=budget(60, 20_000), deadline=None)
@given(STEPS, st.data())
def test_what_is_written_is_what_a_reader_gets(steps: list[Step], data: st.DataObject) -> None:
    log = built(steps)
    start = data.draw(st.integers(0, log.end))
    found = select(FetchedRange(AT, start), log.fetch(start), log.aborted_from(start), log.stable)
    limits = MergeLimits(
        batch_bytes_max=data.draw(st.integers(200, 2_000) | st.just(100_000)),
        enough_bytes=data.draw(st.sampled_from([1, 200, 500, 10_000, 100_000])),
        small_records=data.draw(st.sampled_from([0, 1, 3, 100])),
        codec=data.draw(st.none() | st.sampled_from([0, 2, 3, 4])),
    )
    drained = data.draw(st.lists(st.integers(0, 9), max_size=3))
    batches, refused = merged(found.batches, limits, drained)
    assert refused is None
    assert written(batches) == [record for record in log.committed if record.offset >= start]
    assert all(len(batch.data) <= limits.batch_bytes_max for batch in batches)


def selected(*datas: bytes | bytearray, start: int = 0) -> list[Selected]:
    return select(FetchedRange(AT, start), b"".join(bytes(data) for data in datas), [], -1).batches


def at(offset: int, count: int = 2, codec: int = 0, value: bytes = b"v", append_time_ms: int | None = None) -> bytes:
    made = by_aiokafka([Record(0, 5 + number, b"k", value) for number in range(count)], codec)
    stamp(made, offset, EPOCH, append_time_ms)
    return bytes(made)


LIMITS = MergeLimits(batch_bytes_max=MIB)


def test_small_batches_become_one_and_a_large_one_is_passed_on_untouched() -> None:
    large = at(20, 100)
    batches, _ = merged(selected(at(0), at(2), at(7), large, at(120), at(122)), LIMITS)
    assert [batch.runs for batch in batches] == [((0, 4), (7, 9)), ((20, 120),), ((120, 124),)]
    assert bytes(batches[1].data) == large


def test_one_that_waited_alone_is_passed_on_untouched() -> None:
    batches, _ = merged(selected(at(5)), LIMITS)
    assert [bytes(batch.data) for batch in batches] == [at(5)]


def test_nothing_waits_longer_than_until_there_is_enough() -> None:
    limits = MergeLimits(MIB, enough_bytes=3 * len(at(0)))
    merger = BatchMerger(AT, limits)
    waiting = [len(merger.take(each).batches) for each in singly(selected(*(at(n) for n in range(0, 20, 2))))]
    assert waiting == [0, 0, 1] * 3 + [0]
    assert merger.waiting_bytes == len(at(0))
    assert [batch.runs for batch in merger.drain().batches] == [((18, 20),)]
    assert (merger.waiting_bytes, merger.drain().batches) == (0, [])


@pytest.mark.parametrize(
    ("first", "second"),
    [(at(0, codec=3), at(2, codec=4)), (at(0), at(2, append_time_ms=9)), (at(0), at(2, codec=1))],
    ids=["codec", "append time", "none and codec"],
)
def test_batches_of_other_kinds_are_not_merged(first: bytes, second: bytes) -> None:
    batches, _ = merged(selected(first, second), LIMITS)
    assert [batch.runs for batch in batches] == [((0, 2),), ((2, 4),)]
    assert batches[0].header.compression == read_header(first).compression
    assert batches[1].header.compression == read_header(second).compression


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_what_costs_more_to_merge_than_to_pass_on_is_passed_on(codec: int) -> None:
    """Plain batches are joined without touching records; compressed ones are decompressed and compressed again."""
    small, large = INCOMPRESSIBLE[:5_000], INCOMPRESSIBLE
    for value, together in ((small, True), (large, codec == 0)):
        pair = at(0, codec=codec, value=value), at(2, codec=codec, value=value[::-1])
        batches, _ = merged(selected(*pair), LIMITS)
        if together:
            assert [batch.runs for batch in batches] == [((0, 4),)]
        else:
            assert [bytes(batch.data) for batch in batches] == [*pair]


def test_a_large_batch_is_split_and_a_single_record_over_the_limit_is_named() -> None:
    values = [b"x" * 100] * 5 + [INCOMPRESSIBLE[:5_000]] + [b"z"] * 3
    made = by_aiokafka([Record(0, 5, None, value) for value in values])
    stamp(made, 40, EPOCH)
    batches, refused = merged(selected(made, at(49)), MergeLimits(1_000))
    assert written(batches) == decode(made)[:5]
    assert refused is not None
    assert (refused.name, refused.offset, refused.topic, refused.partition) == ("record_too_large", 45, *AT)
    batches, refused = merged(selected(made), MergeLimits(5_200))
    assert (written(batches), refused) == (decode(made), None)


def test_a_record_that_is_too_large_by_itself_is_compressed() -> None:
    made = by_aiokafka([Record(0, 5, None, value) for value in (b"x", b"y" * 5_000, b"z")])
    batches, refused = merged(selected(made), MergeLimits(1_000))
    assert (written(batches), refused) == (decode(made), None)
    assert [batch.header.compression for batch in batches] == [0, ZSTD, 0]


def test_times_that_are_too_far_apart_for_one_batch_stay() -> None:
    early, late = by_aiokafka([Record(0, -1, None, b"a")]), by_aiokafka([Record(0, 2**63 - 1, None, b"b")])
    stamp(late, 1, EPOCH)
    batches, _ = merged(selected(early, late), LIMITS)
    assert [record.timestamp_ms for record in written(batches)] == [-1, 2**63 - 1]
    beyond = raw.batch([raw.record(after_ms=2**62)], timestamp_ms=2**63 - 1, last_delta=4)
    refused = merged(selected(beyond), LIMITS)[1]
    assert refused is not None
    assert refused.name == "source_corrupt"


def test_after_a_refusal_nothing_else_is_taken() -> None:
    merger = BatchMerger(AT, MergeLimits(120, enough_bytes=1))
    (too_large, next_) = singly(selected(at(0, 1, value=INCOMPRESSIBLE[:200]), at(1)))
    refused = merger.take(too_large).refused
    assert refused is not None
    assert merger.take(next_) == merger.drain()
    assert (merger.drain().batches, merger.drain().refused) == ([], refused)


def test_records_that_are_not_what_the_header_says_stop_the_partition_behind_those_before() -> None:
    bad = raw.batch(body=b"\x02\x00", count=1, last_delta=4, base_offset=10)
    twice = raw.batch([raw.record(offset=1)] * 2, last_delta=4, base_offset=10)
    behind = raw.batch([raw.record(offset=5)], last_delta=4, base_offset=10)
    for data in (bad, twice, behind):
        batches, refused = merged(selected(at(0), data, at(15)), LIMITS)
        assert [batch.runs for batch in batches] == [((0, 2),)]
        assert refused is not None
        assert (refused.name, refused.offset) == ("source_corrupt", 10)


@pytest.mark.parametrize("count", [1, 200_000])
def test_a_bomb_takes_bounded_memory_and_is_named(count: int) -> None:
    """Of bytes, and of records: the smallest have seven bytes."""
    body = raw.record(b"\0" * 60 * MIB) if count == 1 else raw.record(None, None) * count
    bomb = raw.batch(body=raw.COMPRESS[ZSTD](body), attributes=ZSTD, count=count, last_delta=count, base_offset=10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = MergeLimits(MIB, decoded_bytes_max=MIB)
    batches, refused = merged(selected(at(0), bomb), limits)
    assert [batch.runs for batch in batches] == [((0, 2),)]
    assert refused is not None
    assert (refused.name, refused.offset) == ("record_too_large", 10)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 * 1024


def test_many_small_bombs_are_decoded_a_few_at_a_time() -> None:
    datas = [at(number, 1, ZSTD, bytes(MIB // 4)) for number in range(30)]
    batches, refused = merged(selected(*datas), MergeLimits(MIB, decoded_bytes_max=MIB))
    assert refused is None
    assert [batch.records for batch in batches] == [3] * 10
    assert [record.offset for record in written(batches)] == list(range(30))


OLD_TIMES = {0: [-1, -1, -1], 1: [5, 7, 6]}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", range(4))
def test_messages_of_old_formats_are_decoded(magic: int, codec: int) -> None:
    """Compressed ones of v1 count from the first; compaction has taken one out of the middle."""
    base = 0 if magic and codec else 20
    inner = [
        old_message(base + place, magic, b"v%d" % place, key=b"k", time_ms=time_ms)
        for place, time_ms in zip((0, 1, 3), OLD_TIMES[magic], strict=True)
    ]
    data = b"".join(inner)
    if codec:
        data = old_message(23, magic, raw.COMPRESS[codec](data), time_ms=7, attributes=codec)
    batches, refused = merged(selected(data, at(24)), LIMITS)
    assert refused is None
    wanted = [
        Record(20 + place, time_ms, b"k", b"v%d" % place)
        for place, time_ms in zip((0, 1, 3), OLD_TIMES[magic], strict=True)
    ]
    assert written(batches) == [*wanted, *decode(at(24))]
    assert batches[0].header.compression == codec
    assert written(merged(selected(data, start=21), LIMITS)[0]) == wanted[1:]


def test_the_time_of_an_outer_message_is_that_of_the_inner_ones_if_the_broker_gave_it() -> None:
    inner = old_message(0, 1, b"v", time_ms=5)
    data = old_message(9, 1, raw.COMPRESS[1](inner), time_ms=777, attributes=0x09)
    assert written(merged(selected(data), LIMITS)[0]) == [Record(9, 777, None, b"v")]


INNER = old_message(0, 1, b"v", time_ms=5)
BROKEN_OLD = {
    "CRC": INNER[:-1] + b"w",
    "no value": old_message(9, 1, None, attributes=1),
    "not compressed": old_message(9, 1, b"no such thing", attributes=1),
    "empty": old_message(9, 1, raw.COMPRESS[1](b""), attributes=1),
    "two levels": old_message(9, 1, raw.COMPRESS[1](old_message(0, 1, INNER, attributes=1)), attributes=1),
    "another format": old_message(9, 1, raw.COMPRESS[1](old_message(0, 0, b"v")), attributes=1),
    "cut": old_message(9, 1, raw.COMPRESS[1](INNER[:-1]), attributes=1),
    "a few bytes more": old_message(9, 1, raw.COMPRESS[1](INNER + b"\0"), attributes=1),
}


@pytest.mark.parametrize("data", BROKEN_OLD.values(), ids=BROKEN_OLD)
def test_a_broken_old_message_stops_the_partition(data: bytes) -> None:
    batches, refused = merged(selected(data), LIMITS)
    assert batches == []
    assert refused is not None
    assert (refused.name, refused.offset) == ("source_corrupt", int.from_bytes(data[:8], "big"))


def test_a_bomb_of_old_messages_is_named() -> None:
    many = old_message(9, 1, raw.COMPRESS[1](INNER * 20_000), attributes=1)
    large = old_message(9, 1, raw.COMPRESS[1](bytes(9 * MIB)), attributes=1)
    for data in (many, large):
        _, refused = merged(selected(data), MergeLimits(MIB, decoded_bytes_max=MIB))
        assert refused is not None
        assert refused.name == "record_too_large"


SEEDS = [
    at(10, 3, 1) + at(13, 2) + at(15, 4, ZSTD, append_time_ms=7),
    old_message(10, 1, raw.COMPRESS[3](INNER), time_ms=7, attributes=3) + old_message(11, 0, b"v") + at(12),
]


@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=6)), max_size=6),
    st.integers(0, 20),
)
@settings(max_examples=budget(60, 200_000), deadline=None)
def test_any_bytes_are_written_as_sound_batches_or_refused(
    seed: bytes, changes: list[tuple[int, bytes]], start: int
) -> None:
    """With right CRCs, so that more than the CRC is tried."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = bytearray(seed)
    for place, value in changes:
        made[place : place + len(value)] = value
    found = select(FetchedRange(AT, start), with_right_crcs(bytes(made)), [], -1)
    batches, refused = merged(found.batches, MergeLimits(500, decoded_bytes_max=MIB))
    offsets = [offset for batch in batches for first, end in batch.runs for offset in (first, end - 1)]
    assert offsets == sorted(offsets)
    assert all(start <= offset < found.next_offset for offset in offsets)
    for stop in (found.refused, refused):
        assert stop is None or (stop.name in ("source_corrupt", "record_too_large") and stop.offset >= start)
    for batch in batches:
        check_crc(b"".join(rewritten(batch.header, batch.data, ProducerIdentity(4, 2), 0)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60 * 1024


@pytest.mark.parametrize("codec", [0, 2, ZSTD])
def test_usual_batches_are_joined_without_decoding_their_records(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_decoded(*_: object) -> None:
        raise AssertionError("records were decoded")

    monkeypatch.setattr(merge, "wanted_records", not_decoded)
    batches, refused = merged(selected(*(at(n, 2, codec, b"%d" % n) for n in range(0, 20, 2))), LIMITS)
    assert refused is None
    assert [(batch.runs, batch.header.compression) for batch in batches] == [(((0, 20),), codec)]
    assert [record.value for record in written(batches)] == [b"%d" % (n // 2 * 2) for n in range(20)]


def test_what_is_too_large_together_is_joined_by_halves() -> None:
    made = [at(n, 2, 0, INCOMPRESSIBLE[:100]) for n in range(0, 16, 2)]
    batches, refused = merged(selected(*made), MergeLimits(500))
    assert refused is None
    assert len(batches) == 8
    assert bytes(batches[0].data) == made[0]
    batches, _ = merged(selected(*made), MergeLimits(600))
    assert [batch.runs for batch in batches] == [((n, n + 4),) for n in range(0, 16, 4)]


def test_what_is_read_together_is_written_together_and_told_where_it_is_broken() -> None:
    small, broken = [at(n, 2, 0, b"%d" % n) for n in range(0, 20, 2)], raw.batch([raw.record(length=1)])
    (few,) = selected(*small)
    assert isinstance(few, SmallBatches)
    batches, refused = merged([few], LIMITS)
    assert ([batch.runs for batch in batches], refused) == ([((0, 20),)], None)
    assert written(batches) == [record for batch in small for record in decode(batch)]
    bad = bytearray(broken)
    stamp(bad, 4, EPOCH)
    (few,) = selected(*small[:2], bad, at(5))
    batches, refused = merged([few], LIMITS)
    assert refused is not None
    assert (refused.name, refused.offset, [batch.runs for batch in batches]) == ("source_corrupt", 4, [((0, 4),)])


def test_what_is_read_together_and_too_large_is_written_by_halves() -> None:
    limits = MergeLimits(BYTES_MAX + BATCH_BYTES_MAX)
    made = [at(n, 2, 0, INCOMPRESSIBLE[:5_000]) for n in range(0, 60, 2)]
    found = selected(*made)
    assert all(isinstance(each, SmallBatches) for each in found)
    batches, refused = merged(found, limits)
    assert refused is None
    assert all(len(batch.data) <= limits.batch_bytes_max for batch in batches)
    assert len(batches) < 10
    assert written(batches) == [record for batch in made for record in decode(batch)]
