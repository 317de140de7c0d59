"""Rights over the wire: every API refuses as Kafka does, and what may be done is done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import load_all
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.security.enforcing import RULES, enforce
from embedded_broker.wire import schema
from tests.embedded_broker.api.test_consumer_groups import beat
from tests.embedded_broker.security.denials import ADDED, CLUSTER, DENIED, GROUP, OK, TOPIC, TRANSACTIONAL, creation
from tests.embedded_broker.security.guarded import allow, guarded, login
from tests.embedded_broker.served import Client, batch, produce

EVERY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


def test_every_api_has_its_rule() -> None:
    assert {api.name for api in load_all().values()} <= set(RULES)


def test_without_a_right_every_api_is_refused_and_with_all_rights_none_for_that(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            await served.topic("t")
            alice, admin = await login(served, "alice"), await login(served, "admin")
            for what, (ask, expected) in DENIED.items():
                assert await ask(alice) is expected, what
            refusals = {TOPIC, GROUP, CLUSTER, TRANSACTIONAL}
            for what, (ask, _) in DENIED.items():
                if what not in ("join_group", "describe_transactions"):  # waits; a time that kio doesn't read
                    assert await ask(admin) not in refusals, what

    asyncio.run(main())


def test_metadata_hides_what_may_not_be_seen(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            for name in ("seen", "hidden"):
                await served.topic(name)
            alice, admin = await login(served, "alice"), await login(served, "admin")
            await allow(admin, creation(Resource.TOPIC, "seen", Operation.READ))
            for version in (0, 1, 9, 13):
                everything: Any = [] if version == 0 else None
                found = await alice.call("metadata", version, topics=everything)
                assert [topic.name for topic in found.topics] == ["seen"]
            hidden = served.broker.topics.get("hidden")
            assert hidden is not None
            asked = [{"name": None, "topic_id": hidden.topic_id}, {"name": "seen"}, {"name": "hidden"}]
            found = (await alice.call("metadata", 13, topics=asked)).topics
            assert [(topic.name, topic.error_code) for topic in found] == [
                ("seen", OK),
                (None, TOPIC),
                ("hidden", TOPIC),
            ]
            assert found[2].topic_id in (None, UUID(int=0)), "its id is no secret of those who may see it only"

    asyncio.run(main())


def test_an_id_decides_over_the_name_beside_it(tmp_path: Path) -> None:
    """Wherever a request can have both; the handler goes by the id, and so must the rights."""

    async def main() -> None:
        async with guarded(tmp_path) as served:
            for name in ("mine", "secret"):
                await served.topic(name)
            alice, admin = await login(served, "alice"), await login(served, "admin")
            rights = (Operation.READ, Operation.DELETE)
            await allow(admin, *(creation(Resource.TOPIC, "mine", each) for each in rights))
            secret = served.broker.topics.get("secret")
            assert secret is not None
            both = [{"name": "mine", "topic_id": secret.topic_id}]
            for version in (12, 13):
                found = (await alice.call("metadata", version, topics=both)).topics
                assert [(topic.name, topic.error_code, topic.partitions) for topic in found] == [(None, TOPIC, ())]
            deleted = (await alice.call("delete_topics", 6, topics=both)).responses
            assert [each.error_code for each in deleted] == [TOPIC]
            assert {"mine", "secret"} <= set(served.broker.topics.names())

    asyncio.run(main())


def test_an_empty_name_needs_a_right_as_any_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            alice, admin = await login(served, "alice"), await login(served, "admin")
            for who, expected in ((alice, TOPIC), (admin, ErrorCode.unknown_topic_or_partition)):
                answer = await who.call("produce", 9, **produce("", batch(b"v")))
                assert answer.responses[0].partition_responses[0].error_code is expected

    asyncio.run(main())


def test_offsets_by_topic_id(tmp_path: Path) -> None:
    """OffsetFetch v10, of some topics and of all, for who sees one of two and for who sees everything."""

    async def main() -> None:
        async with guarded(tmp_path) as served:
            for name in ("seen", "hidden"):
                await served.topic(name)
            alice, admin = await login(served, "alice"), await login(served, "admin")
            names = {served.broker.topics.get(name).topic_id: name for name in ("seen", "hidden")}  # type: ignore[union-attr]
            await allow(admin, creation(Resource.GROUP, "g", Operation.DESCRIBE),
                        creation(Resource.TOPIC, "seen", Operation.DESCRIBE))  # fmt: skip
            partitions = [{"partition_index": 0, "committed_offset": 7}]
            topics = [{"topic_id": topic_id, "partitions": partitions} for topic_id in names]
            await admin.call("offset_commit", 10, group_id="g", topics=topics)
            nobody = UUID(int=99)

            async def offsets(client: Client, wanted: Any) -> dict[str, tuple[int, ErrorCode]]:
                group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": wanted}
                answered = (await client.call("offset_fetch", 10, groups=[group])).groups[0]
                return {
                    names.get(topic.topic_id, "nobody"): (each.committed_offset, each.error_code)
                    for topic in answered.topics
                    for each in topic.partitions
                }

            asked = [{"topic_id": topic_id, "partition_indexes": [0]} for topic_id in (*names, nobody)]
            gone = (-1, ErrorCode.unknown_topic_id)
            assert await offsets(admin, None) == {"seen": (7, OK), "hidden": (7, OK)}
            assert await offsets(admin, asked) == {"seen": (7, OK), "hidden": (7, OK), "nobody": gone}
            assert await offsets(alice, None) == {"seen": (7, OK)}
            assert await offsets(alice, asked) == {"seen": (7, OK), "hidden": (-1, TOPIC), "nobody": gone}

    asyncio.run(main())


def test_offsets_of_a_group_that_refuses_who_asks(tmp_path: Path) -> None:
    """Such an answer has no topics that could be left out."""

    async def main() -> None:
        async with guarded(tmp_path) as served:
            await served.topic("t")
            admin = await login(served, "admin")
            await beat(admin, "g", subscribed_topic_names=["t"])
            group = {"group_id": "g", "member_id": "nobody", "member_epoch": 1, "topics": None}
            for version in (9, 10):
                answered = (await admin.call("offset_fetch", version, groups=[group])).groups[0]
                assert answered.error_code is ErrorCode.unknown_member_id

    asyncio.run(main())


def test_the_allowed_part_of_a_request_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            await served.topic("mine")
            await served.topic("other")
            alice, admin = await login(served, "alice"), await login(served, "admin")
            await allow(admin, creation(Resource.TOPIC, "mi", Operation.WRITE, resource_pattern_type=4))
            data = [
                {"name": name, "partition_data": [{"index": 0, "records": batch(b"v")}]} for name in ("other", "mine")
            ]
            answer = await alice.call("produce", 9, acks=-1, timeout=1000, topic_data=data)
            codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
            assert codes == {"mine": OK, "other": TOPIC}
            assert [served.broker.topics.partition(name, 0).log_end for name in ("mine", "other")] == [1, 0]  # type: ignore[union-attr]
            answer = await alice.call("init_producer_id", 4, transactional_id=None, transaction_timeout=1)
            assert answer.error_code is OK, "who may write anywhere may do so idempotently"

    asyncio.run(main())


def test_a_refused_request_without_response_closes_the_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            await served.topic("t")
            for refused in (
                produce("t", batch(b"v"), acks=0),
                produce("t", batch(b"v", attributes=16), acks=0, transactional_id="x"),
            ):
                alice = await login(served, "alice")
                alice.send("produce", 9, **refused)
                assert await alice.closed()
            assert served.broker.topics.partition("t", 0).log_end == 0  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_group_that_reads_what_may_not_be_seen_is_not_described() -> None:
    class OnlyA:
        """Rights to see topic a."""

        def may(self, operation: Operation, resource: Resource, name: str) -> bool:
            return resource is not Resource.TOPIC or name == "a"

        def may_with_some(self, operation: Operation, resource: Resource) -> bool:
            return False

        def creates_topic(self, name: str) -> bool:
            return False

        def topic_name(self, item: Any) -> str | None:
            return str(item.name)

    def group(name: str) -> dict[str, Any]:
        reads = {"topic_partitions": [{"topic_name": name, "partitions": [0]}]}
        return {"group_id": name, "error_code": OK, "members": [{"assignment": reads, "target_assignment": None}]}

    async def main() -> None:
        async def handle(request: Any) -> Any:
            return {"groups": [group("a"), group("b")]}

        request = schema.builder(schema.entity("consumer_group_describe", 0, "request"))({"group_ids": ["a", "b"]})
        answer: Any = await enforce(OnlyA(), "consumer_group_describe", request, handle)
        assert [(each["group_id"], each["error_code"]) for each in answer["groups"]] == [("a", OK), ("b", TOPIC)]
        assert not answer["groups"][1]["members"]

    asyncio.run(main())


def test_topics_named_by_id_and_fetches_that_outlive_their_right(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            await served.topic("t")
            topic = served.broker.topics.get("t")
            assert topic is not None
            alice, admin = await login(served, "alice"), await login(served, "admin")
            await admin.call("produce", 9, **produce("t", batch(b"v")))
            partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
            wanted = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}
            by_id = [{"topic_id": topic.topic_id, "partitions": partitions}]
            (found,) = (await alice.call("fetch", 13, topics=by_id, **wanted)).responses
            assert (found.topic_id, found.partitions[0].error_code) == (topic.topic_id, TOPIC)
            await allow(admin, creation(Resource.TOPIC, "t", Operation.READ))
            (found,) = (await alice.call("fetch", 13, topics=by_id, **wanted)).responses
            assert found.partitions[0].records
            at_end = [{"topic_id": topic.topic_id, "partitions": [{**partitions[0], "fetch_offset": 1}]}]
            alice.send("fetch", 13, topics=at_end, **{**wanted, "max_wait": 5_000})
            await asyncio.sleep(0.05)
            everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
            removed = await admin.call("delete_acls", 3, filters=[everything])
            assert [each.resource_name for each in removed.filter_results[0].matching_acls] == ["t"]
            await admin.call("produce", 9, **produce("t", batch(b"secret")))
            (found,) = (await alice.receive()).responses
            assert found.partitions[0].error_code is TOPIC
            assert not found.partitions[0].records

    asyncio.run(main())


@pytest.mark.parametrize("version", [12, 13])
def test_a_fetch_session_keeps_what_may_not_be_read_yet(version: int, tmp_path: Path) -> None:
    """Its client has named the partition once and doesn't name it again; it must see it as soon as it may."""

    async def main() -> None:
        async with guarded(tmp_path) as served:
            ids = {}
            for name in ("mine", "other"):
                await served.topic(name)
                topic = served.broker.topics.get(name)
                assert topic is not None
                ids[name] = topic.topic_id
            alice, admin = await login(served, "alice"), await login(served, "admin")
            await allow(admin, creation(Resource.TOPIC, "mine", Operation.READ))
            await admin.call("produce", 9, **produce("other", batch(b"v")))
            epoch, session_id = 0, 0

            async def told(*names: str, wait_ms: int = 0) -> dict[str, tuple[ErrorCode, bool]]:
                nonlocal epoch, session_id
                data = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                topics = [
                    {**({"topic": name} if version < 13 else {"topic_id": ids[name]}), "partitions": [data]}
                    for name in names
                ]
                answer = await alice.call(
                    "fetch", version, max_wait=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics,
                    session_id=session_id, session_epoch=epoch, forgotten_topics_data=[],
                )  # fmt: skip
                assert answer.error_code is OK
                epoch, session_id = epoch + 1, answer.session_id
                named = {topic.topic if version < 13 else topic.topic_id: topic for topic in answer.responses}
                keys = {name: name if version < 13 else ids[name] for name in ids}
                return {
                    name: (named[key].partitions[0].error_code, bool(named[key].partitions[0].records))
                    for name, key in keys.items()
                    if key in named
                }

            assert await told("mine", "other", wait_ms=60_000) == {"mine": (OK, False), "other": (TOPIC, False)}
            assert await told(wait_ms=60_000) == {"other": (TOPIC, False)}, "it isn't told again, or only much later"
            await allow(admin, creation(Resource.TOPIC, "other", Operation.READ))
            assert await told() == {"other": (OK, True)}
            everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
            await admin.call("delete_acls", 3, filters=[everything])
            assert await told() == {"mine": (TOPIC, False), "other": (TOPIC, False)}

    asyncio.run(main())


