"""Topics and their configs through the protocol, over restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.embedded_broker.served import Client, batch, produce, serving

NONE = ErrorCode.none
TOPIC = 2
SET, DELETE, APPEND, SUBTRACT = range(4)


def _topic(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> dict[str, Any]:
    named = [{"name": key.replace("_", "."), "value": text} for key, text in configs.items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, "configs": named}


async def _create(client: Client, *topics: dict[str, Any], validate_only: bool = False) -> list[Any]:
    response = await client.call("create_topics", 7, topics=topics, timeout=1000, validate_only=validate_only)
    return list(response.topics)


async def _configs(client: Client, name: str) -> dict[str, str]:
    resources = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}]
    response = await client.call("describe_configs", 4, resources=resources)
    assert response.results[0].error_code is NONE
    return {config.name: config.value for config in response.results[0].configs}


async def _change(client: Client, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    configs = [{"name": key, "config_operation": operation, "value": text} for key, operation, text in changes]
    resources = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
    response = await client.call("incremental_alter_configs", 1, resources=resources, validate_only=False)
    return response.responses[0].error_code  # type: ignore[no-any-return]


async def _metadata(client: Client, *names: str) -> dict[str, Any]:
    response = await client.call("metadata", 12, topics=[{"name": name} for name in names])
    return {topic.name: topic for topic in response.topics}


REFUSED = {
    "empty": (_topic(""), ErrorCode.invalid_topic_exception),
    "dots": (_topic(".."), ErrorCode.invalid_topic_exception),
    "slash": (_topic("../etc/passwd"), ErrorCode.invalid_topic_exception),
    "umlaut": (_topic("ä"), ErrorCode.invalid_topic_exception),
    "250 characters": (_topic("x" * 250), ErrorCode.invalid_topic_exception),
    "collides": (_topic("a_b"), ErrorCode.invalid_topic_exception),
    "exists": (_topic("a.b"), ErrorCode.topic_already_exists),
    "no partitions": (_topic("n", 0), ErrorCode.invalid_partitions),
    "replicated": (_topic("n", 1, 3), ErrorCode.invalid_replication_factor),
    "too many": (_topic("n", 1_000_000), ErrorCode.policy_violation),
    "unknown config": (_topic("n", retention_min="1"), ErrorCode.invalid_config),
    "not a number": (_topic("n", retention_ms="soon"), ErrorCode.invalid_config),
    "out of range": (_topic("n", max_message_bytes="-1"), ErrorCode.invalid_config),
    "unknown policy": (_topic("n", cleanup_policy="delete,forget"), ErrorCode.invalid_config),
}


@pytest.mark.parametrize(("topic", "error_code"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_topics_are_refused(tmp_path: Path, topic: dict[str, Any], error_code: ErrorCode) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            await _create(client, _topic("a.b"))
            before = len(served.broker.topics.all())
            [answer] = await _create(client, topic)
            assert answer.error_code is error_code
            assert answer.error_message
            assert len(served.broker.topics.all()) == before

    asyncio.run(main())


def test_topics_configs_and_ids_outlive_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            [one, two] = await _create(client, _topic("one", 3, retention_ms="1000"), _topic("two", -1, -1))
            assert (one.num_partitions, two.num_partitions) == (3, 1)
            assert await _change(client, "one", ("max.message.bytes", SET, "2000000")) is NONE
            await client.call("create_partitions", 3, topics=[{"name": "one", "count": 5, "assignments": None}])
            await client.call("delete_topics", 6, topics=[{"name": "two"}], timeout=1000)
            cluster_id = (await client.call("describe_cluster", 0)).cluster_id
        async with serving(tmp_path) as served:
            client = await served.client()
            found = await _metadata(client, "one", "two")
            assert found["one"].topic_id == one.topic_id
            assert len(found["one"].partitions) == 5
            assert {partition.leader_epoch for partition in found["one"].partitions} == {1}
            assert found["two"].error_code is ErrorCode.unknown_topic_or_partition
            configs = await _configs(client, "one")
            assert (configs["retention.ms"], configs["max.message.bytes"]) == ("1000", "2000000")
            assert (await client.call("describe_cluster", 0)).cluster_id == cluster_id

    asyncio.run(main())


def test_leader_epochs_begin_at_zero_and_grow_with_each_start(tmp_path: Path) -> None:
    """A topic that is created again after a restart has a lower epoch than before: clients must cope with that."""

    async def epochs(client: Client) -> list[int]:
        return [partition.leader_epoch for partition in (await _metadata(client, "t"))["t"].partitions]

    async def main() -> None:
        async with serving(tmp_path) as served:
            await _create(await served.client(), _topic("t"))
        async with serving(tmp_path) as served:
            client = await served.client()
            await client.call("create_partitions", 3, topics=[{"name": "t", "count": 3, "assignments": None}])
            assert await epochs(client) == [1, 0, 0]
        async with serving(tmp_path) as served:
            client = await served.client()
            assert await epochs(client) == [2, 1, 1]
            assert await _change(client, "t", ("retention.ms", SET, "1000")) is NONE
        async with serving(tmp_path) as served:
            client = await served.client()
            assert await epochs(client) == [3, 2, 2]
            await client.call("delete_topics", 6, topics=[{"name": "t"}], timeout=1000)
            await _create(client, _topic("t"))
            assert await epochs(client) == [0]

    asyncio.run(main())


def test_a_topic_created_again_has_another_id_and_nothing_in_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            [first] = await _create(client, _topic("t"))
            await client.call("produce", 9, **produce("t", batch(b"x")))
            await client.call("delete_topics", 6, topics=[{"topic_id": first.topic_id}], timeout=1000)
            [second] = await _create(client, _topic("t"))
            assert second.topic_id != first.topic_id
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            assert partition.log_end == 0

    asyncio.run(main())


def test_validation_alone_and_names_given_twice(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            [answer] = await _create(client, _topic("t"), validate_only=True)
            assert answer.error_code is NONE
            answers = await _create(client, _topic("u"), _topic("u", 2))
            assert [each.error_code for each in answers] == [ErrorCode.invalid_request]
            assert not (await _metadata(client, "t"))["t"].partitions

    asyncio.run(main())


def test_config_changes_are_made_together_or_not_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            await _create(client, _topic("t", retention_ms="5"))
            changes = ("retention.ms", SET, "6"), ("segment.bytes", SET, "much")
            assert await _change(client, "t", *changes) is ErrorCode.invalid_config
            assert (await _configs(client, "t"))["retention.ms"] == "5"
            assert await _change(client, "t", ("cleanup.policy", APPEND, "compact")) is NONE
            assert (await _configs(client, "t"))["cleanup.policy"] == "delete,compact"
            assert await _change(client, "t", ("cleanup.policy", SUBTRACT, "delete")) is NONE
            assert await _change(client, "t", ("retention.ms", DELETE, None)) is NONE
            configs = await _configs(client, "t")
            assert (configs["cleanup.policy"], configs["retention.ms"]) == ("compact", "604800000")
            assert await _change(client, "none", ("retention.ms", SET, "1")) is ErrorCode.unknown_topic_or_partition
            assert await _change(client, "t", ("retention.ms", APPEND, "1")) is ErrorCode.invalid_config

    asyncio.run(main())


def test_partitions_only_grow(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            await _create(client, _topic("t", 2))

            async def grow(name: str, count: int) -> ErrorCode:
                topics = [{"name": name, "count": count, "assignments": None}]
                response = await client.call("create_partitions", 3, topics=topics)
                return response.results[0].error_code  # type: ignore[no-any-return]

            assert await grow("t", 2) is ErrorCode.invalid_partitions
            assert await grow("t", 1) is ErrorCode.invalid_partitions
            assert await grow("none", 9) is ErrorCode.unknown_topic_or_partition
            assert await grow("__consumer_offsets", 9) is ErrorCode.invalid_request
            assert await grow("t", 4) is NONE
            assert len((await _metadata(client, "t"))["t"].partitions) == 4

    asyncio.run(main())


def test_auto_creation_needs_broker_and_client(tmp_path: Path) -> None:
    async def main() -> None:
        async def ask(client: Client, name: str, allowed: bool) -> Any:
            fields = {"topics": [{"name": name}], "allow_auto_topic_creation": allowed}
            return (await client.call("metadata", 12, **fields)).topics[0]

        async with serving(tmp_path) as served:
            client = await served.client()
            assert (await ask(client, "t", True)).error_code is ErrorCode.unknown_topic_or_partition
        async with serving(tmp_path, auto_create_topics=True) as served:
            client = await served.client()
            assert (await ask(client, "t", False)).error_code is ErrorCode.unknown_topic_or_partition
            assert (await ask(client, "a/b", True)).error_code is ErrorCode.invalid_topic_exception
            assert len((await ask(client, "t", True)).partitions) == 1

    asyncio.run(main())


def test_others_have_their_turn_while_many_partitions_are_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            one, other = await served.client(), await served.client()
            wanted = {"name": "many", "num_partitions": 200, "replication_factor": 1}
            one.send("create_topics", 7, topics=[wanted], timeout=60_000)
            await asyncio.sleep(0.01)
            answered = 0
            creating = asyncio.ensure_future(one.receive())
            while not creating.done():
                await other.call("api_versions", 0)
                answered += 1
            assert (await creating).topics[0].error_code == 0
            assert answered > 2, "made in one step, it would let one or two be answered before and after"

    asyncio.run(main())
