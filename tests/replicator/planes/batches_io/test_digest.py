"""Which digest the batches plane gives a block, by what the target does with its batches."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import pytest
from blake3 import blake3

from kafka_records.batch import HEADER_BYTES, read_header
from kafka_records.fetched import FetchedBatch
from kafka_records.rebuild import recompressed
from kafka_records.records import Record, body_of
from replicator.model.checkpoint import DIGEST_KIND, OLD_PAYLOAD_DIGEST_KIND, PAYLOAD_DIGEST_KIND
from replicator.model.partition import Partition
from replicator.planes.batches_io.digest import Chains, DecodedChain, PayloadChain, fields_of
from replicator.planes.records.digest import canonical
from replicator.proof.last_block import BlockCheck, check_block
from replicator.proof.pairs import DigestBlock
from tests.kafka_records.batches import fetched

pytestmark = pytest.mark.tier("default")

AT, BEFORE = Partition("t", 0), "ab" * 16
GZIP, LZ4 = 1, 3
RECORDS = [Record(0, 1_000 + n, b"k%d" % n, b"value" * 20, ((b"h", b"%d" % n),)) for n in range(6)]


def anew(batches: Sequence[FetchedBatch], codec: int) -> list[FetchedBatch]:
    made = [recompressed(each.header, body_of(each.header, each.data), codec) for each in batches]
    return [FetchedBatch(read_header(data), memoryview(data)) for data in made]


def written(chains: Chains, batches: Sequence[FetchedBatch]) -> PayloadChain | DecodedChain:
    chain = chains.begun(AT, batches[0].header, BEFORE)
    for batch in batches:
        chains.look(AT, batch.header)
        chain.update(batch.header, batch.data)
    return chain


def checked(chain: PayloadChain | DecodedChain, there: Sequence[FetchedBatch]) -> BlockCheck:
    block = DigestBlock(40, 46, chain.kind, chain.hexdigest(), BEFORE, chain.codecs)
    return check_block(block, there, lambda: 0, compacted=False)


@pytest.mark.parametrize("target", ["producer", "lz4", None])
def test_a_target_that_keeps_batches_has_a_digest_of_them(target: str | None) -> None:
    batches = fetched(RECORDS[:4], RECORDS[4:])
    chain = written(Chains({AT: target} if target else {}), batches)
    assert chain.kind == PAYLOAD_DIGEST_KIND
    assert checked(chain, batches).verdict == "equal"
    assert checked(chain, anew(batches, GZIP)).verdict == "unverifiable"  # it was told to only now


def test_the_digest_is_what_the_formats_say() -> None:
    """Computed again by hand, with other libraries' words: whoever reads the target must be able to."""
    (batch,) = fetched(RECORDS)
    header = batch.header
    fixed = struct.pack(
        ">Biqqi", LZ4, header.last_offset_delta, header.base_timestamp, header.max_timestamp, header.record_count
    )
    data = bytes.fromhex(BEFORE) + fixed + bytes(batch.data)[HEADER_BYTES:]
    new, old = PayloadChain(BEFORE), PayloadChain(BEFORE, OLD_PAYLOAD_DIGEST_KIND)
    for chain in (new, old):
        chain.update(header, batch.data)
    assert new.hexdigest() == blake3(data).hexdigest(length=16)
    assert old.hexdigest() == hashlib.blake2b(data, digest_size=16).hexdigest()


def test_a_target_that_compresses_anew_has_a_digest_of_records() -> None:
    batches = fetched(RECORDS[:4], RECORDS[4:])
    chain = written(Chains({AT: "gzip"}), batches)
    assert chain.kind == DIGEST_KIND
    assert checked(chain, anew(batches, GZIP)).verdict == "equal"
    other = [RECORDS[0]._replace(value=b"other"), *RECORDS[1:4]]
    assert checked(chain, anew(fetched(other, RECORDS[4:]), GZIP)).verdict == "differs"


def test_after_a_batch_of_another_type_blocks_are_decoded() -> None:
    chains = Chains({AT: "gzip"})
    same, other = anew(fetched(RECORDS), GZIP), fetched(RECORDS)
    assert written(chains, same).kind == PAYLOAD_DIGEST_KIND
    mixed = written(chains, [*anew(fetched(RECORDS[:3]), GZIP), *fetched(RECORDS[3:], first=43)])
    assert mixed.kind == PAYLOAD_DIGEST_KIND
    there = anew(fetched(RECORDS[:3], RECORDS[3:]), GZIP)
    assert checked(mixed, there).verdict == "unverifiable"
    assert written(chains, same).kind == DIGEST_KIND
    assert written(Chains({AT: "uncompressed"}), other).kind == DIGEST_KIND


def test_a_batch_that_cannot_be_decoded_leaves_a_block_that_cannot_be_compared() -> None:
    (batch,) = fetched(RECORDS)
    broken = memoryview(bytes(batch.data[:HEADER_BYTES]) + bytes(len(batch.data) - HEADER_BYTES))
    chain = written(Chains({AT: "gzip"}), [FetchedBatch(batch.header, broken)])
    assert checked(chain, anew([batch], GZIP)).verdict == "unverifiable"


def test_a_header_key_that_is_no_utf_8_counts_with_its_bytes() -> None:
    keys = (b"a", b"\xff", b"\xfe", "\ufffd".encode())
    assert len({canonical([fields_of(Record(0, 1, None, None, ((key, None),)))]) for key in keys}) == len(keys)
