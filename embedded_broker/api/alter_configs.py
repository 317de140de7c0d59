"""AlterConfigs (33).

Behaviour: replaces all own configs of a topic, a consumer group or a broker; durable before it is answered. Clients
prefer IncrementalAlterConfigs.
Version notes: none that matter here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from embedded_broker.api.config_changes import ConfigRejected, change, check_request, refusal, steps
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


@api(33, "alter_configs", range(3), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle AlterConfigs: see the behaviour and version notes above."""
    answers, share = [], conn.share()
    refused_before = check_request(request.resources)
    for wanted in request.resources:
        await share.spent(steps(wanted))
        refused = refused_before.get((wanted.resource_type, wanted.resource_name))
        if refused is not None:
            answers.append(refusal(wanted, refused))
            continue
        configs = {config.name: config.value for config in wanted.configs}
        try:
            await change(broker, wanted, partial(_replace, configs), request.validate_only)
            answers.append(refusal(wanted, None))
        except ConfigRejected as refused:
            answers.append(refusal(wanted, refused))
    return {"responses": answers}


def _replace(configs: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    return configs
