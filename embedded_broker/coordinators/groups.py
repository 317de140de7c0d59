"""The group coordinator: groups of both protocols, their offsets, and the log `__consumer_offsets`.

Called by the handlers of group and offset APIs. Source: Kafka `GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.classic_groups import ClassicGroups
from embedded_broker.coordinators.compaction import Compactor, LiveRecords, origin_of
from embedded_broker.coordinators.consumer_groups import ConsumerGroups, TopicCatalog
from embedded_broker.coordinators.expiry import Expiry, is_subscribed, subscribed_topics
from embedded_broker.coordinators.group_memory import GroupMemory, Place
from embedded_broker.coordinators.group_registry import AnyGroup, GroupRegistry, is_empty, tombstones_of
from embedded_broker.coordinators.offsets import OffsetManager
from embedded_broker.coordinators.ports import CoordinatorHost, GroupConfig
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.state import group_log
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.state.consumer_types import ConsumerGroupConfig
from embedded_broker.state.groups import Group
from embedded_broker.state.offsets import OffsetRecord
from kafka_records.batch import BatchHeader, Buffer
from kafka_records.control import marker_commits
from kafka_records.records import body_of, decode_body

log = logging.getLogger("embedded_broker")


class GroupCoordinator:
    """All groups of the broker. Called on the event loop only."""

    def __init__(self, host: CoordinatorHost, config: GroupConfig | None = None) -> None:
        config = config or GroupConfig()
        self._host, self._config = host, config
        self._background = Background(host.fail)
        self._registry = GroupRegistry(host, self._background, config, self._forget_unused)
        self._memory = memory = GroupMemory(config.members_max_bytes, self._evict)
        self.classic = ClassicGroups(host, self._background, config, self._registry, memory)
        catalog = TopicCatalog(lambda: host.topics)
        self.consumer = ConsumerGroups(host, self._background, self._registry, catalog, memory)
        self.offsets = OffsetManager(host, self._background, config, self._registry.find_or_create)
        self._expiry = Expiry(self._registry, self.offsets, self.consumer.catalog, config)
        self._compactor = Compactor(
            host,
            self._background,
            OFFSETS_TOPIC,
            self._live,
            self.offsets.needed_from,
            lambda: self._registry.is_settled,
        )

    def _evict(self, place: Place) -> None:
        """Remove a member that holds too much memory."""
        log.warning("member %r of group %r is removed: members hold too much memory", place.member_id, place.group_id)
        group = self._registry.get(place.group_id)
        if isinstance(group, ConsumerGroup):
            self.consumer.evict(group, place.member_id)
        elif isinstance(group, Group):
            self.classic.evict(group, place.member_id)

    def replay(self, header: BatchHeader, batch: Buffer) -> None:
        """Take over a batch of `__consumer_offsets` at recovery, in log order.

        Raises:
            Truncated: a record is not whole although its batch's CRC is right: written by something else.
        """
        if header.is_control:
            self.offsets.end_transaction(header.producer_id, marker_commits(batch))
            return
        for record in decode_body(header, body_of(header, batch)):
            found = group_log.decode(record.key or b"", record.value, origin_of(record))
            if isinstance(found, OffsetRecord):
                self.offsets.replay(found, header.producer_id if header.is_transactional else -1)
            elif found is not None:
                self._registry.replay(found, record.value)

    async def start(self) -> None:
        """Start the session timeouts of members found at recovery, and the periodic tasks.

        Offsets of topics that don't exist are deleted: the broker crashed between deleting a topic and its offsets.
        """
        for topic in sorted(self.offsets.state.topics()):
            if self._host.topics.get(topic) is None:
                await self._background.try_once(f"offsets of {topic}", partial(self.offsets.forget_topic, topic))
        for group_id in sorted(self.offsets.state.group_ids()):
            self._registry.find_or_create(group_id)
        self.classic.resume()
        self.consumer.resume()
        self._background.schedule("sweep", self._host.thresholds.groups_sweep_interval_ms, self._sweep)
        self._compactor.check()

    async def stop(self) -> None:
        """Wait for the records that are being written."""
        await self._background.stop()

    def get(self, group_id: str) -> AnyGroup | None:
        """Return a group, read only."""
        return self._registry.get(group_id)

    def all(self) -> list[AnyGroup]:
        """Return all groups, for ListGroups. Read only."""
        return self._registry.all()

    def configure(self, group_id: str, change: Callable[[ConsumerGroupConfig], ConsumerGroupConfig]) -> None:
        """Set the config of a consumer group, which need not exist: `change` applied to the broker's config."""
        self._registry.configure(group_id, change(self._config.consumer))

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets. Raises NoSpace with nothing changed."""
        group = self._registry.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if not is_empty(group):
            return ErrorCode.non_empty_group
        await self._delete(group)
        return ErrorCode.none

    def subscribed(self, group: AnyGroup) -> Callable[[str], bool]:
        """Return a function that says whether a member of the group is subscribed to a topic now; also True if its
        subscription can't be read.
        """
        return partial(is_subscribed, group, subscribed_topics(group, self.consumer.catalog))

    async def on_topic_deleted(self, topic: str) -> None:
        """Delete all groups' offsets of a deleted topic. Call it after the topic's own record is durable.

        On a full disk they are deleted later.
        """
        await asyncio.shield(
            self._background.retry_until_done(f"offsets of {topic}", partial(self.offsets.forget_topic, topic))
        )

    async def _delete(self, group: AnyGroup) -> None:
        """Delete an empty group and its offsets in one step, from which on a member that joins makes a new one. Returns
        only once it is on disk. Source: `GroupCoordinatorShard.deleteGroups`.
        """
        self._registry.refuse_if_owed()
        stored = self.offsets.forget_group(group.group_id, tombstones_of(group))
        self._registry.retire(group)
        await stored

    def _live(self) -> Iterator[LiveRecords]:
        """Yield what the log must hold: all that groups are made of, and the committed offsets."""
        yield from self._registry.live()
        yield from self.offsets.live()

    def _sweep(self) -> None:
        """Delete expired offsets, and groups that have neither members nor offsets."""
        now_ms = self._host.clock.now_ms()
        for group in self.all():
            partitions = self._expiry.expired(group, now_ms)
            if partitions or self._expiry.is_over(group):
                self._background.retry_until_done(f"expire {group.group_id}", partial(self._expire, group))
        self._background.schedule("sweep", self._host.thresholds.groups_sweep_interval_ms, self._sweep)

    def _forget_unused(self) -> None:
        """Delete groups that have neither members nor offsets: a client can make many between two sweeps."""
        for group in self.all():
            if self._expiry.is_over(group):
                self._background.retry_until_done(f"expire {group.group_id}", partial(self._expire, group))

    async def _expire(self, group: AnyGroup) -> None:
        # Asked again: since the sweep a client may have committed.
        await self.offsets.delete(group.group_id, self._expiry.expired(group, self._host.clock.now_ms()))
        # Meanwhile a member may have joined, or a client may have committed or deleted the group.
        if self._registry.get(group.group_id) is group and self._expiry.is_over(group):
            await self._delete(group)
