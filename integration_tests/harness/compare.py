"""Compares two topics record by record. Knows nothing about the replicator, and reads with another client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

READ_S_MAX = 180.0


class ReadRecord(NamedTuple):
    """A record as a reader sees it, all of it but its offset."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int

    @property
    def name(self) -> bytes:
        """What identifies it within its partition: the number that the writer put into key or value."""
        text = self.key or self.value or b""
        return text[: len(b"record 00000000")] if text.startswith(b"record ") else text


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """What a partition's copy is worth. All four of lost … altered are zero when it is exact."""

    source: int
    target: int
    lost: int
    doubled: int
    reordered: int
    altered: int

    @property
    def exact(self) -> bool:
        """Whether the target holds exactly what the source holds."""
        return not (self.lost or self.doubled or self.reordered or self.altered) and self.source == self.target


def compare_records(source: Sequence[ReadRecord], target: Sequence[ReadRecord]) -> CopyVerdict:
    """Compare two lists of records.

    A name is lost if the target lacks it, doubled once for each copy too many; a record is altered if its name is
    there with other content, reordered if it stands behind one that it should stand before.
    """
    here, there = Counter(record.name for record in source), Counter(record.name for record in target)
    rank = {record.name: number for number, record in enumerate(source)}
    content = {record.name: record for record in source}
    first: set[bytes] = set()
    highest, reordered, altered = -1, 0, 0
    for record in target:
        if record.name in first:
            continue
        first.add(record.name)
        if record.name not in rank:
            altered += 1
            continue
        altered += record != content[record.name]
        reordered += rank[record.name] < highest
        highest = max(highest, rank[record.name])
    lost, doubled = here - there, there - here
    extra = sum(count for name, count in doubled.items() if name in here)
    return CopyVerdict(len(source), len(target), lost.total(), extra, reordered, altered)


def compare(
    source: str, topic: str, target: str, copy: str, partitions: int, starts: Sequence[int] = ()
) -> dict[int, CopyVerdict]:
    """Read both topics to their last stable offsets and compare each partition; `starts` are source offsets."""
    here, there = asyncio.run(_both(source, topic, target, copy, partitions, starts))
    return {number: compare_records(here[number], there[number]) for number in range(partitions)}


def assert_exact(source: str, topic: str, target: str, copy: str, partitions: int) -> int:
    """Raise AssertionError unless every partition is an exact copy; returns the number of records."""
    verdicts = compare(source, topic, target, copy, partitions)
    assert all(verdict.exact for verdict in verdicts.values()), f"{topic} → {copy}: {verdicts}"
    return sum(verdict.source for verdict in verdicts.values())


def wait_key(bootstrap: str, topic: str, partitions: int, key: bytes, timeout_s: float = READ_S_MAX) -> None:
    """Return once a read_committed reader has seen a record with this key in every partition."""
    asyncio.run(_wait_key(bootstrap, topic, partitions, key, timeout_s))


async def _wait_key(bootstrap: str, topic: str, partitions: int, key: bytes, timeout_s: float) -> None:
    waiting = set(range(partitions))
    async with _reader(bootstrap) as reader:
        _assign(reader, topic, partitions)
        try:
            async with asyncio.timeout(timeout_s):
                while waiting:
                    record = await reader.getone()
                    if record.key == key:
                        waiting.discard(record.partition)
        except TimeoutError:
            raise AssertionError(f"{topic}: no {key!r} in partitions {waiting} within {timeout_s} s") from None


async def _both(
    source: str, topic: str, target: str, copy: str, partitions: int, starts: Sequence[int]
) -> list[list[list[ReadRecord]]]:
    async with asyncio.timeout(READ_S_MAX):
        return [await _read(source, topic, partitions, starts), await _read(target, copy, partitions)]


async def _read(bootstrap: str, topic: str, partitions: int, froms: Sequence[int] = ()) -> list[list[ReadRecord]]:
    found: list[list[ReadRecord]] = [[] for _ in range(partitions)]
    async for partition, _, record in assigned_reader(bootstrap, topic, partitions, froms):
        found[partition].append(record)
    return found


async def assigned_reader(
    bootstrap: str, topic: str, partitions: int, froms: Sequence[int] = ()
) -> AsyncIterator[tuple[int, int, ReadRecord]]:
    """Read partitions to their last stable offsets; yields partition, offset and record."""
    async with _reader(bootstrap) as reader:
        assigned = _assign(reader, topic, partitions)
        ends = await reader.end_offsets(assigned)
        starts = await reader.beginning_offsets(assigned)
        for at, offset in zip(assigned, froms, strict=False):
            reader.seek(at, offset)
            starts[at] = offset
        waiting = {at for at in assigned if ends[at] > starts[at]}
        while waiting:
            for batch in (await reader.getmany(*waiting, timeout_ms=200)).values():
                for record in batch:
                    headers = tuple((key, value) for key, value in record.headers)
                    read = ReadRecord(record.key, record.value, headers, record.timestamp)
                    yield record.partition, record.offset, read
            for at in list(waiting):
                if await reader.position(at) >= ends[at]:
                    waiting.discard(at)


def _reader(bootstrap: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
    )


def _assign(reader: AIOKafkaConsumer, topic: str, partitions: int) -> list[TopicPartition]:
    assigned = [TopicPartition(topic, number) for number in range(partitions)]
    reader.assign(assigned)
    return assigned
