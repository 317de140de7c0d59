"""Commits for thousands of partitions: others have their turn meanwhile, and of what is named again the last counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from tests.embedded_broker.served import serving

PARTITIONS, METADATA_MAX = 1_000, 4_096


def _commit(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "t", "partitions": partitions}],
    }


def _offset(index: int, offset: int, metadata: str = "") -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}


def test_others_have_their_turn_during_a_commit_of_many_partitions(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", PARTITIONS)
            client = await served.client()
            before = served.broker.fair_share.turns
            answer = await client.call("offset_commit", 8, **_commit(*(_offset(n, n) for n in range(PARTITIONS))))
            assert served.broker.fair_share.turns - before >= 20
            assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.none}
            fetched = served.broker.groups.offsets.fetch("g", None, True)
            assert {index: found.offset for (_, index), found in fetched.items()} == {n: n for n in range(PARTITIONS)}

    asyncio.run(main())


def test_of_a_partition_that_is_named_again_the_last_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 2)
            client = await served.client()
            too_large = "m" * (METADATA_MAX + 1)
            asked = (_offset(0, 5), _offset(1, 6, too_large), _offset(0, 7), _offset(2, 8), _offset(1, 9))
            answer = await client.call("offset_commit", 8, **_commit(*asked))
            unknown = ErrorCode.unknown_topic_or_partition
            found = [(each.partition_index, each.error_code) for each in answer.topics[0].partitions]
            none = ErrorCode.none
            assert found == [(0, none), (1, none), (0, none), (2, unknown), (1, none)]
            fetched = served.broker.groups.offsets.fetch("g", None, True)
            assert {index: each.offset for (_, index), each in fetched.items()} == {0: 7, 1: 9}
            await client.call("offset_commit", 8, **_commit(_offset(0, 10, too_large)))
            assert served.broker.groups.offsets.fetch("g", [("t", 0)], True)["t", 0].offset == 7

    asyncio.run(main())
