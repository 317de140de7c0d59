"""`eos-replicate log dump` shows what stands in the files, and where they are damaged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.commands.log import log
from cli.main import invoke
from kafka_records.batch import TRANSACTIONAL
from kafka_records.control import marker
from tests.embedded_broker.served import batch, serving

IDS = {"producer_id": 7, "producer_epoch": 2}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic with a plain batch, an aborted transaction and one that is open."""
    directory = tmp_path_factory.mktemp("data")

    async def main() -> None:
        async with serving(directory) as served:
            await served.topic("t", 2)
            client = await served.client()
            init = {"transactional_id": "tx-a", "transaction_timeout": 60_000}
            await client.call("init_producer_id", 3, **init, producer_id=-1, producer_epoch=-1)
            offset = {"partition_index": 0, "committed_offset": 42, "committed_metadata": "m"}
            member = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
            topics = [{"name": "t", "partitions": [offset]}]
            await client.call("offset_commit", 5, **member, topics=topics)
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            partition.append(batch(b"one", b"\xfftwo"))
            partition.append(batch(b"x", attributes=TRANSACTIONAL, base_sequence=0, **IDS))
            partition.append(marker(7, 2, commit=False, timestamp_ms=5))
            partition.append(batch(b"y", attributes=TRANSACTIONAL, base_sequence=1, **IDS))

    asyncio.run(main())
    return directory


def partition_dir(data_dir: Path) -> Path:
    """Of the partition that was written to."""
    first = [path for path in (data_dir / "partitions").iterdir() if path.name.endswith("-0")]
    return next(path for path in first if _topic(path) == "t")


def _topic(path: Path) -> str:
    return str(events(path)[0]["topic"])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(log, ["dump", *arguments], catch_exceptions=False)


def events(path: Path, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("--json", *options, str(path)).stdout.splitlines()]


def test_a_partition(data_dir: Path) -> None:
    text = run("--records", str(partition_dir(data_dir))).stdout
    for line in (
        "t-0  /",
        "log start 0, durable 5, compacted 0, checkpoint none",
        "segment 00000000000000000000.log: ",
        "    0..1  byte 0, ",
        "2 records",
        "      0  'k' = 'one'",
        "      1  'k' = '\\\\xfftwo'",
        "transaction of producer 7 epoch 2, sequence 0",
        "abort marker",
        "  end 5, 1 producers",
        "  open transaction of producer 7 since 4",
        "  aborted transaction of producer 7: 2..3",
    ):
        assert line in text


def test_a_whole_data_directory_with_what_the_internal_records_mean(data_dir: Path) -> None:
    found = events(data_dir, "--records")
    names = {event["topic"] for event in found if event["event"] == "partition"}
    assert names == {"__cluster_metadata", "__consumer_offsets", "__transaction_state", "t"}
    meanings = [event["means"] for event in found if event.get("means")]
    assert [m["transaction"]["state"] for m in meanings if m.get("transactional_id") == "tx-a"] == ["EMPTY"]
    assert [m["committed"]["offset"] for m in meanings if m.get("group_id") == "g" and m.get("committed")] == [42]
    assert not [event for event in found if event["event"] in ("damage", "torn")]


def test_one_segment_and_what_is_none_of_all(data_dir: Path, tmp_path: Path) -> None:
    found = events(partition_dir(data_dir) / "00000000000000000000.log")
    assert [event["event"] for event in found] == ["partition", "segment", "batch", "batch", "batch", "batch", "state"]
    assert invoke(["log", "dump", str(tmp_path)]) == 2
    assert invoke(["log", "dump", str(partition_dir(data_dir))]) == 0


def copied(data_dir: Path, to: Path, data: bytes, durable: bool = True) -> Path:
    for path in partition_dir(data_dir).iterdir():
        if path.suffix != ".log" and (durable or path.name != "durable"):
            (to / path.name).write_bytes(path.read_bytes())
    (to / "00000000000000000000.log").write_bytes(data)
    return to


def test_damage_is_named_and_is_the_exit_code(data_dir: Path, tmp_path: Path) -> None:
    whole = (partition_dir(data_dir) / "00000000000000000000.log").read_bytes()
    second = len(batch(b"one", b"\xfftwo"))
    broken = bytearray(whole)
    broken[second + 65] ^= 1
    directory = copied(data_dir, tmp_path, bytes(broken))
    damage = [event for event in events(directory) if event["event"] == "damage"]
    assert [(each["at"], each["offset"]) for each in damage] == [(second, 2)]
    assert damage[0]["why"].startswith("CRC")
    assert invoke(["log", "dump", str(directory)]) == 1
    assert (
        f"DAMAGED: {directory}/00000000000000000000.log at byte {second}, offset 2: CRC" in run(str(directory)).stdout
    )
    (directory / "log-start").write_bytes(b"junk")
    assert "log-start at byte 0" in run(str(directory)).stdout


def test_a_torn_end_is_no_damage(data_dir: Path, tmp_path: Path) -> None:
    whole = (partition_dir(data_dir) / "00000000000000000000.log").read_bytes()
    directory = copied(data_dir, tmp_path, whole[:-3], durable=False)
    assert "torn end" in run(str(directory)).stdout
    assert invoke(["log", "dump", str(directory)]) == 0
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == {
        "00000000000000000000.log": whole[:-3]
    }, "nothing is changed"
