"""OffsetFetch of many groups as it is written and read by hand, compared with kio's codecs."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from replicator.groups.ownership import GroupOffset
from replicator.wire import offset_fetch_groups as fetch
from replicator.wire.protocol import exchange, made
from replicator.wire.response_limits import BadResponse
from tests.budget import budget
from tests.replicator.wire.fake_broker import response

pytestmark = pytest.mark.tier("extended")

AT = 4 + 4 + 1 + 4  # behind size, correlation id, tagged fields, throttle time
METADATA = ("", "", "", None, "é", "m" * 200)
Groups = dict[str, tuple[int, dict[str, dict[int, fetch.PartitionValue]]]]


def sample(seed: int) -> tuple[bytes, Groups]:
    """A response, and what is in it. In half of them no partition has metadata."""
    draw = random.Random(seed)
    told, expected = list[dict[str, Any]](), Groups()
    for number in range(draw.randrange(4)):
        name, topics, values = f"g{number}" * draw.choice((1, 90)), [], dict[str, dict[int, fetch.PartitionValue]]()
        for each in range(draw.randrange(3)):
            topic = f"t{each}" * draw.choice((1, 80))
            rows = [
                (index, draw.randrange(-1, 2**62), draw.choice((-1, 9)), draw.choice(METADATA[: 6 - 3 * (seed % 2)]),
                 draw.choice((0, 0, 88)))
                for index in draw.sample(range(300), draw.choice((0, 1, 150)))
            ]  # fmt: skip
            words = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")
            topics.append({"name": topic, "partitions": [dict(zip(words, row, strict=True)) for row in rows]})
            values[topic] = {
                index: code or (GroupOffset(offset, said or "") if offset >= 0 else None)
                for index, offset, _, said, code in rows
            }
        code = draw.choice((0, 0, 16))
        told.append({"group_id": name, "topics": topics, "error_code": code})
        expected[name] = code, values
    return response(fetch.API, fetch.VERSION, 7, {"groups": told}), expected


@pytest.mark.parametrize("seed", range(budget(40, 2_000)))
def test_responses_are_read_as_kio_writes_them(seed: int) -> None:
    data, expected = sample(seed)
    found = fetch.read(data, AT)
    assert {name: (it.code, it.topics()) for name, it in found.items()} == expected


@pytest.mark.parametrize("stable", [True, False])
def test_requests_are_written_as_kio_writes_them(stable: bool) -> None:
    wanted = {"a": {"t": [0, 7, 300], "topic" * 40: [2**31 - 1], "none": []}, "all" * 50: None, "nothing": {}}
    codec = exchange(fetch.API, fetch.VERSION)
    groups = tuple(
        made(
            codec.types.OffsetFetchRequestGroup,
            group_id=group,
            topics=None
            if topics is None
            else tuple(
                made(codec.types.OffsetFetchRequestTopics, name=name, partition_indexes=tuple(numbers))
                for name, numbers in topics.items()
            ),
        )
        for group, topics in wanted.items()
    )
    assert fetch.request("me", wanted, stable=stable) == codec.write(
        0, "me", {"groups": groups, "require_stable": stable}
    )


@pytest.mark.parametrize("parity", [0, 1])
def test_a_response_that_is_cut_or_altered_is_refused_or_read_but_never_more(parity: int) -> None:
    seeds = range(parity, 400, 2)
    data = next(data for data in (sample(seed)[0] for seed in seeds) if 3_000 < len(data) < 9_000)
    for end in range(AT, len(data)):
        with pytest.raises(BadResponse):
            fetch.read(data[:end], AT)
    with pytest.raises(BadResponse):
        fetch.read(data + b"\0", AT)
    draw = random.Random(1)
    for _ in range(2_000):
        altered = bytearray(data)
        altered[draw.randrange(AT, len(data))] = draw.randrange(256)
        with suppress(BadResponse):
            for values in fetch.read(bytes(altered), AT).values():
                values.topics()  # what was read can be decoded


def test_tagged_fields_are_passed_over() -> None:
    """As of a version that is newer than this program (KIP-482)."""
    tag = b"\1\5\2ab"
    row = bytes(4) + (5).to_bytes(8, "big") + bytes(4) + b"\2m" + b"\0\0"
    plain = bytes(4) + (6).to_bytes(8, "big") + bytes(4) + b"\1" + b"\0\0"
    for rows in ((row + tag, plain + b"\0"), (plain + tag, plain + tag), (plain + tag, row + b"\0")):
        topic = b"\2t" + b"\3" + b"".join(rows) + tag
        found = fetch.read(b"\2" + b"\2g" + b"\2" + topic + b"\0\0" + tag + tag, 0)
        offsets = [GroupOffset(5, "m") if b"\2m" in it else GroupOffset(6) for it in rows]
        assert found["g"].topics() == {"t": {0: offsets[1]}}  # both rows are of partition 0
