"""What is set on a running broker holds at once and after a new start; a full disk changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from tests.embedded_broker.served import Client, Served, serving

BROKER, SET, DELETE = 4, 0, 1
ALL, THIS = "", "1"
OK = ErrorCode.none
QUOTA = {"entity": [{"entity_type": "user", "entity_name": None}], "ops": [
    {"key": "producer_byte_rate", "value": 1.0, "remove": False}
]}  # fmt: skip


async def alter(client: Client, broker: str, **values: str | None) -> ErrorCode:
    configs = [
        {"name": name.replace("_", "."), "config_operation": DELETE if value is None else SET, "value": value}
        for name, value in values.items()
    ]
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": configs}
    answer = await client.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    return ErrorCode(answer.responses[0].error_code)


def retention_ms(served: Served) -> int:
    partition = served.broker.topics.partition("t", 0)
    assert partition is not None
    return partition.config.retention_ms


def test_defaults_of_topics_hold_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
            assert (await client.call("create_topics", 5, topics=[topic], timeout=1000)).topics[0].error_code is OK
            assert await alter(client, ALL, log_retention_ms="7000", message_max_bytes="2000") is OK
            assert await alter(client, THIS, log_retention_ms="8000") is OK
            assert retention_ms(served) == 8_000
            for name in ("__consumer_offsets", "__transaction_state"):
                internal = served.broker.topics.partition(name, 0)
                assert internal is not None
                assert internal.config.message_bytes_max > 2_000, "the broker's own topics keep their settings"
        async with serving(tmp_path) as served:
            assert retention_ms(served) == 8_000
            client = await served.client()
            assert await alter(client, THIS, log_retention_ms=None) is OK
            assert retention_ms(served) == 7_000
            assert await alter(client, ALL, log_retention_ms=None) is OK
            assert retention_ms(served) == 604_800_000

    asyncio.run(main())


def test_the_number_of_connections_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def is_served(served: Served) -> bool:
        try:
            return bool((await (await served.client()).call("api_versions", 0)).error_code == 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False

    async def main() -> None:
        settings = {"connections_per_ip_max": 100}
        async with serving(tmp_path, None, **settings) as served:
            client = await served.client()
            assert await alter(client, ALL, max_connections="2") is OK
            assert [await is_served(served), await is_served(served)] == [True, False]
            assert await alter(client, THIS, max_connections="3") is OK
            assert await is_served(served)
        async with serving(tmp_path, None, **settings) as served:
            client = await served.client()
            assert [await is_served(served) for _ in range(3)] == [True, True, False]
            assert await alter(client, THIS, max_connections=None) is OK
            assert await alter(client, ALL, max_connections=None) is OK
            assert await is_served(served)

    asyncio.run(main())


def test_addresses_with_numbers_of_their_own_hold_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def served_from(served: Served, address: str) -> int:
        """How many of three connections are."""
        opened = [
            await asyncio.open_connection("127.0.0.1", served.broker.port, local_addr=(address, 0)) for _ in "abc"
        ]
        found = [await is_answered(Client(*each)) for each in opened]
        for _, writer in opened:
            writer.close()
        while served.server._quotas.of(address):  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)
        return sum(found)

    async def is_answered(client: Client) -> bool:
        try:
            return bool((await client.call("api_versions", 0)).error_code == 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False

    async def numbers(served: Served) -> list[int]:
        return [await served_from(served, f"127.0.0.{number}") for number in (2, 3, 4)]

    async def main() -> None:
        async with serving(tmp_path, connections_per_ip_overrides="127.0.0.2:1") as served:
            assert await numbers(served) == [1, 3, 3]
            client = await served.client()
            others = {"max.connections.per.ip.overrides": "127.0.0.1:9,127.0.0.3:2", "max.connections.per.ip": "0"}
            assert await alter(client, ALL, **others) is OK
            assert await numbers(served) == [0, 2, 0]
        async with serving(tmp_path) as served:
            assert await numbers(served) == [0, 2, 0]
            client = await served.client()
            assert await alter(client, ALL, **dict.fromkeys(others)) is OK
            assert await numbers(served) == [3, 3, 3]

    asyncio.run(main())


def test_a_password_is_not_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            assert await alter(client, THIS, sasl_jaas_config="who reads this knows it") is OK
            assert served.broker.dynamic_configs.own(THIS) == {"sasl.jaas.config": "[hidden]"}

    asyncio.run(main())
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert not any(b"who reads this" in data for data in files)


def test_nothing_of_a_bad_change_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            assert await alter(client, ALL, log_retention_ms="7000", num_partitions="2") is ErrorCode.invalid_request
            assert await alter(client, ALL, log_retention_ms="7000", log_segment_bytes="x") is ErrorCode.invalid_request
            assert served.broker.dynamic_configs.own(ALL) == {}

    asyncio.run(main())


def test_quotas_outlive_a_restart(tmp_path: Path) -> None:
    async def quotas(served: Served) -> Any:
        client = await served.client()
        answer = await client.call("describe_client_quotas", 1, components=[], strict=False)
        return [([(each.entity_type, each.entity_name) for each in entry.entity],
                 [(each.key, each.value) for each in entry.values]) for entry in answer.entries]  # fmt: skip

    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            answer = await client.call("alter_client_quotas", 1, entries=[QUOTA], validate_only=False)
            assert answer.entries[0].error_code is OK
        async with serving(tmp_path) as served:
            assert await quotas(served) == [([("user", None)], [("producer_byte_rate", 1.0)])]

    asyncio.run(main())
