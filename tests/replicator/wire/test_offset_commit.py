"""OffsetCommit as it is written and read by hand, compared with kio's codecs."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from replicator.groups.decision import OffsetToCommit
from replicator.wire import offset_commit
from replicator.wire.protocol import exchange, made
from replicator.wire.response_limits import BadResponse
from tests.budget import budget
from tests.replicator.wire.fake_broker import response

pytestmark = pytest.mark.tier("default")

AT = 4 + 4 + 1 + 4  # behind size, correlation id, tagged fields, throttle time


def sample(seed: int) -> tuple[bytes, dict[str, dict[int, int]]]:
    draw = random.Random(seed)
    expected = {
        f"t{number}" * draw.choice((1, 80)): {
            index: draw.choice((0, 0, 25)) for index in draw.sample(range(300), draw.choice((0, 1, 200)))
        }
        for number in range(draw.randrange(4))
    }
    told = [
        {"name": name, "partitions": [{"partition_index": at, "error_code": code} for at, code in codes.items()]}
        for name, codes in expected.items()
    ]
    return response(offset_commit.API, offset_commit.VERSION, 7, {"topics": told}), expected


@pytest.mark.parametrize("seed", range(budget(40, 2_000)))
def test_responses_are_read_as_kio_writes_them(seed: int) -> None:
    data, expected = sample(seed)
    assert offset_commit.read(data, AT) == expected


@pytest.mark.parametrize("seed", range(budget(20, 1_000)))
def test_requests_are_written_as_kio_writes_them(seed: int) -> None:
    draw = random.Random(seed)
    offsets = {
        f"t{number}" * draw.choice((1, 60)): {
            at: OffsetToCommit(draw.randrange(2**62), draw.choice(("", "é", "m" * 300)), draw.choice((-1, 7)))
            for at in draw.sample(range(300), draw.choice((0, 1, 150)))
        }
        for number in range(draw.randrange(3))
    }
    codec = exchange(offset_commit.API, offset_commit.VERSION)
    topics = tuple(
        made(
            codec.types.OffsetCommitRequestTopic,
            name=name,
            partitions=tuple(
                made(
                    codec.types.OffsetCommitRequestPartition,
                    partition_index=at,
                    committed_offset=it.offset,
                    committed_leader_epoch=it.leader_epoch,
                    committed_metadata=it.metadata,
                )
                for at, it in values.items()
            ),
        )
        for name, values in offsets.items()
    )
    fields = {"group_id": "g" * 99, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    written = codec.write(0, "me", {**fields, "topics": topics})
    assert offset_commit.request("me", "g" * 99, offsets) == written


def test_a_response_that_is_cut_or_altered_is_refused_or_read_but_never_more() -> None:
    data = next(data for data in (sample(seed)[0] for seed in range(99)) if 300 < len(data) < 9_000)
    for end in range(AT, len(data)):
        with pytest.raises(BadResponse):
            offset_commit.read(data[:end], AT)
    draw = random.Random(1)
    for _ in range(2_000):
        altered = bytearray(data)
        altered[draw.randrange(AT, len(data))] = draw.randrange(256)
        with suppress(BadResponse):
            offset_commit.read(bytes(altered), AT)


def test_tagged_fields_are_passed_over() -> None:
    """As of a version that is newer than this program (KIP-482)."""
    tag = b"\1\5\2ab"
    rows = (b"\0\0\0\1" + b"\0\0" + tag) + (b"\0\0\0\2" + b"\0\x19" + b"\0")
    assert offset_commit.read(b"\2" + b"\2t" + b"\3" + rows + tag + tag, 0) == {"t": {1: 0, 2: 25}}
