"""Readers: poll partitions at either isolation level, and keep what they saw for the checker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.fetching import Fetcher, Style
from embedded_broker.simulation.history import GroupOffset, History, PartitionReads, TopicPartition, ViolationKind
from embedded_broker.simulation.wire import NoResponse, SimulatedClient
from kafka_records.batch import CorruptBatch, iter_batches
from kafka_records.records import decode

NONE = ErrorCode.none
LATEST = -1
"""The timestamp that stands for the end."""


class SimulatedReader:
    """Reads partitions of one topic from their beginning. One batch or more at a time: polls are small on purpose."""

    def __init__(
        self,
        client: SimulatedClient,
        history: History,
        name: str,
        partitions: Sequence[TopicPartition],
        committed: bool,
        style: Style | None = None,
    ) -> None:
        """`style`: how it fetches; None: whole requests."""
        self.client, self._history, self.name, self._committed = client, history, name, committed
        self.reads = {partition: PartitionReads(name, partition, committed) for partition in partitions}
        self.positions = dict.fromkeys(partitions, 0)
        self.topic = partitions[0][0]
        self._fetcher = Fetcher(client, history, name, self.topic, committed, style or Style())
        history.reads.extend(self.reads.values())

    async def poll(self, max_wait_ms: int = 500) -> dict[TopicPartition, list[tuple[int, bytes]]]:
        """Fetch once, and return the (offset, value) that it gave, by partition. Raises NoResponse."""
        asked = {index: offset for (_, index), offset in self.positions.items()}
        found = {}
        for each in await self._fetcher.fetch(asked, max_wait_ms):
            partition = self.topic, each.partition_index
            if partition in self.positions:
                found[partition] = self._take(partition, each)
            else:
                self._history.found(
                    ViolationKind.BROKEN, f"{self.name}: an answer about {partition}, which it doesn't read"
                )
        return found

    async def ends(self) -> dict[TopicPartition, int]:
        """Ask up to where it could read now. Raises NoResponse."""
        partitions = [{"partition_index": index, "timestamp": LATEST} for _, index in self.positions]
        topics = [{"name": self.topic, "partitions": partitions}]
        answer = await self.client.call("list_offsets", 7, isolation_level=int(self._committed), topics=topics)
        return {(self.topic, each.partition_index): each.offset for each in answer.topics[0].partitions}

    def starved(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note that it doesn't get what is there."""
        missing = {each: (self.positions[each], end) for each, end in ends.items() if self.positions[each] < end}
        self._history.found(ViolationKind.STARVED, f"{self.name}: positions and ends {missing}")

    def _take(self, partition: TopicPartition, answer: Any) -> list[tuple[int, bytes]]:
        reads = self.reads[partition]
        if answer.error_code is ErrorCode.offset_out_of_range and self.positions[partition] < answer.log_start_offset:
            # Its records have had their time; the checker knows whether they have.
            self._note_start(reads, answer.log_start_offset)
            self.positions[partition] = answer.log_start_offset
            return []
        if answer.error_code is not NONE:
            self._history.found(ViolationKind.BROKEN, f"{self.name}, {partition}: fetch gave {answer.error_code.name}")
            return []
        self._note_ends(reads, answer)
        try:
            records = self._records(partition, answer)
        except CorruptBatch as error:
            self._history.found(ViolationKind.BROKEN, f"{self.name}, {partition}: {error}")
            return []
        for offset, value in records:
            if reads.values.setdefault(offset, value) != value:
                detail = f"{self.name}, {partition}: {reads.values[offset]!r} at {offset} has become {value!r}"
                self._history.found(ViolationKind.DIRTY_READ, detail)
        reads.end = max(reads.end, self.positions[partition])
        return records

    def _note_start(self, reads: PartitionReads, log_start: int) -> None:
        if log_start < reads.log_start:
            detail = f"{self.name}, {reads.partition}: the log start went from {reads.log_start} to {log_start}"
            self._history.found(ViolationKind.NON_MONOTONIC, detail)
        reads.log_start = log_start
        self._history.log_starts.setdefault(reads.partition, {}).setdefault(log_start, self.client.now_max_ms)

    def _note_ends(self, reads: PartitionReads, answer: Any) -> None:
        """Check that what is durable stays so, and what is decided, too."""
        self._note_start(reads, answer.log_start_offset)
        for name, before, now in (
            ("high watermark", reads.high_watermark, answer.high_watermark),
            ("last stable offset", reads.last_stable, answer.last_stable_offset),
        ):
            if now < before:
                self._history.found(
                    ViolationKind.NON_MONOTONIC,
                    f"{self.name}, {reads.partition}: the {name} went from {before} to {now}",
                )
        reads.high_watermark, reads.last_stable = answer.high_watermark, answer.last_stable_offset

    def _records(self, partition: TopicPartition, answer: Any) -> list[tuple[int, bytes]]:
        """Return what an application gets, in order; move the position."""
        found = []
        starts = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        aborted: set[int] = set()
        for header, data in iter_batches(answer.records or b""):
            position = self.positions[partition]
            if header.last_offset < position and position:
                detail = f"{self.name}, {partition}: a batch that ends at {header.last_offset}, asked from {position}"
                self._history.found(ViolationKind.NON_MONOTONIC, detail)
            while starts and starts[0][0] <= header.last_offset:
                aborted.add(starts.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (self._committed and header.is_transactional and header.producer_id in aborted):
                records = [each for each in decode(data) if each.offset >= position]
                found += [(each.offset, each.value or b"") for each in records]
                self.reads[partition].keys.update((each.offset, each.key or b"") for each in records)
            self.positions[partition] = max(position, header.last_offset + 1)
        return found


class GroupReader:
    """An application that reads until `done`, commits its positions to a group, and starts over from them now and
    then, and whenever it has lost its connection."""

    def __init__(self, reader: SimulatedReader, history: History, group: str, done: asyncio.Event) -> None:
        self._reader, self._client, self._history, self._group, self._done = (
            reader,
            reader.client,
            history,
            group,
            done,
        )
        self._commits = {partition: GroupOffset(group, partition) for partition in reader.positions}
        history.group_offsets.extend(self._commits.values())

    async def run(self) -> None:
        """Run until `done` is set."""
        random, is_new = self._client.random, True
        while not self._done.is_set():
            try:
                if is_new or random.random() < 0.05:
                    await self._start_over()
                is_new = False
                await self._reader.poll()
                if random.random() < 0.5:
                    await self._commit()
            except NoResponse:
                is_new = True
                await self._client.pause()

    async def _commit(self) -> None:
        partition, offset = self._client.random.choice(list(self._reader.positions.items()))
        commit = self._commits[partition]
        commit.unknown.append(offset)
        each = {"partition_index": partition[1], "committed_offset": offset, "committed_metadata": ""}
        answer = await self._client.call(
            "offset_commit",
            8,
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": partition[0], "partitions": [each]}],
        )
        error_code = answer.topics[0].partitions[0].error_code
        commit.unknown.pop()
        if error_code is NONE:
            commit.acked = offset
        elif error_code is ErrorCode.not_coordinator:
            self._history.refused(self._client.now_s, f"{self._group}: {error_code.name}")
        else:
            self._history.found(ViolationKind.BROKEN, f"{self._group}: a commit gave {error_code.name}")

    async def _start_over(self) -> None:
        """Start from the committed offsets, as a restarted application does."""
        found = await fetch_offsets(self._client, self._group, list(self._commits))
        for partition, offset in found.items():
            check_offset(self._history, self._commits[partition], offset)
            self._reader.positions[partition] = max(offset, 0)


def check_offset(history: History, commits: GroupOffset, offset: int) -> None:
    """Check whether the broker may say that this is the position of a group."""
    if not commits.allows(offset):
        detail = f"{commits.group}, {commits.partition}: {offset}, acknowledged was {commits.acked}"
        if commits.unknown:
            detail += f", and tried {commits.unknown}"
        history.found(ViolationKind.WRONG_GROUP_OFFSET, detail)


async def fetch_offsets(
    client: SimulatedClient, group: str, partitions: Sequence[TopicPartition], stable: bool = False
) -> dict[TopicPartition, int]:
    """Fetch the positions of a group; -1 where there is none. With `stable`, wait until no transaction is about to
    change them.

    Raises NoResponse.
    """
    topic = partitions[0][0]
    indexes = [index for _, index in partitions]
    while True:
        asked = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": indexes}]}]
        answer = await client.call("offset_fetch", 8, groups=asked, require_stable=stable)
        found = answer.groups[0].topics[0].partitions
        if all(each.error_code is NONE for each in found):
            return {(topic, each.partition_index): each.committed_offset for each in found}
        await client.pause()


async def ask_offsets(
    client: SimulatedClient, group: str, partitions: Sequence[TopicPartition], stable: bool = False
) -> dict[TopicPartition, int]:
    """Fetch as `fetch_offsets` does, again and again until there is an answer."""
    while True:
        try:
            return await fetch_offsets(client, group, partitions, stable)
        except NoResponse:
            await client.pause()
