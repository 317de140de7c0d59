"""AlterConfigs (33).

Behaviour: replaces all of a topic's own configs; durable before it is answered. Clients prefer IncrementalAlterConfigs.
Version notes: none that matter here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from embedded_broker.api.registry import Answer, api
from embedded_broker.config_changes import Refused, change_topic, refusal

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection


@api(33, "alter_configs", range(3))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    answers = []
    for wanted in request.resources:
        configs = {config.name: config.value for config in wanted.configs if config.value is not None}
        try:
            await change_topic(broker, wanted, partial(_replace, configs), request.validate_only)
            answers.append(refusal(wanted, None))
        except Refused as refused:
            answers.append(refusal(wanted, refused))
    return {"responses": answers}


def _replace(configs: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    return configs
