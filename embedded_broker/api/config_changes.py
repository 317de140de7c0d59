"""Changes the configs of topics, groups and brokers, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.disk_full import refused_with
from embedded_broker.api.ports import Parts
from embedded_broker.metadata import topic_configs
from embedded_broker.metadata.dynamic_configs import ALL_BROKERS, NotDynamic
from embedded_broker.metadata.metadata_size import NAME_BYTES_MAX, is_long
from embedded_broker.metadata.topic_names import name_problem
from embedded_broker.storage.disk_space import NoSpace

TOPIC, BROKER, GROUP = 2, 4, 32
DELETE = 1
RESOURCE_STEPS, CHARACTERS_A_STEP = 20, 20

Change = Callable[[dict[str, str]], dict[str, str]]


class ConfigRejected(Exception):
    """A change that isn't made."""

    def __init__(self, error_code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.error_code = error_code

    @classmethod
    def invalid(cls, detail: str) -> ConfigRejected:
        """Make the error of a name or value that can't be."""
        return cls(ErrorCode.invalid_config, detail)


async def change(broker: Parts, wanted: Any, make: Change, validate_only: bool) -> None:
    """Make the own configs of a topic, group or broker what `make` makes of them, durably.

    Raises ConfigRejected with nothing changed, or OSError.
    """
    try:
        if wanted.resource_type == TOPIC:
            await _change_topic(broker, wanted, make, validate_only)
        elif wanted.resource_type == GROUP:
            await _change_group(broker, wanted, make, validate_only)
        elif wanted.resource_type == BROKER:
            await _change_broker(broker, wanted, make, validate_only)
        else:
            raise ConfigRejected(ErrorCode.invalid_request, "only topics, groups and brokers have configs to change")
    except NoSpace as error:
        raise ConfigRejected(*refused_with(error)) from error


async def _change_group(broker: Parts, wanted: Any, make: Change, validate_only: bool) -> None:
    if not wanted.resource_name:
        raise ConfigRejected(ErrorCode.invalid_request, "Default group resources are not allowed.")
    if is_long(wanted.resource_name):
        raise ConfigRejected(
            ErrorCode.invalid_request, f"Group ids of at most {NAME_BYTES_MAX} bytes can have configs."
        )
    async with broker.metadata.changes.one():
        changed = make(broker.group_configs.own(wanted.resource_name))
        try:
            broker.group_configs.check(changed)
        except topic_configs.InvalidConfig as error:
            raise ConfigRejected.invalid(str(error)) from error
        if not validate_only:
            await broker.group_configs.save(wanted.resource_name, changed)


async def _change_broker(broker: Parts, wanted: Any, make: Change, validate_only: bool) -> None:
    dynamic = broker.dynamic_configs
    if wanted.resource_name not in (ALL_BROKERS, dynamic.this_broker):
        raise ConfigRejected(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {dynamic.this_broker} or empty string"
        )
    async with broker.metadata.changes.one():
        changed = make(dynamic.own(wanted.resource_name))
        try:
            dynamic.check(wanted.resource_name, changed)
        except (NotDynamic, topic_configs.InvalidConfig) as error:
            raise ConfigRejected(ErrorCode.invalid_request, str(error)) from error
        if not validate_only:
            await dynamic.save(wanted.resource_name, changed)


async def _change_topic(broker: Parts, wanted: Any, make: Change, validate_only: bool) -> None:
    if not wanted.resource_name:
        raise ConfigRejected(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    if (problem := name_problem(wanted.resource_name)) is not None:
        raise ConfigRejected(ErrorCode.invalid_topic_exception, problem)
    async with broker.metadata.changes.one():
        topic = broker.topics.get(wanted.resource_name)
        if topic is None:
            raise ConfigRejected(ErrorCode.unknown_topic_or_partition, "no such topic")
        changed = make(topic.configs)
        try:
            topic_configs.check_together(changed)
        except topic_configs.InvalidConfig as error:
            raise ConfigRejected.invalid(str(error)) from error
        if not validate_only:
            await broker.topics.configure(topic, changed)


def steps(wanted: Any) -> int:
    """Say what it costs to look at one resource: lists have thousands of elements."""
    return RESOURCE_STEPS + sum(len(config.value or "") for config in wanted.configs) // CHARACTERS_A_STEP


def check_request(resources: Sequence[Any]) -> dict[tuple[int, str], ConfigRejected]:
    """Return the refusals of resources that can't be looked at one by one: those named twice, with a name twice or no
    value.
    """
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    refused: dict[tuple[int, str], ConfigRejected] = {}
    for each in resources:
        key = (each.resource_type, each.resource_name)
        names = [config.name for config in each.configs]
        empty = [config.name for config in each.configs if config.value is None and not _deletes(config)]
        if times[key] > 1:
            refused[key] = ConfigRejected(ErrorCode.invalid_request, "Each resource must appear at most once.")
        elif len(set(names)) < len(names):
            refused[key] = ConfigRejected(ErrorCode.invalid_request, "Error due to duplicate config keys")
        elif empty:
            refused[key] = ConfigRejected(
                ErrorCode.invalid_request, f"Null value not supported for : {','.join(empty)}"
            )
    return refused


def _deletes(config: Any) -> bool:
    return getattr(config, "config_operation", None) == DELETE


def refusal(wanted: Any, refused: ConfigRejected | None) -> dict[str, Any]:
    """Return the answer for one resource."""
    return {
        "error_code": ErrorCode.none if refused is None else refused.error_code,
        "error_message": None if refused is None else str(refused),
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
    }
