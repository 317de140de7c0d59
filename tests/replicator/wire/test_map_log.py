"""What stands in the map's topic: blocks and markers, and what anybody who may write there can put between them."""

from __future__ import annotations

from itertools import chain

import pytest

from kafka_records.batch import stamp
from kafka_records.control import marker
from kafka_records.fetched import read_batches
from kafka_records.records import encode
from replicator.model.partition import Partition
from replicator.offset_map.newest import MapItem, MapMarker, MapRecord
from replicator.offset_map.varints import BadBlock
from replicator.wire.map_log import BLOCK_BYTES_MAX, items_of
from tests.replicator.wire.logs import batch, old_message

AT = Partition("__eos.f.offsets", 3)


def items(data: bytes | bytearray, first: int = 0) -> list[MapItem]:
    return list(chain.from_iterable(items_of(AT, each, first) for each in read_batches(bytes(data))))


def test_blocks_and_markers() -> None:
    blocks = encode([(None, b"one"), (None, b"two")], 1_000, producer_id=7)
    ended = marker(7, 0, commit=True, timestamp_ms=1_000)
    stamp(ended, 2, 0)
    assert items(blocks + ended) == [MapRecord(7, b"one"), MapRecord(7, b"two"), MapMarker(7, True)]
    assert items(blocks, first=1) == [MapRecord(7, b"two")]
    assert items(blocks, first=2) == []


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_batch_that_is_too_large_decompressed_is_no_block(codec: str) -> None:
    bomb = batch(0, 0, codec=codec, size=BLOCK_BYTES_MAX + 1)
    assert len(bomb) < BLOCK_BYTES_MAX / 100
    with pytest.raises(BadBlock, match="offset 0"):
        items(bomb)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_an_old_format_is_no_block(magic: int) -> None:
    with pytest.raises(BadBlock, match="old format"):
        items(old_message(5, magic))
