"""Produce parses the header of each batch once, also in a request with a transactional id."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kafka_records.batch import TRANSACTIONAL, read_header
from tests.embedded_broker.served import batch, produce, serving

PARTITIONS = 3
PRODUCER_ID = slice(43, 51)
"""Where it stands in a batch."""


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_each_header_is_read_once(tmp_path: Path, transactional_id: str | None) -> None:
    """Version 12 adds the partitions to the transaction by itself, which asks for the producers in the headers, too."""
    read = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal read
        read += event == "call" and frame.f_code is read_header.__code__ and _of_a_producer(frame)

    async def main() -> None:
        async with serving(tmp_path, retention_check_interval_ms=3_600_000) as served:
            await served.topic("t", PARTITIONS)
            client = await served.client()
            timeout = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
            mine = await client.call("init_producer_id", 4, transactional_id=transactional_id, **timeout)
            fields: dict[str, Any] = {"attributes": TRANSACTIONAL} if transactional_id else {}
            data = batch(
                b"v", producer_id=mine.producer_id, producer_epoch=mine.producer_epoch, base_sequence=0, **fields
            )
            sys.setprofile(note)
            try:
                request = produce("t", *(data,) * PARTITIONS, transactional_id=transactional_id)
                answer = await client.call("produce", 12, **request)
            finally:
                sys.setprofile(None)
            assert {each.error_code for each in answer.responses[0].partition_responses} == {ErrorCode.none}

    asyncio.run(main())
    assert read == PARTITIONS


def _of_a_producer(frame: FrameType) -> bool:
    """Whether it is the header of a client's batch: those that the coordinator writes have no producer."""
    data = frame.f_locals[frame.f_code.co_varnames[0]]
    return int.from_bytes(data[PRODUCER_ID], "big", signed=True) >= 0
