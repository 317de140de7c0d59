"""Small batches that are read together are those that are read one by one; what isn't as usual is none of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_tests.harness import batches as raw
from kafka_records.batch import CorruptBatch, read_header, stamp
from kafka_records.control import marker
from kafka_records.fetched import FetchedBatch, OldMessage, read_batches, read_together
from kafka_records.records import Record
from kafka_records.small_batches import BATCH_BYTES_MAX, BYTES_MAX, RECORDS_MAX, SmallBatches
from tests.budget import budget
from tests.kafka_records.batches import by_aiokafka, with_right_crcs

pytestmark = pytest.mark.tier("default")

END = 2**63 - 1
Read = FetchedBatch | OldMessage | SmallBatches


def at(offset: int, count: int = 2, codec: int = 0, value: bytes = b"v", epoch: int = 3, **header: int) -> bytes:
    made = by_aiokafka([Record(0, 5 + number, b"k", value) for number in range(count)], codec, **header)
    stamp(made, offset, epoch)
    return bytes(made)


def together(data: bytes, offset_min: int = 0, offset_end: int = END) -> list[list[int]]:
    """First offsets of the batches that are read together; a list of its own for each object."""
    found: list[list[int]] = []
    for each in read_together(data, offset_min, offset_end):
        datas = each.batches() if isinstance(each, SmallBatches) else [each.data]
        found.append([int.from_bytes(one[:8], "big") for one in datas])
    return found


def until_broken(reading: Iterator[Read]) -> tuple[list[Read], tuple[str, int] | None]:
    """What is read, and what is said of the batch behind that."""
    found: list[Read] = []
    try:
        for each in reading:
            found.append(each)
    except CorruptBatch as error:
        return found, (str(error), error.offset)
    return found, None


def datas(found: list[Read]) -> list[bytes]:
    """The bytes of each batch."""
    made: list[bytes] = []
    for each in found:
        made += map(bytes, each.batches()) if isinstance(each, SmallBatches) else [bytes(each.data)]
    return made


IN_TRANSACTION = at(24, is_transactional=1, producer_id=1, producer_epoch=0, base_sequence=0)
SOUND = b"".join(at(offset) for offset in range(10, 20, 2)) + at(20, 1, 2) + at(21, 3) + IN_TRANSACTION


@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.binary(min_size=1, max_size=3)), max_size=4),
    st.booleans(),
    st.integers(0, len(SOUND)),
    st.sampled_from([0, 10, 11, 12, 25]),
    st.sampled_from([0, 11, 12, 13, 21, END]),
)
@settings(max_examples=budget(200, 200_000), deadline=None)
def test_the_same_is_read_together_as_one_by_one(
    changes: list[tuple[int, bytes]], right: bool, size: int, offset_min: int, offset_end: int
) -> None:
    made = bytearray(SOUND)
    for place, value in changes:
        made[place : place + len(value)] = value
    data = (with_right_crcs(bytes(made)) if right else bytes(made))[:size]
    found, broken = until_broken(read_together(data, offset_min, offset_end))
    one_by_one, wanted = until_broken(read_batches(data))
    assert (datas(found), broken) == (datas(one_by_one), wanted)
    for each in found:
        if isinstance(each, SmallBatches):
            headers = [read_header(one) for one in each.batches()]
            assert offset_min <= each.first_offset < each.next_offset <= offset_end
            assert [header.record_count for header in headers] == [row[0] for row in each.rows]
            assert headers[-1].last_offset + 1 == each.next_offset
            assert max(0, *(header.max_timestamp for header in headers)) == each.max_timestamp
            assert {header.leader_epoch for header in headers} == {each.leader_epoch}


def stamped(made: bytes | bytearray, append_time_ms: int | None = None) -> bytes:
    """As it stands in the log behind two batches of two records."""
    batch = bytearray(made)
    stamp(batch, 4, 3, append_time_ms)
    return bytes(batch)


UNUSUAL = {
    "a marker": stamped(marker(1, 0, commit=True, timestamp_ms=5)),
    "compressed": at(4, codec=3),
    "times of the broker": stamped(at(4), 9),
    "many records": at(4, RECORDS_MAX + 1),
    "large": at(4, 1, value=bytes(BATCH_BYTES_MAX)),
    "compacted": stamped(raw.batch([raw.record(), raw.record(offset=2)], last_delta=2)),
    "emptied": stamped(raw.batch(last_delta=1)),
    "a delete horizon": stamped(raw.batch([raw.record()], attributes=0x40)),
}
FOLLOWING = {"a gap before it": at(5), "another leader epoch": at(4, epoch=4)}


@pytest.mark.parametrize("data", (UNUSUAL | FOLLOWING).values(), ids=UNUSUAL | FOLLOWING)
def test_what_is_not_as_usual_is_read_apart(data: bytes) -> None:
    assert together(at(0) + at(2) + at(4)) == [[0, 2, 4]]
    (first, second, *_) = together(at(0) + at(2) + data + at(100))
    assert (first, second[0]) == ([0, 2], int.from_bytes(data[:8], "big"))
    (alone,) = read_together(data, 0, END)
    assert isinstance(alone, SmallBatches) == (data in FOLLOWING.values())


def test_another_format_is_left_to_whoever_knows_it() -> None:
    for magic, refused in ((1, None), (3, ("magic 3", 4))):
        other = bytearray(at(4))
        other[16] = magic  # the CRC doesn't cover it
        found, broken = until_broken(read_together(at(0) + at(2) + bytes(other), 0, END))
        assert [type(each) for each in found[1:]] == ([OldMessage] if magic == 1 else [])
        assert (found[0].data.nbytes, broken) == (2 * len(at(0)), refused)


def test_they_lie_between_two_offsets() -> None:
    data = at(0) + at(2) + at(4) + at(6)
    assert together(data) == [[0, 2, 4, 6]]
    assert together(data, 1) == [[0], [2, 4, 6]]
    assert together(data, 2, 6) == [[0], [2, 4], [6]]
    assert together(data, 0, 5) == [[0, 2], [4], [6]]


def test_only_so_many_bytes_are_kept_together() -> None:
    value = bytes(BATCH_BYTES_MAX - 200)
    data = b"".join(at(offset, 1, value=value) for offset in range(12))
    found = [each for each in read_together(data, 0, END) if isinstance(each, SmallBatches)]
    assert [len(each.rows) for each in found] == [5, 5, 2]
    assert all(BYTES_MAX <= each.size_bytes < BYTES_MAX + BATCH_BYTES_MAX for each in found[:2])


def test_they_are_cut_behind_a_batch() -> None:
    (few,) = read_together(at(10) + at(12, 3) + at(15, 1), 0, END)
    assert isinstance(few, SmallBatches)
    for records, (first, rest) in {1: (2, 4), 2: (2, 4), 3: (5, 1), 5: (5, 1)}.items():
        before, behind = few.cut(records)
        assert behind is not None
        assert (before.first_offset, before.records, behind.first_offset, behind.records) == (
            10,
            first,
            10 + first,
            rest,
        )
        assert [*map(bytes, before.batches()), *map(bytes, behind.batches())] == [*map(bytes, few.batches())]
        assert (before.size_bytes + behind.size_bytes, behind.next_offset) == (few.size_bytes, 16)
    assert few.cut(6) == (few, None)
