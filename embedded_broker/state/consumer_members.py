"""Members of a consumer group, who holds which partition, and the records that change both.

Invariant: the group is changed by `apply` alone, with the records that go into the log, so a replay of the log rebuilds
it. Source: Kafka `ConsumerGroup`, `ConsumerGroupMember`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from embedded_broker.state.assignors import ASSIGNORS, UNIFORM
from embedded_broker.state.consumer_types import (
    LEAVE_STATIC_EPOCH,
    NOTHING,
    PARTITION_BYTES,
    ConsumerHeartbeat,
    MemberState,
    Partitions,
    TopicIdPartition,
    text_bytes,
)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member: its subscription, and the progress of its assignment.

    It may use partitions that are `assigned`; it must revoke those in `revoking` before another member gets them.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING
    assignment_epochs: Mapping[TopicIdPartition, int] = field(default_factory=dict, hash=False)
    """Of each partition that it has, assigned or yet to be revoked, in which epoch it was assigned (KIP-1251)."""

    def has_since(self, epoch: int, partitions: Iterable[TopicIdPartition]) -> bool:
        """Return whether it had all these partitions in `epoch` already, and still has them.

        Source: Kafka `ConsumerGroup.createAssignmentEpochValidator`.
        """
        held = self.assigned | self.revoking
        return all(each in held and self.assignment_epochs[each] <= epoch for each in partitions)

    @property
    def is_away(self) -> bool:
        """A static member that has left for a while: its partitions are kept for who comes in its place."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def size_bytes(self, targets: int) -> int:
        """Compute what it takes in memory; `targets`: how many partitions it shall have."""
        texts = (self.member_id, self.client_id, self.instance_id, self.rack_id, self.topic_regex)
        partitions = len(self.assigned) + len(self.revoking) + targets
        return text_bytes(texts, self.topic_names) + PARTITION_BYTES * partitions

    def said(self, heartbeat: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member with what a heartbeat says anew. An empty pattern takes the former one back."""
        regex = self.topic_regex if heartbeat.topic_regex is None else heartbeat.topic_regex or None
        timeout_ms = heartbeat.rebalance_timeout_ms
        return replace(
            self,
            instance_id=self.instance_id if heartbeat.instance_id is None else heartbeat.instance_id,
            rack_id=self.rack_id if heartbeat.rack_id is None else heartbeat.rack_id,
            client_id=heartbeat.client_id,
            client_host=heartbeat.client_host,
            topic_names=self.topic_names if heartbeat.topic_names is None else heartbeat.topic_names,
            topic_regex=regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
            assignor=self.assignor if heartbeat.assignor is None else heartbeat.assignor,
        )


# Records. None is a tombstone.


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The group's epoch, and a hash of the topics that it is subscribed to; None: the group is gone."""

    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The epoch of the targets."""

    epoch: int | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """Fields that a member sends about itself."""

    member_id: str
    member: ConsumerMember | None


@dataclass(frozen=True, slots=True)
class Target:
    """What a member shall have."""

    member_id: str
    partitions: Partitions | None


@dataclass(frozen=True, slots=True)
class Current:
    """What a member has: epochs, state and partitions."""

    member_id: str
    member: ConsumerMember | None


Change = GroupEpoch | TargetEpoch | Subscription | Target | Current
OF_A_MEMBER = (Subscription, Target, Current)
TOMBSTONES: tuple[Change, ...] = (TargetEpoch(None), GroupEpoch(None))
"""Of a group without members that is deleted."""


def is_tombstone(change: Change) -> bool:
    """Return whether a record only takes something back."""
    if isinstance(change, GroupEpoch | TargetEpoch):
        return change.epoch is None
    return (change.partitions if isinstance(change, Target) else change.member) is None


class ConsumerMembers:
    """All that the records of a group say."""

    def __init__(self) -> None:
        self.epoch = 0
        self.assignment_epoch = 0
        self.metadata_hash = 0
        self.targets: dict[str, Partitions] = {}
        self._by_id: dict[str, ConsumerMember] = {}
        self._by_instance: dict[str, str] = {}
        # Invariant: a partition has at most one owner, who has it assigned or has yet to give it back.
        self._owners: dict[TopicIdPartition, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(list(self._by_id.values()))

    def get(self, member_id: str) -> ConsumerMember | None:
        """Return a member by its id."""
        return self._by_id.get(member_id)

    def static(self, instance_id: str) -> ConsumerMember | None:
        """Return a member by its instance id."""
        member_id = self._by_instance.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def owner(self, partition: TopicIdPartition) -> str | None:
        """Return who holds a partition, assigned or not yet given back."""
        return self._owners.get(partition)

    def assignor(self) -> str:
        """Choose the assignor that most members ask for; `uniform` when no member asks for one."""
        votes = Counter(member.assignor for member in self._by_id.values() if member.assignor in ASSIGNORS)
        best = votes.most_common(1)
        return (best[0][0] or UNIFORM) if best else UNIFORM

    def is_reconciled(self, member: ConsumerMember) -> bool:
        """Return whether the member has its whole target."""
        return member.state is MemberState.STABLE and member.epoch == self.assignment_epoch

    def apply(self, change: Change) -> None:
        """Take over a record, when it is appended and when it is found at recovery."""
        if isinstance(change, GroupEpoch):
            self.epoch, self.metadata_hash = change.epoch or 0, change.metadata_hash
        elif isinstance(change, TargetEpoch):
            self.assignment_epoch = change.epoch or 0
        elif isinstance(change, Target):
            if change.partitions is None:
                self.targets.pop(change.member_id, None)
            else:
                self.targets[change.member_id] = change.partitions
        elif isinstance(change, Subscription):
            self._subscribe(change)
        else:
            self._hold(change)

    def records(self) -> list[Change]:
        """Return what rebuilds all this, in an order in which it can be applied."""
        found: list[Change] = [GroupEpoch(self.epoch, self.metadata_hash)]
        for member in self:
            found.append(Subscription(member.member_id, member))
        found.append(TargetEpoch(self.assignment_epoch))
        found += [Target(member_id, partitions) for member_id, partitions in self.targets.items()]
        found += [Current(member.member_id, member) for member in self]
        return found

    def _subscribe(self, change: Subscription) -> None:
        known = self._by_id.get(change.member_id)
        if change.member is None:
            if known is not None:
                self._remove(known)
            return
        subscribed = _progressed(change.member, known or ConsumerMember(change.member_id))
        self._by_id[subscribed.member_id] = subscribed
        if subscribed.instance_id is not None:
            self._by_instance[subscribed.instance_id] = subscribed.member_id

    def _hold(self, change: Current) -> None:
        known = self._by_id.get(change.member_id)
        if known is None:
            return
        self._release(known)
        held = _progressed(known, change.member or ConsumerMember(change.member_id))
        self._by_id[change.member_id] = held
        self._owners.update(dict.fromkeys(sorted(held.assigned | held.revoking), change.member_id))

    def _release(self, member: ConsumerMember) -> None:
        for partition in sorted(member.assigned | member.revoking):
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def _remove(self, member: ConsumerMember) -> None:
        self._release(member)
        del self._by_id[member.member_id]
        if member.instance_id is not None and self._by_instance.get(member.instance_id) == member.member_id:
            del self._by_instance[member.instance_id]


def _progressed(subscribed: ConsumerMember, progress: ConsumerMember) -> ConsumerMember:
    """Join what one record says of a member's subscription, and another of its assignment."""
    return replace(
        subscribed,
        epoch=progress.epoch,
        previous_epoch=progress.previous_epoch,
        state=progress.state,
        assigned=progress.assigned,
        revoking=progress.revoking,
        assignment_epochs=progress.assignment_epochs,
    )
