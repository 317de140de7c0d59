"""Who may read the files: their owner. There are records, password hashes and ACLs in them."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from embedded_broker.storage.log.fs import RealFileSystem
from tests.embedded_broker.served import batch, produce, serving


def _modes(directory: Path) -> dict[str, int]:
    found = {str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}
    return {name: mode for name, mode in found.items() if mode & 0o077}


def test_files_are_their_owners(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "made" / "data") as served:
            await served.topic("t")
            client = await served.client()
            await client.call("produce", 9, **produce("t", batch(b"v")))
            (partition,) = [each for each in served.broker.topics.partitions() if each.topic == "t"]
            partition.log.write_checkpoint(partition.capture())

    before = os.umask(0)
    try:
        asyncio.run(main())
    finally:
        os.umask(before)
    assert _modes(tmp_path / "made" / "data") == {}
    assert stat.S_IMODE((tmp_path / "made" / "data").stat().st_mode) == 0o700


def test_a_data_directory_that_all_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    RealFileSystem().lock(tmp_path / "data").release()
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o750
