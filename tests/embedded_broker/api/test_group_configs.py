"""Configs of single consumer groups."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.state.consumer_groups import ConsumerGroup
from tests.embedded_broker.api.test_consumer_groups import beat
from tests.embedded_broker.served import Client, Served, serving

GROUP, SET, DELETE = 32, 0, 1
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def alter(client: Client, name: str, value: str | None, operation: int = SET, group_id: str = "g") -> ErrorCode:
    configs = [{"name": name, "config_operation": operation, "value": value}]
    resource = {"resource_type": GROUP, "resource_name": group_id, "configs": configs}
    answer = await client.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    return ErrorCode(answer.responses[0].error_code)


async def described(client: Client) -> dict[str, tuple[str, int]]:
    resource = {"resource_type": GROUP, "resource_name": "g", "configuration_keys": None}
    (found,) = (await client.call("describe_configs", 4, resources=[resource])).results
    return {config.name: (config.value, config.config_source) for config in found.configs}


def session_timeout_ms(served: Served) -> int:
    group = served.broker.groups.get("g")
    assert isinstance(group, ConsumerGroup)
    return group.config.session_timeout_ms


def test_a_group_has_its_own_timeouts_also_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            assert await described(client) == {HEARTBEAT: ("5000", 4), SESSION: ("45000", 4)}
            assert await alter(client, HEARTBEAT, "700") is ErrorCode.none
            assert await heartbeat_ms(client) == 700
            assert await alter(client, SESSION, "900") is ErrorCode.none
            assert session_timeout_ms(served) == 900
            assert await described(client) == {HEARTBEAT: ("700", 8), SESSION: ("900", 8)}
        async with serving(tmp_path) as served:
            client = await served.client()
            assert session_timeout_ms(served) == 900
            assert await alter(client, SESSION, None, DELETE) is ErrorCode.none
            assert session_timeout_ms(served) == 45_000
            assert await alter(client, HEARTBEAT, None, DELETE) is ErrorCode.none
            assert await described(client) == {HEARTBEAT: ("5000", 4), SESSION: ("45000", 4)}

    async def heartbeat_ms(client: Client) -> int:
        answer: Any = await beat(client)
        return int(answer.heartbeat_interval.total_seconds() * 1000)

    asyncio.run(main())


def test_invalid_group_configs_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            for name, value in ((SESSION, "0"), (SESSION, "x"), (SESSION, "5000"), (HEARTBEAT, "45000"), ("zz", "1")):
                assert await alter(client, name, value) is ErrorCode.invalid_config, (name, value)
            assert await alter(client, SESSION, "6000", group_id="") is ErrorCode.invalid_request
            assert await described(client) == {HEARTBEAT: ("5000", 4), SESSION: ("45000", 4)}

    asyncio.run(main())
