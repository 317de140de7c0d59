"""APIs without anything to do: client quotas are refused, not taken and forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kio.schema.errors import ErrorCode

from tests.embedded_broker.served import serving


def test_no_quota_can_be_set(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            entity = [{"entity_type": "client-id", "entity_name": "c"}]
            for version in (0, 1):
                for remove, error_code in ((False, ErrorCode.invalid_request), (True, ErrorCode.none)):
                    ops = [{"key": "producer_byte_rate", "value": 1.0, "remove": remove}]
                    entries = [{"entity": entity, "ops": ops}]
                    answer = await client.call("alter_client_quotas", version, entries=entries, validate_only=False)
                    assert answer.entries[0].error_code is error_code

    asyncio.run(main())
