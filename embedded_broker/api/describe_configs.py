"""DescribeConfigs (32).

Behaviour: every config of a topic with its value and source; the configs of the broker that clients use, and what is
set for all brokers (without a name); those of consumer groups. A value of more than 32,767 bytes, which earlier
releases let a list grow to, is returned from v4 on; older versions are answered with INVALID_CONFIG.
Version notes: v1+ synonyms; v3+ types and documentation (always empty).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.api.topic_configs_shown import TopicConfigs, config, set_for_brokers, synonym
from embedded_broker.metadata.broker_configs import OF_CONNECTIONS, OF_ONE_BROKER, TOPIC_DEFAULTS, broker_configs
from embedded_broker.metadata.dynamic_configs import ALL_BROKERS, DynamicConfigs, Source
from embedded_broker.metadata.topic_configs import ConfigKind
from embedded_broker.metadata.topic_names import name_problem
from embedded_broker.wire.request_limits import STRING_BYTES_MAX
from embedded_broker.wire.responses import Answer, Same

TOPIC, BROKER, GROUP = 2, 4, 32
LONG_STRINGS_SINCE = 4
"""The version with compact strings."""
RESOURCE_STEPS = 200
RESOURCE_BYTES = 5_000
"""Most configs are the same for all topics, see `topic_configs_shown`."""
CHANGEABLE = TOPIC_DEFAULTS.keys() | {*OF_CONNECTIONS}
"""While the broker runs, besides those of one broker."""


@api(32, "describe_configs", range(1, 5))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeConfigs: see the behaviour and version notes above."""
    results, share, topics = (
        [],
        conn.share(),
        TopicConfigs(broker.dynamic_configs, asks_synonyms=_asks_synonyms(request)),
    )
    for wanted in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
        result = _resource(broker, wanted, request, topics)
        results.append(result)
        await share.spent(RESOURCE_STEPS, RESOURCE_BYTES + sum(map(_text_bytes, result["configs"])))
    return {"results": results}


def _resource(broker: Parts, wanted: Any, request: Any, topics: TopicConfigs) -> dict[str, Any]:
    answer: dict[str, Any] = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
    answer.update(error_message="", configs=[])
    if wanted.resource_type == TOPIC:
        if (problem := name_problem(wanted.resource_name)) is not None:
            return {**answer, "error_code": ErrorCode.invalid_topic_exception, "error_message": problem}
        topic = broker.topics.get(wanted.resource_name)
        if topic is None:
            return {**answer, "error_code": ErrorCode.unknown_topic_or_partition, "error_message": "no such topic"}
        configs = topics.of(topic.configs)
    elif wanted.resource_type == BROKER:
        if wanted.resource_name not in (ALL_BROKERS, str(broker.config.node_id)):
            return {**answer, "error_code": ErrorCode.invalid_request, "error_message": "no such broker"}
        configs = _of_broker(broker, wanted.resource_name, request)
    elif wanted.resource_type == GROUP:
        if not wanted.resource_name:
            return {**answer, "error_code": ErrorCode.invalid_request, "error_message": "which group?"}
        configs = _group_configs(broker, wanted.resource_name)
    else:
        return {**answer, "error_code": ErrorCode.invalid_request, "error_message": "only topics, brokers and groups"}
    asked = frozenset(wanted.configuration_keys or ())
    configs = [each for each in configs if not asked or each["name"] in asked]
    if type(request).__version__ < LONG_STRINGS_SINCE and (
        long := [each["name"] for each in configs if _is_long(each)]
    ):
        message = f"no answer before version {LONG_STRINGS_SINCE} can hold a value as long as that of {long[0]}"
        return {**answer, "error_code": ErrorCode.invalid_config, "error_message": message}
    return {**answer, "configs": configs}


def _text_bytes(config: Same) -> int:
    """Compute what the texts of a config take in an answer, which has a copy of each, beside what RESOURCE_BYTES
    counts.
    """
    return len(config["value"] or "") * (1 + len(config["synonyms"]))


def _is_long(config: Same) -> bool:
    """Return whether it has a value that older versions can't tell: appended to when that had no limit."""
    values = [config["value"], *(each["value"] for each in config["synonyms"])]
    return any(
        value is not None and len(value) > STRING_BYTES_MAX // 4 and len(value.encode()) > STRING_BYTES_MAX
        for value in values
    )


def _of_broker(broker: Parts, name: str, request: Any) -> list[Same]:
    """Return the configs of this broker, or of ALL_BROKERS only what is set for them."""
    dynamic = broker.dynamic_configs
    static = broker_configs(broker.config, broker.endpoints)
    if name == ALL_BROKERS:
        static = {each: static[each] for each in sorted(dynamic.own(ALL_BROKERS))}
    found = []
    for each, (kind, text) in static.items():
        if each in OF_ONE_BROKER:
            continue
        defaults = dynamic.of(each)
        defaults = tuple(default for default in defaults if name in (default.broker, dynamic.this_broker))
        source, value = (dynamic.source(defaults[0]), defaults[0].value) if defaults else (Source.STATIC, text)
        synonyms = [*(set_for_brokers(dynamic, default) for default in defaults), synonym(each, text, Source.STATIC)]
        shown = synonyms if _asks_synonyms(request) else []
        found.append(config(each, kind, value, source, shown, read_only=each not in CHANGEABLE))
    return found if name == ALL_BROKERS else found + _of_one_broker(dynamic, static, request)


def _of_one_broker(dynamic: DynamicConfigs, static: Mapping[str, tuple[ConfigKind, str]], request: Any) -> list[Same]:
    own, found = dynamic.own(dynamic.this_broker), []
    for name, (kind, usual) in OF_ONE_BROKER.items():
        default, usual_source = (static[name][1], Source.STATIC) if name in static else (usual, Source.DEFAULT)
        value = own.get(name, default)
        if kind is ConfigKind.PASSWORD:
            value = None
        elif value is not None and kind is ConfigKind.DOUBLE:
            value = str(float(value))
        told = None if kind is ConfigKind.PASSWORD else own.get(name)
        synonyms = [synonym(name, told, Source.DYNAMIC)] if name in own else []
        if default is not None:
            synonyms.append(synonym(name, default, usual_source))
        source = Source.DYNAMIC if name in own else usual_source
        found.append(config(name, kind, value, source, synonyms if _asks_synonyms(request) else []))
    return found


def _group_configs(broker: Parts, group_id: str) -> list[Same]:
    own, defaults = broker.group_configs.own(group_id), broker.group_configs.defaults
    return [
        config(name, ConfigKind.INT, own.get(name, text), Source.GROUP if name in own else Source.STATIC, [])
        for name, text in defaults.items()
    ]


def _asks_synonyms(request: Any) -> bool:
    return bool(getattr(request, "include_synonyms", False))
