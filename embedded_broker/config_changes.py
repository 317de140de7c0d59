"""Changing topic configs, as AlterConfigs and IncrementalAlterConfigs share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker import topic_configs

if TYPE_CHECKING:
    from embedded_broker.broker import Broker

TOPIC = 2


class Refused(Exception):
    """A change that isn't made."""

    def __init__(self, error_code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.error_code = error_code

    @classmethod
    def invalid(cls, detail: str) -> Refused:
        """A name or value that can't be."""
        return cls(ErrorCode.invalid_config, detail)


async def change_topic(
    broker: Broker, wanted: Any, change: Callable[[dict[str, str]], dict[str, str]], validate_only: bool
) -> None:
    """Make `change` of a topic's own configs durable. Raises Refused with nothing changed, or OSError."""
    if wanted.resource_type != TOPIC:
        raise Refused(ErrorCode.invalid_request, "only topics can be changed while the broker runs")
    async with broker.topics.changing:
        topic = broker.topics.get(wanted.resource_name)
        if topic is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, "no such topic")
        changed = change(topic.configs)
        try:
            for name, text in changed.items():
                topic_configs.check(name, text)
        except topic_configs.InvalidConfig as error:
            raise Refused.invalid(str(error)) from error
        if not validate_only:
            await broker.topics.configure(topic, changed)


def refusal(wanted: Any, refused: Refused | None) -> dict[str, Any]:
    """The answer for one resource."""
    return {
        "error_code": ErrorCode.none if refused is None else refused.error_code,
        "error_message": None if refused is None else str(refused),
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
    }
