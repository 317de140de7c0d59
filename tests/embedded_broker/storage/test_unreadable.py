"""The disk gives an error instead of bytes, at every read of every API that reads: it stops that partition and nothing
else, and a restart on a sound disk has lost nothing."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from kio.schema.errors import ErrorCode

from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.storage.log.format import CHECKPOINT, DURABLE
from embedded_broker.storage.log.fs import SyncFailed
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.log.segment import CorruptLog
from embedded_broker.storage.partition import PartitionStopped
from embedded_broker.wire.responses import Answer
from kafka_records.batch import HEADER_BYTES
from tests.embedded_broker.served import Client, Served, batch, fetch, serving

NONE, STORAGE = ErrorCode.none, ErrorCode.kafka_storage_error
BATCHES = 12
VALUE = bytes(1_500)  # so that an index entry has several batches behind it


def _time(number: int) -> int:
    return 1_700_000_000_000 + number


async def _put(client: Client, index: int, data: bytes) -> ErrorCode:
    topics = [{"name": "t", "partition_data": [{"index": index, "records": data}]}]
    answer = await client.call("produce", 9, acks=-1, timeout=1000, transactional_id=None, topic_data=topics)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def _written(directory: Path, fs: MemoryFileSystem, **configs: str) -> None:
    """Two partitions with some segments each, and checkpoints, so that a start doesn't read all of it."""
    async with serving(directory, fs) as served:
        await served.topic("t", 2, segment_bytes="8000", **configs)
        client = await served.client()
        for number in range(BATCHES):
            for index in range(2):
                assert await _put(client, index, batch(VALUE, timestamp_ms=_time(number))) is NONE
        for partition in served.broker.topics.get("t").partitions:  # type: ignore[union-attr]
            partition.log.write_checkpoint(partition.capture())


Ask = Callable[[Served, Client], Any]


async def _fetch(served: Served, client: Client, offset: int, bytes_max: int) -> ErrorCode:
    fields = fetch("t", offset, partition_max_bytes=bytes_max)
    return ErrorCode((await client.call("fetch", 9, **fields)).responses[0].partitions[0].error_code)


async def _list(served: Served, client: Client, timestamp: int) -> ErrorCode:
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    return ErrorCode((await client.call("list_offsets", 7, topics=asked)).topics[0].partitions[0].error_code)


async def _epoch(served: Served, client: Client) -> ErrorCode:
    asked = [{"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]
    answer = await client.call("offset_for_leader_epoch", 4, topics=asked)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def _delete_records(served: Served, client: Client) -> ErrorCode:
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 7}]}]
    answer = await client.call("delete_records", 2, topics=asked, timeout=1000)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def _keep(served: Served) -> ErrorCode:
    """What the broker does by itself."""
    await served.broker._retention.enforce()
    await served.broker._retention._compaction.run_once(served.broker.topics.partitions())
    partition = served.broker.topics.partition("t", 0)
    return NONE if partition is not None and partition.stopped is None else STORAGE


READERS: dict[str, Ask] = {
    **{f"fetch {offset} {size}": partial(_fetch, offset=offset, bytes_max=size)
       for offset, size in ((0, 1), (1, 5_000), (7, 100_000), (BATCHES - 1, 1))},
    **{f"list_offsets {time}": partial(_list, timestamp=time)
       for time in (-1, -2, -3, _time(0), _time(8), _time(BATCHES - 1))},
    "offset_for_leader_epoch": _epoch,
    "produce": lambda served, client: _put(client, 0, batch(b"more")),
    "delete_records": _delete_records,
    "retention and compaction": lambda served, client: _keep(served),
}  # fmt: skip


@pytest.mark.tier("default")
@pytest.mark.parametrize("what", READERS)
def test_a_read_that_fails_stops_its_partition(tmp_path: Path, what: str) -> None:
    configs = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"} if "compaction" in what else {}

    async def main() -> None:
        fs = MemoryFileSystem()
        await _written(tmp_path, fs, **configs)
        failed = 0
        while True:
            async with serving(tmp_path, fs) as served:
                client, other = await served.client(), await served.client()
                fs.fail("read", errno.EIO, after=failed)
                code = await READERS[what](served, client)
                struck = not fs._faults
                fs._faults.clear()
                assert code is (STORAGE if struck else NONE), f"read {failed}"
                stopped, whole = served.broker.topics.get("t").partitions  # type: ignore[union-attr]
                assert (stopped.stopped is not None) == struck
                assert whole.stopped is None
                again = (await other.call("fetch", 9, **fetch("t", 7, 7))).responses[0].partitions
                assert [each.error_code for each in again] == [STORAGE if struck else NONE, NONE]
                assert again[1].records
                assert await _put(other, 1, batch(b"x")) is NONE
                assert not served.broker.failed.done()
            if not struck:
                break
            failed += 1
        reads = {"offset_for_leader_epoch": 0, "list_offsets -1": 0, "list_offsets -2": 0, "delete_records": 0}
        assert failed >= reads.get(what, 1), "how many reads there were"

    asyncio.run(main())


