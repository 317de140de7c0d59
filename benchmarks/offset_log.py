"""How large `__consumer_offsets` gets, and how long a start takes, after many commits by transactions that overlap.

    python -m benchmarks.offset_log --commits 10000000

Each of several lanes commits the offsets of its own partitions in one transaction after another, and always begins one
before another lane's ends, so that there is never a moment without an open transaction. What is measured is the
broker's own part, without clients and sockets: its coordinators, its logs on disk, and `Broker.start` afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from kio.schema.errors import ErrorCode

from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig, Fsync
from embedded_broker.coordinators.offsets import Committer
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION, OFFSETS_TOPIC

LANES, PARTITIONS = 4, 250
"""PARTITIONS is of each lane: so many offsets are in one transaction."""


async def _commit(broker: Broker, lane: int, producer: tuple[int, int], number: int) -> None:
    offsets, group, who = broker.groups.offsets, broker.groups.get("lanes"), Committer("lanes")
    topic = broker.topics.get(f"t{lane}")
    assert topic is not None
    commits = [
        offsets.prepared(who, (topic.name, index), number, -1, "", topic.topic_id) for index in range(PARTITIONS)
    ]
    results = await offsets.commit_in_transaction(who, group, *producer, commits)
    assert set(results.values()) == {ErrorCode.none}


async def _create_topics(broker: Broker) -> None:
    async with broker.changes.one():
        for lane in range(LANES):
            await broker.topics.create(f"t{lane}", PARTITIONS, {})


async def _write(directory: Path, commits: int) -> dict[str, float]:
    broker = Broker(BrokerConfig(directory, port=0, fsync=Fsync.NEVER))
    await broker.start()
    await broker.changes.finish("topics", lambda: _create_topics(broker))
    producers = []
    for lane in range(LANES):
        identity = await broker.transactions.init_producer_id(f"lane{lane}", 60_000, None)
        producers.append((identity.producer_id, identity.epoch))
    begun, largest = time.monotonic(), 0
    for number in range(commits // PARTITIONS):
        lane = number % LANES
        name, producer = f"lane{lane}", producers[lane]
        added = await broker.transactions.add_partitions(name, *producer, [OFFSETS_PARTITION])
        assert added is ErrorCode.none, added
        await _commit(broker, lane, producer, number)
        before = (lane - LANES // 2) % LANES  # it has been open since, and so have those between
        if number >= LANES:
            ended = await broker.transactions.end(f"lane{before}", *producers[before], True)
            assert ended.error_code is ErrorCode.none, ended
        largest = max(largest, broker.internal_log(OFFSETS_TOPIC).log.size_bytes)
    took_s = time.monotonic() - begun
    await broker.stop()
    return {"commits": commits, "seconds": round(took_s, 1), "largest_bytes": largest}


async def _start(directory: Path) -> dict[str, float]:
    broker = Broker(BrokerConfig(directory, port=0))
    begun = time.monotonic()
    await broker.start()
    took_s = time.monotonic() - begun
    log = broker.internal_log(OFFSETS_TOPIC)
    found = {"records": log.log_end - log.log_start, "bytes": log.log.size_bytes, "start_s": round(took_s, 3)}
    await broker.stop()
    return found


def measure(directory: Path, commits: int) -> dict[str, float]:
    """Write in one broker, start another on what it has left."""
    return {**asyncio.run(_write(directory, commits)), **asyncio.run(_start(directory))}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(measure(Path(directory), arguments.commits)))


if __name__ == "__main__":
    main()
