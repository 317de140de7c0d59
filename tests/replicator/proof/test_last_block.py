"""The last block of a position: what its digest proves, what it contradicts, and when it can't be compared."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kafka_records.batch import read_header, stamp
from kafka_records.fetched import FetchedBatch
from kafka_records.rebuild import recompressed
from kafka_records.records import Record, body_of
from replicator.model.checkpoint import DIGEST_KIND, DIGEST_UNTOLD, OLD_PAYLOAD_DIGEST_KIND, PAYLOAD_DIGEST_KIND
from replicator.planes.batches_io.digest import PayloadChain
from replicator.planes.records.digest import Chain
from replicator.proof.last_block import BlockCheck, check_block
from replicator.proof.pairs import DigestBlock
from tests.kafka_records.batches import fetched

pytestmark = pytest.mark.tier("default")

BEFORE = "ab" * 16
RECORDS = [Record(0, 1_000 + n, b"k%d" % n, b"value" * 20, ((b"h", b"%d" % n),)) for n in range(6)]


def again(batch: FetchedBatch, codec: int) -> FetchedBatch:
    data = recompressed(batch.header, body_of(batch.header, batch.data), codec)
    return FetchedBatch(read_header(data), memoryview(data))


def appended(batch: FetchedBatch, time_ms: int) -> FetchedBatch:
    """As a topic with LogAppendTime keeps it."""
    data = bytearray(batch.data)
    stamp(data, batch.header.base_offset, 1, time_ms)
    return FetchedBatch(read_header(data), memoryview(data))


WRITTEN = fetched(RECORDS[:4], RECORDS[4:])


def block(kind: str, before: str = BEFORE) -> DigestBlock:
    if kind == DIGEST_KIND:
        chain = Chain(BEFORE)
        chain.update(
            (one.key, one.value, one.timestamp_ms, [(name.decode(), value) for name, value in one.headers])
            for one in RECORDS
        )
        return DigestBlock(40, 46, kind, chain.hexdigest(), before, 0)
    payload = PayloadChain(BEFORE, kind)
    for batch in WRITTEN:
        payload.update(batch.header, batch.data)
    return DigestBlock(40, 46, kind, payload.hexdigest(), before, payload.codecs)


@dataclass
class Case:
    there: list[FetchedBatch]
    records: str
    batches: str
    compacted: bool = False
    log_start: int = 0


OTHER = [RECORDS[0]._replace(value=b"other"), *RECORDS[1:4]]
CASES = {
    "as written": Case(WRITTEN, "equal", "equal"),
    "another value": Case(fetched(OTHER, RECORDS[4:]), "differs", "differs"),
    "another value, compacted": Case(fetched(OTHER, RECORDS[4:]), "unverifiable", "unverifiable", compacted=True),
    "one record fewer": Case(fetched(RECORDS[:4], RECORDS[4:5]), "differs", "differs"),
    "nothing": Case([], "differs", "differs"),
    "compressed anew": Case([again(batch, 4) for batch in WRITTEN], "equal", "unverifiable"),
    "one of them": Case([WRITTEN[0], again(WRITTEN[1], 0)], "equal", "unverifiable"),
    "with times of its own": Case([appended(batch, 9_000) for batch in WRITTEN], "unverifiable", "unverifiable"),
    "with times of its own, one fewer": Case([appended(WRITTEN[0], 9_000)], "differs", "differs"),
    "expired": Case(WRITTEN[1:], "unverifiable", "unverifiable", log_start=44),
    "compacted": Case(WRITTEN[1:], "unverifiable", "unverifiable", compacted=True),
}


def checked(kind: str, case: Case, before: str = BEFORE) -> BlockCheck:
    return check_block(block(kind, before), case.there, lambda: case.log_start, compacted=case.compacted)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_said_of_a_block(case: Case) -> None:
    assert checked(DIGEST_KIND, case).verdict == case.records
    assert checked(PAYLOAD_DIGEST_KIND, case).verdict == case.batches
    assert checked(OLD_PAYLOAD_DIGEST_KIND, case).verdict == case.batches


@pytest.mark.parametrize("kind", [DIGEST_KIND, PAYLOAD_DIGEST_KIND])
def test_a_position_of_an_older_version_says_too_little(kind: str) -> None:
    assert checked(kind, CASES["another value"], DIGEST_UNTOLD).verdict == "unverifiable"


def test_records_of_others_around_the_block_are_no_part_of_it() -> None:
    """Compaction may leave batches that reach beyond it; elsewhere there are none."""
    around = fetched([RECORDS[5], *RECORDS[:4]], [*RECORDS[4:], RECORDS[0]], first=39)
    case = Case(around, "equal", "differs")
    assert checked(DIGEST_KIND, case).verdict == "equal"
    assert checked(PAYLOAD_DIGEST_KIND, case).verdict == "differs"


def test_a_highest_time_before_1970_is_one_that_brokers_keep_as_none() -> None:
    """Kafka keeps -1 in place of a lower one; the records have their own times."""
    (batch,) = fetched([RECORDS[0]])
    digests = set()
    for time_ms in (-5_000, -1):
        chain = PayloadChain(BEFORE)
        chain.update(batch.header._replace(max_timestamp=time_ms), batch.data)
        digests.add(chain.hexdigest())
    assert len(digests) == 1
