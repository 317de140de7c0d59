"""What the members are subscribed to is found out once for a group, however many offsets it has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.offsets import Committer
from embedded_broker.state import rebalance
from embedded_broker.state.consumer_protocol import subscribed_topics
from embedded_broker.state.owners import Owner
from embedded_broker.state.subscriptions import Subscriptions
from tests.embedded_broker.api.test_consumer_groups import beat, commit, fetch
from tests.embedded_broker.coordinators import members
from tests.embedded_broker.coordinators.memory_host import MemoryHost
from tests.embedded_broker.coordinators.test_expiry import AT_ONCE, SUBSCRIBED_TO_T, offset, sweep
from tests.embedded_broker.served import serving

MEMBERS = 3


def test_a_sweep_reads_each_members_subscription_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def counting(metadata: bytes) -> frozenset[str]:
        read.append(metadata)
        return subscribed_topics(metadata)

    monkeypatch.setattr(rebalance, "subscribed_topics", counting)

    async def run(host: MemoryHost) -> None:
        owners = [Owner("h", number) for number in range(MEMBERS)]
        joining = (members.join(host, owner=owner, metadata=SUBSCRIBED_TO_T) for owner in owners)
        answers = await asyncio.gather(*joining)
        await asyncio.gather(*(members.sync(host, each, {each.member_id: b""}) for each in answers))
        who = Committer("g", answers[0].member_id, None, answers[0].generation)
        for partition in (members.P0, members.P1):
            await members.commit(host, 5, who, partition=partition)
        read.clear()
        await sweep(host)
        assert [offset(host, each) for each in (members.P0, members.P1)] == [5, 5]
        assert len(read) == MEMBERS

    members.scenario(run, AT_ONCE)


def test_an_offset_delete_asks_once_and_lets_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    names = Subscriptions.names

    def counting(self: Subscriptions, members: Any) -> frozenset[str]:
        asked.append(members)
        return names(self, members)

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 2)
            await served.topic("u")
            client = await served.client()
            await beat(client)
            await commit(client, 9, 1, [("t", 0), ("t", 1), ("u", 0)])
            monkeypatch.setattr(Subscriptions, "names", counting)
            many = [{"partition_index": index} for index in range(10_000)]
            topics = [{"name": name, "partitions": many} for name in ("t", "u")]
            turns = served.broker.fair_share.turns
            answer = await client.call("offset_delete", 0, group_id="g", topics=topics)
            assert len(asked) == 1
            assert served.broker.fair_share.turns > turns
            codes = {topic.name: [each.error_code for each in topic.partitions] for topic in answer.topics}
            missing, subscribed = ErrorCode.unknown_topic_or_partition, ErrorCode.group_subscribed_to_topic
            assert codes == {"t": [subscribed] * 2 + [missing] * 9_998, "u": [ErrorCode.none] + [missing] * 9_999}
            left = (await fetch(client, 9, None)).topics
            assert [(topic.name, len(topic.partitions)) for topic in left] == [("t", 2)]

    asyncio.run(main())
