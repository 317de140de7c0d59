"""Configs of topics and brokers, set and described over a plain socket."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from integration_tests.harness import raw

NONE, REFUSED = ErrorCode.none, ErrorCode.invalid_request
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
ALL, THIS = "", "1"
OF_TOPIC, OF_BROKER, OF_ALL, OF_NONE = 1, 2, 3, 5
"""Where a config is set, as DescribeConfigs numbers it."""


def alter(bootstrap: str, kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False) -> ErrorCode:
    configs = [{"name": each, "config_operation": operation, "value": value} for each, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = raw.call(bootstrap, "incremental_alter_configs", 1, resources=[resource], validate_only=dry)
    return ErrorCode(answer.responses[0].error_code)


def described(bootstrap: str, kind: int, name: str, *keys: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    answer = raw.call(bootstrap, "describe_configs", 4, resources=[resource], include_synonyms=True)
    assert answer.results[0].error_code is NONE
    return {each.name: each for each in answer.results[0].configs}


def seen(bootstrap: str, kind: int, name: str, key: str) -> tuple[str, int] | None:
    found = described(bootstrap, kind, name, key).get(key)
    return None if found is None else (found.value, found.config_source)


def dynamic(bootstrap: str, broker: str) -> dict[str, str]:
    """What is set for a broker or, without a name, for all."""
    found = described(bootstrap, BROKER, broker).values()
    return {each.name: each.value for each in found if each.config_source in (OF_BROKER, OF_ALL)}


def is_set(bootstrap: str, name: str, value: str) -> bool:
    return seen(bootstrap, BROKER, THIS, name) == (value, OF_BROKER)


def entity(**names: str | None) -> list[dict[str, str | None]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()]
