"""What the handlers of the classic protocol refuse before a group is asked, and members that an admin takes out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.embedded_broker.api.test_consumer_groups import beat, describe
from tests.embedded_broker.served import serving


@pytest.mark.parametrize(("protocol_type", "name"), [(None, "range"), ("consumer", None)])
def test_a_sync_must_name_its_protocol(tmp_path: Path, protocol_type: str | None, name: str | None) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            fields: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
            fields |= {"protocol_type": protocol_type, "protocol_name": name, "assignments": []}
            answer = await client.call("sync_group", 5, **fields)
            assert answer.error_code is ErrorCode.inconsistent_group_protocol

    asyncio.run(main())


def test_only_a_valid_commit_renews_the_session_of_its_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            asked = {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 10_000}
            asked |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
            joined = await client.call("join_group", 3, member_id="", **asked)
            who = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
            mine = [{"member_id": joined.member_id, "assignment": b""}]
            assert (await client.call("sync_group", 2, **who, assignments=mine)).error_code is ErrorCode.none
            renewed: list[str] = []
            monkeypatch.setattr(
                served.broker.groups.classic, "touch", lambda group_id, member_id: renewed.append(member_id)
            )
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
            for ahead, expected in ((1, ErrorCode.illegal_generation), (0, ErrorCode.none)):
                claim = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id + ahead}
                answer = await client.call("offset_commit", 6, group_id="g", **claim, topics=topics)
                assert answer.topics[0].partitions[0].error_code is expected
                assert renewed == [joined.member_id] * (1 - ahead)

    asyncio.run(main())


def test_an_admin_takes_members_out_of_a_consumer_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            await beat(client)
            await beat(client, "s", instance_id="i")
            leaving = [("zz", None), ("a", None), ("a", "i"), ("", "i"), ("", "i")]
            members = [{"member_id": member, "group_instance_id": instance} for member, instance in leaving]
            answer = await client.call("leave_group", 5, group_id="g", members=members)
            assert [each.error_code for each in answer.members] == [
                ErrorCode.unknown_member_id,
                ErrorCode.none,
                ErrorCode.fenced_instance_id,
                ErrorCode.none,
                ErrorCode.unknown_member_id,
            ]
            assert (await describe(client)).group_state == "Empty"
            assert (await beat(client, epoch=1)).error_code is ErrorCode.unknown_member_id

    asyncio.run(main())