def test_a_pattern_finds_what_its_member_may_see(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            for name in ("hidden", "seen"):
                await served.topic(name)
            seen = served.broker.topics.get("seen")
            assert seen is not None
            alice, admin = await login(served, "alice"), await login(served, "admin")
            await allow(admin, creation(Resource.TOPIC, "seen", Operation.READ),
                        creation(Resource.GROUP, "g", Operation.READ))  # fmt: skip
            member: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": ".*"}
            answer = await beat(alice, **member)
            assert answer.error_code is OK
            assert [each.topic_id for each in answer.assignment.topic_partitions] == [seen.topic_id]
            group = served.broker.groups.get("g")
            assert group is not None
            assert served.broker.groups.subscribed(group)("hidden"), "its offsets are kept, as its pattern says"
            await served.topic("new")
            assert (await beat(alice, epoch=answer.member_epoch)).assignment is None

    asyncio.run(main())


def test_what_brokers_ask_each_other_needs_a_right_of_the_cluster(tmp_path: Path) -> None:
    """KafkaApis: AddPartitionsToTxn 4 and later needs CLUSTER_ACTION, WriteTxnMarkers that or ALTER."""
    markers: list[dict[str, Any]] = [
        {"producer_id": 1, "topics": [{"name": name, "partition_indexes": [0, 1]} for name in ("t", "u")]}
    ]

    async def main() -> None:
        async with guarded(tmp_path) as served:
            await served.topic("t")
            admin = await login(served, "admin")
            for operation, may_add, may_mark in (
                (Operation.DESCRIBE, False, False),
                (Operation.ALTER, False, True),
                (Operation.CLUSTER_ACTION, True, True),
            ):
                await admin.call("delete_acls", 3, filters=[EVERY_ACL])
                await allow(admin, creation(Resource.CLUSTER, "kafka-cluster", operation))
                alice = await login(served, "alice")
                for version in (4, 5):
                    added = await alice.call("add_partitions_to_txn", version, transactions=[ADDED])
                    assert added.error_code is (OK if may_add else CLUSTER), operation
                    codes = [
                        each.partition_error_code
                        for result in added.results_by_transaction
                        for each in result.topic_results[0].results_by_partition
                    ]
                    assert codes == ([ErrorCode.invalid_producer_id_mapping] if may_add else [])
                (marked,) = (await alice.call("write_txn_markers", 1, markers=markers)).markers
                told = {each.error_code for topic in marked.topics for each in topic.partitions}
                assert len(marked.topics) == len(markers[0]["topics"])
                assert (told == {CLUSTER}) is not may_mark, operation

    asyncio.run(main())


def test_topics_asked_for_by_name_without_a_right_to_any_show_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            for name in ("seen", "hidden", "other"):
                await served.topic(name)
            alice, admin = await login(served, "alice"), await login(served, "admin")

            async def described(*names: str) -> list[tuple[str, ErrorCode, int]]:
                asked = [{"name": name} for name in names]
                answer = await alice.call("describe_topic_partitions", 0, topics=asked, response_partition_limit=10)
                return [(each.name, each.error_code, len(each.partitions)) for each in answer.topics]

            assert await described("hidden") == [("hidden", TOPIC, 0)]
            assert await described() == []
            await allow(admin, creation(Resource.TOPIC, "seen", Operation.DESCRIBE))
            assert await described("hidden") == [("hidden", TOPIC, 0)]
            assert await described("hidden", "seen") == [("seen", OK, 1), ("hidden", TOPIC, 0)]
            assert await described() == [("seen", OK, 1)]

    asyncio.run(main())
