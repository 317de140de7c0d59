"""Commits for thousands of partitions: others have their turn meanwhile, and of what is named again the last counts."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.embedded_broker.served import Served, change, serving

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


def _create_again_in_the_next_turn(served: Served) -> None:
    """Have the topic deleted and created by others, who have their turn next."""
    fair, topics = served.broker.fair_share, served.broker.topics

    async def next_turn() -> None:
        fair.next_turn = usual  # type: ignore[method-assign]
        deleted = topics.get("t")
        assert deleted is not None
        await change(served.broker, lambda: topics.delete(deleted))
        await served.topic("t", PARTITIONS)

    usual = fair.next_turn
    fair.next_turn = next_turn  # type: ignore[method-assign]


@pytest.mark.parametrize("version", [8, 10])
def test_offsets_of_a_topic_that_is_created_again_meanwhile_are_not_those_of_the_new_one(
    tmp_path: Path, version: int
) -> None:
    """A reader of the new topic would begin behind its first records."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", PARTITIONS)
            client, topic = await served.client(), served.broker.topics.get("t")
            assert topic is not None
            before = topic.topic_id
            asked = _commit(*(_offset(n, n) for n in range(PARTITIONS)))
            if version == 10:
                asked["topics"][0]["topic_id"] = before
            _create_again_in_the_next_turn(served)
            answer = await client.call("offset_commit", version, **asked)
            assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.unknown_topic_or_partition}
            assert served.broker.groups.offsets.fetch("g", None, True) == {}
            again = served.broker.topics.get("t")
            assert again is not None
            assert again.topic_id not in (before, uuid.UUID(int=0))

    asyncio.run(main())
