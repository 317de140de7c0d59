"""A topic whose files can't all be removed is deleted all the same: nothing waits for it any more."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state.transactions import PREPARED
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from tests.embedded_broker.served import serving


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO], ids=["no file", "disk"])
def test_what_has_to_do_with_the_topic_is_forgotten(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        fs = MemoryFileSystem()
        async with serving(tmp_path, fs) as served:
            await served.topic("t", 2)
            client, broker = await served.client(), served.broker
            offset = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
            await client.call(
                "offset_commit", 7, group_id="g", generation_id_or_member_epoch=-1, member_id="",
                group_instance_id=None, topics=[{"name": "t", "partitions": [offset]}],
            )  # fmt: skip
            assert broker.groups.offsets.fetch("g", None, False)
            coordinator = broker.transactions
            identity = await coordinator.init_producer_id("id", 60_000, None)
            producer = identity.producer_id, identity.epoch
            assert await coordinator.add_partitions("id", *producer, [("t", 0), ("t", 1)]) is ErrorCode.none
            stopped, whole = (broker.topics.partition("t", index) for index in (0, 1))
            assert stopped is not None
            assert whole is not None
            stopped.stop(ValueError("bug"))
            assert (await coordinator.end("id", *producer, commit=True)).error_code is ErrorCode.none
            while not coordinator._completion._held_up:  # noqa: ASYNC110
                await asyncio.sleep(0)
            names = fs.names

            def fail(directory: Path) -> list[str]:
                if directory == stopped.log.directory:
                    raise OSError(number, "it can't be listed")
                return names(directory)

            monkeypatch.setattr(fs, "names", fail)
            client.send("delete_topics", 5, topic_names=["t"], timeout=1_000)
            assert await client.closed()
            assert broker.topics.get("t") is None
            assert not broker.groups.offsets.fetch("g", None, False)
            assert stopped.closed
            assert whole.closed
            assert whole.log.directory not in fs._directories
            assert broker.failed.done() is (number == errno.EIO)
            if not broker.failed.done():
                while coordinator.all()[0].state in PREPARED:  # noqa: ASYNC110
                    await asyncio.sleep(0)

    asyncio.run(main())