def test_a_start_that_cannot_read_cuts_nothing(tmp_path: Path) -> None:
    """At every read of a start: a partition is stopped, or the start fails; the files stay as they are."""

    async def main() -> None:
        fs = MemoryFileSystem()
        await _written(tmp_path, fs)
        outcomes = set()
        for kind in ("read", "read_small"):
            number = 0
            while True:
                before = {path: bytes(inode.data) for path, inode in fs._inodes.items() if path.suffix == ".log"}
                fs.fail(kind, errno.EIO, after=number)
                number += 1
                broker = Broker(BrokerConfig(tmp_path, port=0), fs)
                try:
                    await broker.start()
                except (CorruptLog, OSError):
                    broker.abandon()
                    outcomes.add("no start")
                    struck = True
                else:
                    struck = not fs._faults
                    stopped = [each.stopped is not None for each in broker.topics.get("t").partitions]  # type: ignore[union-attr]
                    assert sum(stopped) == struck or (kind == "read_small" and not any(stopped))
                    outcomes.add(f"{sum(stopped)} stopped")
                    await broker.stop()
                fs.process_gone()
                after = {path: bytes(inode.data) for path, inode in fs._inodes.items() if path.suffix == ".log"}
                assert {path: data[: len(before[path])] for path, data in after.items()} == before
                if not struck:
                    break
        assert outcomes == {"no start", "1 stopped", "0 stopped"}
        async with serving(tmp_path, fs) as served:
            client = await served.client()
            got = (await client.call("fetch", 9, **fetch("t", 0, 0))).responses[0].partitions
            assert [(each.error_code, each.high_watermark) for each in got] == [(NONE, BATCHES)] * 2

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["sync", "sync_directory"])
def test_a_start_fails_when_its_fsync_fails(tmp_path: Path, kind: str) -> None:
    """What can't be read stops its partition; after a failed fsync nobody knows what is on the disk."""

    async def main() -> None:
        fs = MemoryFileSystem()
        await _written(tmp_path, fs)
        refused, number = set(), 0
        while True:
            for path in [path for path in fs._inodes if path.name in (CHECKPOINT, DURABLE)]:
                fs.remove(path)  # so that everything has to be flushed
            fs.fail(kind, errno.ENOSPC, after=number)  # even that is no full disk then
            number += 1
            broker = Broker(BrokerConfig(tmp_path, port=0), fs)
            try:
                await broker.start()
            except OSError as error:
                broker.abandon()
                refused.add(type(error))
            else:
                struck = not fs._faults
                assert not struck or broker.failed.done()
                assert all(each.stopped is None for each in broker.topics.get("t").partitions)  # type: ignore[union-attr]
                broker.abandon()
                if not struck:
                    break
            fs.process_gone()
        assert refused == {SyncFailed}
        assert number > 5, "of the metadata, two internal topics and two partitions"

    asyncio.run(main())


def test_an_internal_topic_that_cannot_be_read_is_written_nevertheless(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offset = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}]
    member = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}

    async def main() -> None:
        fs = MemoryFileSystem()
        async with serving(tmp_path, fs) as served:
            await served.topic("t")
            client = await served.client()
            for _ in range(2):
                committed = await client.call("offset_commit", 5, **member, topics=offset)
                assert committed.topics[0].partitions[0].error_code is NONE
                fs.fail("read", errno.EIO)
                answer = (await client.call("fetch", 9, **fetch(OFFSETS_TOPIC, 0))).responses[0].partitions[0]
                assert answer.error_code is STORAGE
            assert caplog.text.count(f"partition {OFFSETS_TOPIC}-0 is damaged: ") == 1
            assert (await client.call("fetch", 9, **fetch(OFFSETS_TOPIC, 0))).responses[0].partitions[0].records

    asyncio.run(main())


def test_records_that_a_client_wrote_undecodable_stop_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        fs = MemoryFileSystem()
        async with serving(tmp_path, fs) as served:
            await served.topic("t")
            client = await served.client()
            data = bytearray(batch(b"v", timestamp_ms=_time(5)))
            data[HEADER_BYTES + 4] = 0x7E  # a key of 63 bytes
            data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
            assert await _put(client, 0, bytes(data)) is NONE
            assert await _list(served, client, _time(1)) is ErrorCode.invalid_record
            assert await _list(served, client, -3) is ErrorCode.invalid_record
            assert await _put(client, 0, batch(b"v")) is NONE
            assert (await client.call("fetch", 9, **fetch("t", 0))).responses[0].partitions[0].records

    asyncio.run(main())


ERRORS: list[tuple[Exception, bool]] = [
    (ssl.SSLError(1, "the client has gone"), False),
    (ConnectionResetError("the client has gone"), False),
    (NoSpace(errno.ENOSPC, "full"), False),
    (PartitionStopped(errno.EIO, "damaged"), False),
    (TimeoutError("a bug"), False),
    (OSError(errno.EIO, "could not be written"), True),
]


@pytest.mark.parametrize(("error", "fatal"), ERRORS, ids=lambda each: type(each).__name__)
def test_which_errors_end_the_broker(tmp_path: Path, error: Exception, fatal: bool) -> None:
    async def failing(*_: Any) -> Answer:
        raise error

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with serving(tmp_path, MemoryFileSystem()) as served:
            metadata = served.server.apis[3]
            served.server.apis = {**served.server.apis, 3: replace(metadata, handle=failing)}
            client, other = await served.client(), await served.client()
            client.send("metadata", 9, topics=None)
            assert await client.closed()
            assert served.broker.failed.done() is fatal
            if not fatal:
                assert (await other.call("api_versions", 2)).api_keys
            else:
                await served.broker.stop()

    asyncio.run(main())
