"""ListOffsets as it is written and read by hand, compared with kio's codecs."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta

import pytest

from replicator.wire import list_offsets
from replicator.wire.protocol import exchange
from replicator.wire.response_limits import BadResponse
from tests.replicator.wire.fake_broker import response


def sample(version: int, seed: int) -> tuple[bytes, list[list_offsets.Answer]]:
    draw = random.Random(seed)
    told, expected = [], []
    for number in range(draw.randrange(4)):
        name = f"t{number}" * draw.choice((1, 80))
        rows = [
            (index, draw.choice((0, 6)), draw.choice((-1, 2**40)), draw.randrange(2**62), draw.randrange(9))
            for index in range(draw.choice((0, 1, 200)))
        ]
        words = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")
        told.append({"name": name, "partitions": [dict(zip(words, row, strict=True)) for row in rows]})
        expected += [(name, *row[:4]) for row in rows]
    return response("list_offsets", version, 7, {"topics": told}), expected


@pytest.mark.parametrize("version", range(list_offsets.VERSIONS[0], list_offsets.VERSIONS[1] + 1))
@pytest.mark.parametrize("seed", range(10))
def test_responses_are_read_as_kio_writes_them(version: int, seed: int) -> None:
    data, expected = sample(version, seed)
    assert list_offsets.read(data, 4 + 4 + 1 + 4) == expected


@pytest.mark.parametrize("version", range(list_offsets.VERSIONS[0], list_offsets.VERSIONS[1] + 1))
def test_requests_are_written_as_kio_writes_them(version: int) -> None:
    asked = {"a": [(0, 5), (7, -1)], "topic" * 40: [(300, 2**31 - 1)]}
    codec = exchange("list_offsets", version)
    topics = tuple(
        codec.types.ListOffsetsTopic(
            name=name,
            partitions=tuple(
                codec.types.ListOffsetsPartition(partition_index=at, current_leader_epoch=epoch, timestamp=-3)
                for at, epoch in rows
            ),
        )
        for name, rows in asked.items()
    )
    fields = {"replica_id": -1, "isolation_level": 1, "timeout": timedelta(seconds=5), "topics": topics}
    assert list_offsets.request("me", version, asked, -3, stable=True) == codec.write(0, "me", fields)


@pytest.mark.tier("default")
def test_a_response_that_is_cut_or_altered_is_refused_or_read_but_never_more() -> None:
    data = next(data for data in (sample(8, seed)[0] for seed in range(99)) if 300 < len(data) < 9_000)
    for end in range(13, len(data)):
        with pytest.raises(BadResponse):
            list_offsets.read(data[:end], 13)
    draw = random.Random(1)
    for _ in range(500):
        altered = bytearray(data)
        altered[draw.randrange(13, len(data))] = draw.randrange(256)
        with suppress(BadResponse):
            list_offsets.read(bytes(altered), 13)
