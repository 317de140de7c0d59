"""Topics and what is durably known of them: the metadata log, topic ids, partitions, configs.

Invariants
- A topic is visible once its metadata record is durable, and gone once its tombstone is; directories that no record
  names are left-overs of a crash and are removed at start.
- All changes are made one after the other (`Changes.one`), so two creations of one name cannot both succeed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from embedded_broker.config.thresholds import Thresholds
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.metadata.topic_configs import log_config
from embedded_broker.metadata.topic_names import INTERNAL, metric_name
from embedded_broker.state.producer_quota import ProducerQuota
from embedded_broker.storage.disk_space import DiskSpace, NoSpace
from embedded_broker.storage.failures import call_all
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.log.fs import FileSystem, SyncFailed
from embedded_broker.storage.log.segment import CorruptLog, OnBatch
from embedded_broker.storage.log_config import LogConfig
from embedded_broker.storage.partition import Partition

MADE_AT_ONCE = 4
"""Partitions that are made before others have their turn."""
PREFIX = "topic:"


@dataclass(slots=True, eq=False)
class Topic:
    """One topic. `topic_id` changes when a topic of the same name is created again."""

    name: str
    topic_id: uuid.UUID
    configs: dict[str, str]
    """Those set for the topic; all others have the defaults of the broker, or those of `topic_configs`."""
    partitions: list[Partition] = field(default_factory=list)
    growth: list[tuple[int, int]] = field(default_factory=list)
    """(the broker's boot epoch, number of partitions that the topic had then), for each time it got partitions."""

    def boot_epoch_of(self, index: int) -> int:
        """Return the boot epoch in which the partition was made; 0 for those of a broker that did not note it."""
        return next((boot_epoch for boot_epoch, count in self.growth if index < count), 0)

    @property
    def is_internal(self) -> bool:
        """Whether clients may only read it."""
        return self.name in INTERNAL

    def partition(self, index: int) -> Partition | None:
        """Return the partition with that index, if there is one."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Topics:
    """All topics by name and by id."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        metadata: MetadataLog,
        flush_scheduler: FlushScheduler,
        disk_space: DiskSpace,
        partitions_max: int,
        now_ms: Callable[[], int],
        new_uuid: Callable[[], uuid.UUID],
        thresholds: Thresholds,
        producers: ProducerQuota,
    ) -> None:
        self._thresholds, self._producers = thresholds, producers
        self._now_ms, self._disk_space, self._new_uuid = now_ms, disk_space, new_uuid
        self._partitions_max = partitions_max
        self._fs, self._directory = fs, directory
        self.metadata, self._flush_scheduler = metadata, flush_scheduler
        self._by_name: dict[str, Topic] = {}
        self._by_metric: dict[str, str] = {}  # the names, by what metrics call them
        self._partitions = 0  # of all topics together
        self._by_id: dict[uuid.UUID, Topic] = {}
        self.version = 0
        """Grows when a topic comes, goes, or gets partitions."""
        self._defaults: Mapping[str, str] = {}

    def get(self, name: str) -> Topic | None:
        """Return the topic called `name`."""
        return self._by_name.get(name)

    def colliding(self, name: str) -> str | None:
        """Return the topic whose name differs only in '.' and '_': metrics can't tell the two apart, and Kafka refuses
        it.
        """
        return self._by_metric.get(metric_name(name))

    def by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        """Return the topic with that id."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def all(self) -> list[Topic]:
        """Return all topics in order of their names."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return self._by_name.keys()

    def partition(self, name: str, index: int) -> Partition | None:
        """Return a partition, if it exists."""
        topic = self._by_name.get(name)
        return None if topic is None else topic.partition(index)

    def partitions(self) -> list[Partition]:
        """Return all partitions, in order of their topics' names."""
        return [partition for topic in self.all() for partition in topic.partitions]

    def count_partitions(self) -> int:
        """Return the number of partitions of all topics together."""
        return self._partitions

    def free_partitions(self) -> int:
        """Return how many partitions more this broker may have."""
        return self._partitions_max - self.count_partitions()

    def recover(self, replay: Mapping[str, OnBatch]) -> None:
        """Open every topic that the metadata log names; remove directories that it doesn't.

        `replay` says who is shown the batches of a topic. Raises CorruptLog for an internal topic, or OSError.
        """
        known: set[str] = set()
        for key, body in self.metadata.items():
            if not key.startswith(PREFIX):
                continue
            growth = [(boot_epoch, count) for boot_epoch, count in body.get("growth", [])]
            topic = Topic(body["name"], uuid.UUID(key.removeprefix(PREFIX)), dict(body["configs"]), growth=growth)
            for index in range(body["partitions"]):
                topic.partitions.append(self._recover(topic, index, replay.get(topic.name)))
                known.add(self._path(topic, index).name)
            self._add(topic)
        for name in self._fs.names(self._directory):
            if name not in known:
                self._remove_left_over(self._directory / name)

    def _recover(self, topic: Topic, index: int, on_batch: OnBatch | None) -> Partition:
        """Recover a partition of what is on disk. One that is damaged, or can't be read, is stopped and the others go
        on.

        Raises CorruptLog or OSError for the internal ones, which the broker can't be without; OSError for any if it is
        not the disk's (too many open files, no right to read), or an fsync has failed.
        """
        try:
            return self._open(topic, index, on_batch)
        except SyncFailed:
            raise
        except (CorruptLog, OSError) as error:
            if topic.is_internal or (isinstance(error, OSError) and error.errno != errno.EIO):
                raise
            path, epoch = self._path(topic, index), self._leader_epoch(topic, index)
            return Partition.unopened(self._fs, path, topic.name, index, leader_epoch=epoch, error=error)

    def _remove_left_over(self, directory: Path) -> None:
        for name in self._fs.names(directory):
            self._fs.remove(directory / name)
        self._fs.remove_directory(directory)

    def _path(self, topic: Topic, index: int) -> Path:
        return self._directory / f"{topic.topic_id.hex}-{index}"

    def _leader_epoch(self, topic: Topic, index: int) -> int:
        """Return how often the broker was started since the partition was made: a new one has 0, as in Kafka."""
        return self.metadata.boot_epoch - topic.boot_epoch_of(index)

    def _open(self, topic: Topic, index: int, on_batch: OnBatch | None = None) -> Partition:
        config = self.config_of(topic)
        partition = Partition.open(
            self._fs,
            self._path(topic, index),
            topic.name,
            index,
            leader_epoch=self._leader_epoch(topic, index),
            segment_bytes=config.segment_bytes,
            disk_space=self._disk_space,
            internal=topic.is_internal,
            now_ms=self._now_ms(),
            on_batch=on_batch,
            thresholds=self._thresholds,
            quota=self._producers,
        )
        partition.configure(config)
        return partition

    async def _make(self, topic: Topic, count: int) -> list[Partition]:
        """Make new partitions behind those the topic has, up to `count`, and the record of that; it knows them not yet.

        Raises NoSpace with nothing left behind, or another OSError.
        """
        write = self._disk_space.write_internal if topic.is_internal else self._disk_space.write_for_client
        made: list[Partition] = []
        first = len(topic.partitions)
        grown = replace(topic, growth=[*topic.growth, (self.metadata.boot_epoch, count)])
        try:
            for index in range(first, count):
                made.append(write(partial(self._open, grown, index)))
                if len(made) % MADE_AT_ONCE == 0:
                    await asyncio.sleep(0)  # each takes some fsyncs
        except NoSpace:
            self._unmake(topic, made, count)
            raise
        try:
            await self._save(grown, count)
        except NoSpace:
            self._unmake(topic, made, count)
            raise
        topic.growth = grown.growth
        return made

    def _unmake(self, topic: Topic, made: list[Partition], count: int) -> None:
        first = len(topic.partitions)
        for partition in made:
            partition.log.close()
        for index in range(first, min(first + len(made) + 1, count)):
            with contextlib.suppress(OSError):  # else the next start removes it
                self._remove_left_over(self._path(topic, index))

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_metric[metric_name(topic.name)] = topic.name
        self._partitions += len(topic.partitions)
        self._by_id[topic.topic_id] = topic
        self.version += 1

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Create a topic durably. The name and the configs have been checked; within `Changes.one`.

        Raises NoSpace with nothing changed, or another OSError.
        """
        topic = Topic(name, self._new_uuid(), dict(configs))
        topic.partitions = await self._make(topic, partitions)
        self._add(topic)
        return topic

    async def grow(self, topic: Topic, partitions: int) -> None:
        """Add partitions up to that count; within `Changes.one`.

        Raises NoSpace with nothing changed, or another OSError.
        """
        made = await self._make(topic, partitions)
        topic.partitions.extend(made)
        self._partitions += len(made)
        self.version += 1

    async def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Replace the topic's own configs; within `Changes.one`.

        Raises NoSpace with nothing changed, or another OSError.
        """
        await self._save(replace(topic, configs=dict(configs)), len(topic.partitions))
        topic.configs.clear()
        topic.configs.update(configs)
        self._let_hold(topic)

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Let these hold, instead of Kafka's own defaults, for all topics that don't say otherwise."""
        self._defaults = defaults
        for topic in self._by_name.values():
            self._let_hold(topic)

    def config_of(self, topic: Topic) -> LogConfig:
        """Return all that holds for a topic. Internal ones are the broker's own: no default of an operator is for
        them.
        """
        return log_config(topic.configs if topic.is_internal else {**self._defaults, **topic.configs})

    def _let_hold(self, topic: Topic) -> None:
        config = self.config_of(topic)
        for partition in topic.partitions:
            partition.configure(config)

    async def delete(self, topic: Topic) -> None:
        """Delete a topic durably, then its files; within `Changes.one`.

        Raises NoSpace with nothing changed, or another OSError: the topic may be gone then (`get`), and what is left of
        its files is removed by the next start.
        """
        await self.metadata.put(f"{PREFIX}{topic.topic_id.hex}", None)
        del self._by_name[topic.name]
        self._by_metric.pop(metric_name(topic.name), None)
        self._partitions -= len(topic.partitions)
        del self._by_id[topic.topic_id]
        self.version += 1
        for partition in topic.partitions:
            await partition.cleaning.abort()
        async with self._flush_scheduler.exclusive():
            call_all(partition.destroy for partition in topic.partitions)

    async def _save(self, topic: Topic, partitions: int) -> None:
        body = {"name": topic.name, "partitions": partitions, "configs": topic.configs, "growth": topic.growth}
        await self.metadata.put(f"{PREFIX}{topic.topic_id.hex}", body, own=topic.is_internal)

    def close(self) -> None:
        """Flush and close all partitions. Raises OSError; all are closed then, too."""
        call_all(partition.close for topic in self._by_name.values() for partition in topic.partitions)
