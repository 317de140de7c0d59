"""Records by their time, as ListOffsets finds them, in a log that doesn't change meanwhile."""

from __future__ import annotations

import asyncio

from embedded_broker.api.time_search import Found, Log, TimeSearch
from embedded_broker.produce.batch_checks import BatchChecks
from embedded_broker.runtime.fair_share import FairShare

AT_ONCE_BYTES_MAX = 1 << 20


def offset_for_time(log: Log, timestamp_ms: int) -> Found:
    """The first record at or after a time."""

    async def find() -> Found:
        return await _search().first_at(log, timestamp_ms, 0)

    return asyncio.run(find())


def max_timestamp(log: Log) -> Found:
    """The first record with the highest timestamp."""

    async def find() -> Found:
        return await _search().latest(log)

    return asyncio.run(find())


def _search() -> TimeSearch:
    return TimeSearch(BatchChecks(AT_ONCE_BYTES_MAX), FairShare(500).request())
