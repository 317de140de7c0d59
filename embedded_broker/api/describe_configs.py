"""DescribeConfigs (32).

Behaviour: every config of a topic with its value and source; the configs of the broker that clients use; those of
consumer groups.
Version notes: v1+ synonyms; v3+ types and documentation (always empty).
"""

from __future__ import annotations

from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, HasConfig, HasGroupConfigs, HasTopics
from embedded_broker.api.registry import api
from embedded_broker.metadata.broker_configs import broker_configs
from embedded_broker.metadata.topic_configs import CONFIGS, Kind, value
from embedded_broker.metadata.topic_names import name_problem
from embedded_broker.wire.responses import Answer

TOPIC, BROKER, GROUP = 2, 4, 32
DEFAULT_SOURCE, TOPIC_SOURCE, STATIC_SOURCE, GROUP_SOURCE = 5, 1, 4, 8


class Needs(HasConfig, HasTopics, HasGroupConfigs, Protocol):
    """The parts of the broker that are used here."""


@api(32, "describe_configs", range(1, 5))
async def handle(broker: Needs, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeConfigs: see the behaviour and version notes above."""
    return {"results": [_resource(broker, wanted, request) for wanted in request.resources]}


def _resource(broker: Needs, wanted: Any, request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
    answer.update(error_message="", configs=[])
    if wanted.resource_type == TOPIC:
        if (problem := name_problem(wanted.resource_name)) is not None:
            return {**answer, "error_code": ErrorCode.invalid_topic_exception, "error_message": problem}
        topic = broker.topics.get(wanted.resource_name)
        if topic is None:
            return {**answer, "error_code": ErrorCode.unknown_topic_or_partition, "error_message": "no such topic"}
        configs = [_topic_config(name, topic.configs, request) for name in CONFIGS]
    elif wanted.resource_type == BROKER:
        if wanted.resource_name not in ("", str(broker.config.node_id)):
            return {**answer, "error_code": ErrorCode.invalid_request, "error_message": "no such broker"}
        # Without a name, what is set for all brokers while they run: nothing.
        entries = broker_configs(broker.config) if wanted.resource_name else {}
        configs = [_broker_config(name, *entry) for name, entry in entries.items()]
    elif wanted.resource_type == GROUP:
        if not wanted.resource_name:
            return {**answer, "error_code": ErrorCode.invalid_request, "error_message": "which group?"}
        configs = _group_configs(broker, wanted.resource_name)
    else:
        return {**answer, "error_code": ErrorCode.invalid_request, "error_message": "only topics, brokers and groups"}
    asked = wanted.configuration_keys
    return {**answer, "configs": [config for config in configs if not asked or config["name"] in asked]}


def _topic_config(name: str, configs: dict[str, str], request: Any) -> dict[str, Any]:
    own = name in configs
    synonyms = []
    if getattr(request, "include_synonyms", False):
        synonyms = [{"name": name, "value": CONFIGS[name].default, "source": DEFAULT_SOURCE}]
        if own:
            synonyms.insert(0, {"name": name, "value": configs[name], "source": TOPIC_SOURCE})
    return {
        "name": name,
        "value": value(configs, name),
        "read_only": False,
        "config_source": TOPIC_SOURCE if own else DEFAULT_SOURCE,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": CONFIGS[name].kind,
        "documentation": None,
    }


def _group_configs(broker: Needs, group_id: str) -> list[dict[str, Any]]:
    own, defaults = broker.group_configs.own(group_id), broker.group_configs.defaults
    return [
        _broker_config(name, Kind.INT, own.get(name, text))
        | {"read_only": False, "config_source": GROUP_SOURCE if name in own else STATIC_SOURCE}
        for name, text in defaults.items()
    ]


def _broker_config(name: str, kind: Kind, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "value": text,
        "read_only": True,
        "config_source": STATIC_SOURCE,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": kind,
        "documentation": None,
    }
