"""Server-side assignors of consumer groups: `uniform` and `range`. Pure.

Source: Kafka `UniformAssignor`, `RangeAssignor`; KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from embedded_broker.state.consumer_types import NOTHING, Partitions, TopicIdPartition

UNIFORM, RANGE = "uniform", "range"


@dataclass(frozen=True, slots=True)
class Assignee:
    """A member as an assignor sees it; `target` is what it was to have before."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    target: Partitions


Targets = dict[str, Partitions]
Assignor = Callable[[list[Assignee], Mapping[UUID, int]], Targets]


def assign_range(members: list[Assignee], counts: Mapping[UUID, int]) -> Targets:
    """Give each subscriber one run of each topic's partitions; the first ones get one more if it doesn't divide.

    Subscribers are ordered by instance id, then by member id, so topics of the same size are cut alike.

    Args:
        members: all members of the group.
        counts: partitions of each subscribed topic.
    """
    ordered = sorted(members, key=_by_instance_first)
    targets: dict[str, set[TopicIdPartition]] = {member.member_id: set() for member in members}
    for topic_id, count in counts.items():
        subscribers = [member for member in ordered if topic_id in member.topic_ids]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        start = 0
        for number, member in enumerate(subscribers):
            end = start + share + (number < extra)
            targets[member.member_id].update((topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in targets.items()}


def _by_instance_first(member: Assignee) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member.member_id


def assign_uniform(members: list[Assignee], counts: Mapping[UUID, int]) -> Targets:
    """Give each member as many partitions as any other, but for one, and let it keep of its former ones what it can.

    With different subscriptions no exchange of one partition between two members would make the shares more even.

    Args:
        members: all members of the group.
        counts: partitions of each subscribed topic.
    """
    if len({member.topic_ids for member in members}) == 1:
        return _even(members, counts)
    return _balanced(members, counts)


def _even(members: list[Assignee], counts: Mapping[UUID, int]) -> Targets:
    """Share out topics to which all members are subscribed: count out quotas, take what is above them, fill what is
    below.
    """
    everything = [(topic_id, index) for topic_id in sorted(counts, key=_order) for index in range(counts[topic_id])]
    wanted = {partition for partition in everything if partition[0] in members[0].topic_ids}
    share, extra = divmod(len(wanted), len(members))
    # Whoever has most keeps most: the members that may have one more are those that have it already.
    ordered = sorted(members, key=lambda member: (-len(member.target & wanted), member.member_id))
    kept: dict[str, list[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    for number, member in enumerate(ordered):
        quota = share + (number < extra)
        mine = sorted((member.target & wanted) - taken, key=_partition_order)[:quota]
        kept[member.member_id] = mine
        taken.update(mine)
    free = iter([partition for partition in everything if partition in wanted and partition not in taken])
    for number, member in enumerate(ordered):
        missing = share + (number < extra) - len(kept[member.member_id])
        kept[member.member_id] += [next(free) for _ in range(missing)]
    return {member_id: frozenset(partitions) for member_id, partitions in kept.items()}


def _balanced(members: list[Assignee], counts: Mapping[UUID, int]) -> Targets:
    """Share out where subscriptions differ: keep what is allowed, give what is free to the poorest, then move until it
    is even.
    """
    subscribers = {
        topic_id: [member.member_id for member in members if topic_id in member.topic_ids] for topic_id in counts
    }
    everything = [
        (topic_id, index)
        for topic_id in sorted(counts, key=lambda topic_id: (len(subscribers[topic_id]), _order(topic_id)))
        if subscribers[topic_id]
        for index in range(counts[topic_id])
    ]
    targets: dict[str, set[TopicIdPartition]] = {member.member_id: set() for member in members}
    owners: dict[TopicIdPartition, str] = {}
    exists = set(everything)
    for member in members:
        for partition in sorted(member.target & exists, key=_partition_order):
            if partition[0] in member.topic_ids and partition not in owners:
                owners[partition] = member.member_id
                targets[member.member_id].add(partition)
    for partition in everything:
        if partition not in owners:
            poorest = min(subscribers[partition[0]], key=lambda member_id: (len(targets[member_id]), member_id))
            owners[partition] = poorest
            targets[poorest].add(partition)
    while _level(everything, subscribers, owners, targets):
        pass
    return {member_id: frozenset(partitions) for member_id, partitions in targets.items()}


def _level(
    everything: list[TopicIdPartition],
    subscribers: Mapping[UUID, list[str]],
    owners: dict[TopicIdPartition, str],
    targets: dict[str, set[TopicIdPartition]],
) -> bool:
    """Move partitions to subscribers that have at least two less. Whether any moved; each move shrinks the sum of the
    squares of the shares, so this ends."""
    moved = False
    for partition in everything:
        owner = owners[partition]
        poorest = min(subscribers[partition[0]], key=lambda member_id: (len(targets[member_id]), member_id))
        if len(targets[owner]) >= len(targets[poorest]) + 2:
            targets[owner].discard(partition)
            targets[poorest].add(partition)
            owners[partition] = poorest
            moved = True
    return moved


def _order(topic_id: UUID) -> int:
    return topic_id.int


def _partition_order(partition: TopicIdPartition) -> tuple[int, int]:
    return partition[0].int, partition[1]


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}


def assign(name: str, members: list[Assignee], counts: Mapping[UUID, int]) -> Targets:
    """Compute the targets of all members, by the assignor with that name.

    Args:
        name: `uniform` or `range`.
        members: all members of the group.
        counts: partitions of each subscribed topic that exists.
    """
    if not members:
        return {}
    targets = ASSIGNORS[name](members, counts)
    return {member.member_id: targets.get(member.member_id, NOTHING) for member in members}
