"""AlterClientQuotas (49).

Behaviour: quotas of users, client ids and addresses are checked and kept, durably before the answer. Connections of an
address that come faster than its connection_creation_rate, over ten seconds, are closed; nothing else is throttled.
Names of more than 4,096 bytes are refused with INVALID_REQUEST, and new quotas with POLICY_VIOLATION when all metadata
takes too much memory.
Version notes: v1 is flexible.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.disk_full import refused_with
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.client_quotas import QuotaRejected, check
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

ENTRY_STEPS = 20


@api(49, "alter_client_quotas", range(2), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle AlterClientQuotas: see the behaviour and version notes above."""
    share, entries = conn.share(), []
    for entry in request.entries:
        await share.spent(ENTRY_STEPS, ENTRY_BYTES)
        entries.append(await _change(broker, entry, request.validate_only))
    return {"entries": entries}


async def _change(broker: Parts, entry: Any, validate_only: bool) -> dict[str, Any]:
    error_code, message = ErrorCode.none, None
    entity = {each.entity_type: each.entity_name for each in entry.entity}
    changes = {op.key: None if op.remove else op.value for op in entry.ops}
    try:
        check(entity, changes)
        if not validate_only:
            await broker.client_quotas.change(entity, changes)
    except QuotaRejected as error:
        error_code, message = ErrorCode.invalid_request, str(error)
    except NoSpace as error:
        error_code, message = refused_with(error)
    named = [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity]
    return {"error_code": error_code, "error_message": message, "entity": named}
