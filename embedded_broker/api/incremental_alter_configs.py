"""IncrementalAlterConfigs (44).

Behaviour: sets, deletes, appends to or subtracts from configs of topics, consumer groups and brokers; durable before it
is answered. The changes of a topic are applied atomically. The settings of a broker that are
defaults of topics, and the limits of connections, can be changed while it runs, for this broker or for all brokers
(KIP-226); settings of logins can be changed for this broker alone. Other settings are refused with INVALID_REQUEST.
A list that would become longer than 32,767 bytes is refused with INVALID_CONFIG, as in Kafka.
Version notes: none that matter here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.config_changes import ConfigRejected, change, check_request, refusal, steps
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.broker_configs import OF_ONE_BROKER, TOPIC_DEFAULTS
from embedded_broker.metadata.topic_configs import CONFIGS, ConfigKind, parts_of
from embedded_broker.wire.request_limits import STRING_BYTES_MAX
from embedded_broker.wire.responses import Answer

SET, DELETE, APPEND, SUBTRACT = range(4)
TOO_LONG = (
    f"The configuration value cannot be added because it exceeds the maximum value size of {STRING_BYTES_MAX} bytes."
)
"""As Kafka says it. No request can set a longer one at once."""


@api(44, "incremental_alter_configs", range(2), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle IncrementalAlterConfigs: see the behaviour and version notes above."""
    answers, share = [], conn.share()
    refused_before = check_request(request.resources)
    for wanted in request.resources:
        await share.spent(steps(wanted))
        refused = refused_before.get((wanted.resource_type, wanted.resource_name))
        if refused is not None:
            answers.append(refusal(wanted, refused))
            continue
        try:
            await change(broker, wanted, partial(_apply, wanted), request.validate_only)
            answers.append(refusal(wanted, None))
        except ConfigRejected as refused:
            answers.append(refusal(wanted, refused))
    return {"responses": answers}


def _apply(wanted: Any, own: dict[str, str]) -> dict[str, str]:
    """Return the topic's own configs after the changes. Raises ConfigRejected."""
    changed = dict(own)
    for config in wanted.configs:
        if config.config_operation == DELETE:
            changed.pop(config.name, None)
        elif config.config_operation == SET:
            changed[config.name] = config.value
        else:
            changed[config.name] = _listed(changed, config)
    return changed


def _listed(changed: dict[str, str], config: Any) -> str:
    """Return a list after APPEND or SUBTRACT."""
    of_topic = CONFIGS.get(TOPIC_DEFAULTS.get(config.name, config.name))
    kind, default = (
        OF_ONE_BROKER.get(config.name, (None, None)) if of_topic is None else (of_topic.kind, of_topic.default)
    )
    if kind is not ConfigKind.LIST:
        raise ConfigRejected.invalid(f"{config.name} is not a list")
    parts, given = parts_of(changed.get(config.name, default or "")), parts_of(config.value)
    if config.config_operation == APPEND:
        known = set(parts)
        longer = ",".join([*parts, *dict.fromkeys(part for part in given if part not in known)])
        if len(longer.encode()) > STRING_BYTES_MAX:
            raise ConfigRejected.invalid(TOO_LONG)
        return longer
    if config.config_operation == SUBTRACT:
        return ",".join(part for part in parts if part not in given)
    raise ConfigRejected(ErrorCode.invalid_request, f"unknown operation {config.config_operation}")
