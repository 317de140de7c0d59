"""Expiry of committed offsets; `GroupCoordinator` asks every ten minutes which have expired.

An offset expires `offsets.retention.minutes` after it was committed or, in a classic group whose members have left,
after they left; but never while a member is subscribed to its topic, or an open transaction will change it. A group
without members is deleted with its last offset. Source: `OffsetMetadataManager.cleanupExpiredOffsets`, KIP-211,
KIP-496.
"""

from __future__ import annotations

from embedded_broker.coordinators.group_registry import AnyGroup, GroupRegistry, is_empty
from embedded_broker.coordinators.offsets import OffsetManager
from embedded_broker.coordinators.ports import GroupConfig
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.state.consumer_types import Catalog
from embedded_broker.state.group_types import GroupState
from embedded_broker.state.groups import Group
from embedded_broker.state.offsets import CommittedOffset
from embedded_broker.state.transactions import TopicPartition


class Expiry:
    """Decides which offsets and groups have expired; changes nothing."""

    def __init__(self, registry: GroupRegistry, offsets: OffsetManager, catalog: Catalog, config: GroupConfig) -> None:
        self._registry, self._offsets, self._catalog, self._config = registry, offsets, catalog, config

    def expired(self, group: AnyGroup, now_ms: int) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired."""
        committed = self._offsets.state.committed(group.group_id)
        if not committed:
            return []
        topics, unstable = subscribed_topics(group, self._catalog), self._offsets.state.unstable(group.group_id)
        return [
            partition
            for partition, offset in committed.items()
            if (since_ms := self._since_ms(group, offset, topics)) is not None
            and now_ms - since_ms >= self._config.offsets_retention_ms
            and partition not in unstable
            and not self._offsets.is_under_way(group.group_id, partition)
            and not is_subscribed(group, topics, partition[0])
        ]

    def is_over(self, group: AnyGroup) -> bool:
        """Return whether a group has neither members, announced ones included, nor offsets, pending ones included."""
        if not is_empty(group) or (isinstance(group, Group) and group.members.pending):
            return False
        return self._offsets.is_settled(group.group_id) and not self._offsets.has_any(group.group_id)

    def _since_ms(self, group: AnyGroup, offset: CommittedOffset, topics: frozenset[str] | None) -> int | None:
        """Return when the retention time of an offset began, in ms; None: it doesn't expire."""
        if isinstance(group, ConsumerGroup) or group.protocol_type is None:
            return offset.commit_ms
        if group.state is GroupState.EMPTY:
            return self._registry.stored_ms(group)
        knows_topics = group.state is GroupState.STABLE and topics is not None
        return offset.commit_ms if knows_topics else None


def subscribed_topics(group: AnyGroup, catalog: Catalog) -> frozenset[str] | None:
    """Find out what the members of a group are subscribed to; None if that can't be read. Ask once for all offsets: the
    subscriptions of all members are read each time. Source: `ClassicGroup.subscribedTopics`, one set in a generation.
    """
    return group.subscribed_topics(catalog) if isinstance(group, ConsumerGroup) else group.subscribed_topics()


def is_subscribed(group: AnyGroup, topics: frozenset[str] | None, topic: str) -> bool:
    """Return whether a member of the group is subscribed to a topic, given `subscribed_topics`; also True if its
    subscription can't be read.
    """
    return topic in topics if topics is not None else isinstance(group, Group) and group.is_consumers
