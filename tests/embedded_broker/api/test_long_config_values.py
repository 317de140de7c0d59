"""Values of configs that are longer than a string can be in a request: no APPEND makes them, and no answer fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.wire.request_limits import STRING_BYTES_MAX
from tests.embedded_broker.served import Client, Served, change, serving

TOPIC, BROKER, GROUP = 2, 4, 32
SET, APPEND, SUBTRACT = 0, 2, 3
REPLICAS, RULES = "leader.replication.throttled.replicas", "sasl.kerberos.principal.to.local.rules"


async def alter(client: Client, resource: tuple[int, str], name: str, value: str, operation: int) -> Any:
    configs = [{"name": name, "config_operation": operation, "value": value}]
    wanted = {"resource_type": resource[0], "resource_name": resource[1], "configs": configs}
    return (await client.call("incremental_alter_configs", 1, resources=[wanted])).responses[0]


async def described(client: Client, version: int, resource: tuple[int, str], *names: str) -> Any:
    wanted = {"resource_type": resource[0], "resource_name": resource[1], "configuration_keys": names or None}
    return (await client.call("describe_configs", version, resources=[wanted], include_synonyms=True)).results[0]


@pytest.mark.parametrize(("resource", "name"), [((TOPIC, "t"), REPLICAS), ((BROKER, "1"), RULES)])
def test_appending_past_the_limit_is_refused_as_by_kafka(tmp_path: Path, resource: tuple[int, str], name: str) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            first = ",".join(f"{n:05}:1" for n in range(3_500))
            assert (await alter(client, resource, name, first, APPEND)).error_code is ErrorCode.none
            more = ",".join(f"{n:05}:1" for n in range(3_000, 5_000))
            refused = await alter(client, resource, name, more, APPEND)
            assert refused.error_code is ErrorCode.invalid_config
            assert refused.error_message == (
                "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
            )
            for version in (1, 3, 4):
                (config,) = (await described(client, version, resource, name)).configs
                assert config.value in (first, f"DEFAULT,{first}")
            assert (await alter(client, resource, name, "03499:1", SUBTRACT)).error_code is ErrorCode.none

    asyncio.run(main())


def test_a_value_that_is_too_long_already_fails_no_answer(tmp_path: Path) -> None:
    """Kept by an earlier release."""
    long = ",".join(f"{n:05}:1" for n in range(STRING_BYTES_MAX // 7))

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            topic = served.broker.topics.get("t")
            assert topic is not None
            await change(served.broker, lambda: served.broker.topics.configure(topic, {REPLICAS: long}))
            await change(served.broker, lambda: served.broker.dynamic_configs.save("1", {RULES: long}))
        async with serving(tmp_path) as served:
            client = await served.client()
            for resource, name in (((TOPIC, "t"), REPLICAS), ((BROKER, "1"), RULES)):
                for version in (1, 2, 3):
                    refused = await described(client, version, resource)
                    assert (refused.error_code, refused.configs) == (ErrorCode.invalid_config, ())
                    assert name in refused.error_message
                    assert (await described(client, version, resource, "retention.ms")).error_code is ErrorCode.none
                found = (await described(client, 4, resource)).configs
                assert long in [config.value for config in found]
                removed = ",".join(f"{n:05}:1" for n in range(1_000))
                assert (await alter(client, resource, name, removed, SUBTRACT)).error_code is ErrorCode.none
                assert (await described(client, 1, resource)).error_code is ErrorCode.none

    asyncio.run(main())


def test_a_number_with_many_zeros_is_one(tmp_path: Path) -> None:
    """As in Kafka, which shows it without them."""
    name, group = "consumer.session.timeout.ms", (GROUP, "g")

    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            assert (await alter(client, group, name, "0" * 995 + "50000", SET)).error_code is ErrorCode.none
            for wrong in ("1" * 900, "0" * 900, "0" * 20_000 + "50000"):
                assert (await alter(client, group, name, wrong, SET)).error_code is ErrorCode.invalid_config
            assert (await alter(client, group, name, "50000", APPEND)).error_code is ErrorCode.invalid_config
        async with serving(tmp_path) as served:
            assert await held(served) == "50000"

    async def held(served: Served) -> str:
        (config,) = (await described(await served.client(), 1, group, name)).configs
        return str(config.value)

    asyncio.run(main())


def test_requests_with_long_values_let_others_go_on(tmp_path: Path) -> None:
    """Those that are refused, too, for which nothing is written."""
    long = ",".join(["1:1"] * 8_000 + ["wrong"])

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            for api, version in (("alter_configs", 2), ("incremental_alter_configs", 1)):
                resources = [
                    {"resource_type": TOPIC, "resource_name": f"t{n}" if n else "t",
                     "configs": [{"name": REPLICAS, "value": long}]}
                    for n in range(50)
                ]  # fmt: skip
                before = served.broker.fair_share.turns
                answer = await client.call(api, version, resources=resources, validate_only=False)
                assert answer.responses[0].error_code is ErrorCode.invalid_config
                assert served.broker.fair_share.turns - before >= 50

    asyncio.run(main())
