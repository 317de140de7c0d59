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
        return [
            partition
            for partition, offset in committed.items()
            if (since_ms := self._since_ms(group, offset)) is not None
            and now_ms - since_ms >= self._config.offsets_retention_ms
            and not self._offsets.state.is_unstable(group.group_id, partition)
            and not self._offsets.is_under_way(group.group_id, partition)
            and not is_subscribed(group, partition[0], self._catalog)
        ]

    def is_over(self, group: AnyGroup) -> bool:
        """Return whether a group has neither members, announced ones included, nor offsets, pending ones included."""
        if not is_empty(group) or (isinstance(group, Group) and group.members.pending):
            return False
        return self._offsets.is_settled(group.group_id) and not self._offsets.has_any(group.group_id)

    def _since_ms(self, group: AnyGroup, offset: CommittedOffset) -> int | None:
        """Return when the retention time of an offset began, in ms; None: it doesn't expire."""
        if isinstance(group, ConsumerGroup) or group.protocol_type is None:
            return offset.commit_ms
        if group.state is GroupState.EMPTY:
            return self._registry.stored_ms(group)
        knows_topics = group.state is GroupState.STABLE and group.subscribed_topics() is not None
        return offset.commit_ms if knows_topics else None


def is_subscribed(group: AnyGroup, topic: str, catalog: Catalog) -> bool:
    """Return whether a member of the group is subscribed to a topic; also True if its subscription can't be read."""
    if isinstance(group, ConsumerGroup):
        return topic in group.subscribed_topics(catalog)
    topics = group.subscribed_topics()
    return group.is_consumers if topics is None else topic in topics
