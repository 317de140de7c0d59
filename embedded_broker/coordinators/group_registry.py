"""All groups by id, of both protocols, and their records in `__consumer_offsets`. Part of `GroupCoordinator`.

A group has one kind at a time: classic, or consumer (KIP-848). An empty group changes its kind when a member of the
other one joins; one with members doesn't, as in Kafka with `group.consumer.migration.policy=disabled`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from embedded_broker.coordinators.background import NO_SPACE_RETRY_MS, Background
from embedded_broker.coordinators.compaction import PART_BYTES_MAX, LiveRecords
from embedded_broker.coordinators.ports import CoordinatorHost, GroupConfig
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.state import consumer_log, group_log
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.state.consumer_log import ConsumerRecord
from embedded_broker.state.consumer_members import TOMBSTONES, Change, GroupEpoch, is_tombstone
from embedded_broker.state.consumer_types import ConsumerGroupConfig
from embedded_broker.state.group_types import GroupState
from embedded_broker.state.groups import Group
from embedded_broker.storage.disk_space import NoSpace
from kafka_records.records import encode

AnyGroup = Group | ConsumerGroup
Record = tuple[bytes, bytes | None]
OWED_BYTES_MAX = 4 * 1024 * 1024
"""Of records that wait for disk space. Above it requests that would lead to more of them are refused; what follows from
timers, as when the session of a member ends, is bounded by the number of members."""


class GroupRegistry:
    """All groups by id. Called on the event loop only."""

    def __init__(
        self, host: CoordinatorHost, background: Background, config: GroupConfig, on_many_new: Callable[[], None]
    ) -> None:
        """`on_many_new`: called on the event loop after so many new groups (`Thresholds.groups_new_max`)."""
        self._on_many_new = on_many_new
        self._host, self._background, self._config = host, background, config
        self._groups: dict[str, AnyGroup] = {}
        # Of groups that have a config of their own; they need not exist.
        self._consumer_configs: dict[str, ConsumerGroupConfig] = {}
        # The value of each classic group's last record, and when it was written: since when a group is empty.
        self._stored: dict[str, tuple[bytes, int]] = {}
        # Records of changes that hold in memory, but could not be written while the disk was full.
        # Invariant: they are written before any others, and together.
        self._owed: list[Record] = []
        self.owed_bytes = 0
        """Of keys and values that wait for disk space."""
        self._new = 0  # groups since `on_many_new`

    def get(self, group_id: str) -> AnyGroup | None:
        """Return a group of either kind."""
        return self._groups.get(group_id)

    def classic(self, group_id: str) -> Group | None:
        """Return a group of the classic protocol."""
        group = self._groups.get(group_id)
        return group if isinstance(group, Group) else None

    def all(self) -> list[AnyGroup]:
        """Return all groups."""
        return list(self._groups.values())

    def find_or_create(self, group_id: str) -> AnyGroup:
        """Return a group of either kind; a new one is classic and holds nothing but offsets."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = self._new_classic(group_id)
            self._count_new()
        return group

    def find_or_create_classic(self, group_id: str) -> Group | None:
        """Return a classic group, perhaps in the place of an empty consumer group; None if that has members."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            if not is_empty(group):
                return None
            self.append(self.retire(group))
        found = self.find_or_create(group_id)
        assert isinstance(found, Group)
        return found

    def new_consumer(self, group_id: str) -> ConsumerGroup:
        """Make a new consumer group, which is not registered before `adopt`."""
        return ConsumerGroup(group_id, self._consumer_configs.get(group_id, self._config.consumer))

    def configure(self, group_id: str, config: ConsumerGroupConfig) -> None:
        """Let a group, now and whenever it is made, have a config of its own."""
        self._consumer_configs[group_id] = config
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.config = config

    def adopt(self, group: ConsumerGroup) -> list[Record]:
        """Make a new consumer group known, perhaps in the place of an empty classic one; tombstones of that."""
        former = self._groups.get(group.group_id)
        tombstones = self.retire(former) if isinstance(former, Group) else []
        self._groups[group.group_id] = group
        self._count_new()
        return tombstones

    def retire(self, group: AnyGroup) -> list[Record]:
        """Forget an empty group; its tombstones, to be appended in the same step. Its offsets stay."""
        del self._groups[group.group_id]
        self._stored.pop(group.group_id, None)
        group.die()
        return tombstones_of(group)

    def append(self, records: list[Record]) -> None:
        """Write records as one batch: all of them or none survive. On a full disk they are written later."""
        try:
            self._write(records)
        except NoSpace:
            self._owed += records
            self.owed_bytes += sum(len(key) + len(value or b"") for key, value in records)
            self._background.schedule("owed", NO_SPACE_RETRY_MS, self._write_owed)

    def _write(self, records: list[Record]) -> None:
        """Write records. Raises NoSpace, and none of them are written."""
        self.refuse_if_owed()  # to try again for each request would encode all of them each time
        if records:
            self._host.internal_log(OFFSETS_TOPIC).append(encode(records, self._host.clock.now_ms()))

    def _write_owed(self) -> None:
        due, due_bytes = self._owed, self.owed_bytes
        self._owed, self.owed_bytes = [], 0
        try:
            self._write(due)
        except NoSpace:
            self._owed, self.owed_bytes = due, due_bytes
            self._background.schedule("owed", NO_SPACE_RETRY_MS, self._write_owed)

    def refuse_if_full(self) -> None:
        """Raise NoSpace while as many records wait for disk space as may; called before a request changes a group: the
        request is refused with NOT_COORDINATOR, as Kafka refuses all whose records it can't write."""
        if self.owed_bytes >= OWED_BYTES_MAX:
            raise NoSpace(errno.ENOSPC, "too many records of groups wait for disk space")

    def refuse_if_owed(self) -> None:
        """Raise NoSpace while records wait for disk space: nothing else may be written before them."""
        if self._owed:
            raise NoSpace(errno.ENOSPC, "records of groups wait for disk space")

    @property
    def is_settled(self) -> bool:
        """Whether the log holds all that memory does."""
        return not self._owed

    async def durable(self) -> None:
        """Return only once all that was appended is on disk. Raises NoSpace while that can't be."""
        if self._owed:
            raise NoSpace(errno.ENOSPC, "the disk is full")
        await self._host.durable(self._host.internal_log(OFFSETS_TOPIC))

    def store(self, group: Group, value: bytes, now_ms: int) -> None:
        """Write a classic group's record."""
        self.append([(group_log.encode_key(group.group_id), value)])
        self._stored[group.group_id] = value, now_ms

    def stored_ms(self, group: Group) -> int:
        """Return when a classic group was stored last: one without members, when it became so."""
        return self._stored.get(group.group_id, (b"", 0))[1]

    def replay(self, found: group_log.Found, value: bytes | None) -> None:
        """Apply a record about a group itself at recovery."""
        if isinstance(found, group_log.GroupRecord):
            group = self._groups[found.group_id] = self._new_classic(found.group_id)
            group_log.restore(group, found)
            self._stored[found.group_id] = value or b"", found.state_ms
        elif isinstance(found, group_log.GroupForgotten):
            if self.classic(found.group_id) is not None:
                del self._groups[found.group_id]
            self._stored.pop(found.group_id, None)
        elif isinstance(found, ConsumerRecord):
            self._replay_consumer(found.group_id, found.change)

    def _replay_consumer(self, group_id: str, change: Change) -> None:
        group = self._groups.get(group_id)
        if isinstance(change, GroupEpoch) and change.epoch is None:
            if isinstance(group, ConsumerGroup):
                del self._groups[group_id]
            return
        if not isinstance(group, ConsumerGroup):
            if is_tombstone(change):
                return
            group = self._groups[group_id] = self.new_consumer(group_id)
        group.replay(change)

    def live(self) -> Iterator[LiveRecords]:
        """See Compactor."""
        records: list[Record] = []
        size_bytes, records_max = 0, self._host.thresholds.compaction_part_records
        for group_id in sorted(self._stored.keys() | self._groups.keys()):
            found = self._records_of(group_id)
            records += found
            size_bytes += sum(len(key) + len(value or b"") for key, value in found)
            if len(records) >= records_max or size_bytes >= PART_BYTES_MAX:
                yield LiveRecords(records)
                records, size_bytes = [], 0
        yield LiveRecords(records)

    def _records_of(self, group_id: str) -> list[Record]:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return [consumer_log.encode(group_id, change) for change in group.members.records()]
        stored = self._stored.get(group_id)
        return [] if stored is None else [(group_log.encode_key(group_id), stored[0])]

    def _count_new(self) -> None:
        self._new += 1
        if self._new >= self._host.thresholds.groups_new_max:
            self._new = 0
            self._background.schedule("new groups", 0, self._on_many_new)

    def _new_classic(self, group_id: str) -> Group:
        return Group(group_id, self._config.initial_rebalance_delay_ms, self._config.new_member_join_timeout_ms)


def tombstones_of(group: AnyGroup) -> list[Record]:
    """Make the records that delete a group, but not its offsets."""
    if isinstance(group, ConsumerGroup):
        return [consumer_log.encode(group.group_id, change) for change in TOMBSTONES]
    return [(group_log.encode_key(group.group_id), None)]


def is_empty(group: AnyGroup) -> bool:
    """Return whether a group has no members."""
    return len(group.members) == 0 if isinstance(group, ConsumerGroup) else group.state is GroupState.EMPTY
