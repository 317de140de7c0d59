"""Asks the coordinators of one cluster about share groups (KIP-932). Used by `group_questions`.

Where a share group stands is its share-partition start offset: before it everything is acknowledged, behind it some
may be. It is read with DescribeShareGroupOffsets and set with AlterShareGroupOffsets, which Kafka has since 4.1, and
without a feature that has to be turned on since 4.2. The broker refuses the latter for a group with members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode as E

from replicator.groups.decision import OffsetToCommit
from replicator.groups.ownership import GroupOffset
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Unsupported
from replicator.model.partition import Partition
from replicator.wire.connection import Fields
from replicator.wire.group_coordinators import AskedOfGroup, GroupCoordinators, PartitionCodes, Partitions, only
from replicator.wire.group_requests import ListedGroup
from replicator.wire.offset_fetch_groups import GroupValues, PartitionValue, Wanted
from replicator.wire.protocol import Exchange

DESCRIBE, ALTER = "describe_share_group_offsets", "alter_share_group_offsets"
DELETE_SHARE = "delete_share_group_offsets"
DESCRIBED_AT_ONCE = 20
"""Groups in one request."""
OffsetsToCommit = Mapping[str, Mapping[str, Mapping[int, OffsetToCommit]]]
"""By group, topic and partition."""
SHARE = "share"
"""A share group's type, as groups are listed."""
_GONE = int(E.group_id_not_found)


class ShareValues(GroupValues):
    """Where one share group stands, by topic and partition.

    What it has acknowledged behind its start offset isn't told, but how much it has left is: where its partition ends
    minus its start offset, minus that (KIP-1226). Markers of transactions count as records.

    Attributes:
        lags: how much it has left in each partition; None: its cluster doesn't say.
        delivered: see `bound`.
    """

    __slots__ = ("_values", "delivered", "lags")

    def __init__(self, values: dict[str, dict[int, PartitionValue]], lags: dict[str, dict[int, int | None]]) -> None:
        super().__init__(0, b"")
        self._values, self.lags = values, lags
        self.delivered: dict[str, dict[int, int | None]] | None = None

    def topics(self) -> dict[str, dict[int, PartitionValue]]:
        """Return it as that of a consumer group. These offsets have no metadata."""
        return self._values

    def acknowledged(self, topic: str, partition: int, end: int) -> int:
        """Return how many records behind its start offset it has acknowledged, if the partition ended at `end` then:
        all of them if its cluster doesn't say."""
        value, left = self._values[topic][partition], self.lags[topic][partition]
        return max(0, end - value.offset - (left or 0)) if isinstance(value, GroupOffset) else 0

    @property
    def bounded(self) -> bool:
        """Whether it is known of each partition how many records behind its start offset it has acknowledged at
        most."""
        found = self.delivered
        return found is not None and not any(None in of_topic.values() for of_topic in found.values())

    def bound(self, ends: Mapping[Partition, int]) -> None:
        """Take down how many records behind its start offset it has acknowledged at most; None: that isn't known.
        `ends`: where partitions ended after it was asked where it stands, of those of which that is known."""
        self.delivered = {
            topic: {at: self._delivered(topic, at, ends.get(Partition(topic, at))) for at in of_topic}
            for topic, of_topic in self._values.items()
        }

    def _delivered(self, topic: str, partition: int, end: int | None) -> int | None:
        if end is None and isinstance(self._values[topic][partition], GroupOffset):
            return None
        return self.acknowledged(topic, partition, end or 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShareValues):
            return NotImplemented
        return (self._values, self.lags) == (other._values, other.lags)

    __hash__ = None  # type: ignore[assignment]  # it has dicts


K = TypeVar("K")


class ShareGroups:
    """Of one cluster. Used by the thread of its `GroupCoordinators`."""

    def __init__(self, coordinators: GroupCoordinators, cluster: str) -> None:
        """`cluster`: its name."""
        self._ask, self._cluster = coordinators, cluster
        self._listed, self._told = frozenset[str](), frozenset[str]()
        self._last: dict[str, ShareValues] = {}  # as they were answered last

    def listed(self, groups: Mapping[str, ListedGroup]) -> None:
        """Take down which groups of a listing are share groups."""
        self._listed = frozenset(name for name, it in groups.items() if it.kind == SHARE)

    def told(self, groups: Set[str]) -> None:
        """Take these for share groups, too, which don't exist yet."""
        self._told = frozenset(groups)

    def has(self, group: str) -> bool:
        """Return whether it is a share group, as far as that is known."""
        return group in self._listed or group in self._told

    def apart(self, groups: Mapping[str, K]) -> tuple[Mapping[str, K], Mapping[str, K]]:
        """Return those of `groups` that are share groups, and the others."""
        shares = {name: it for name, it in groups.items() if self.has(name)}
        return shares, {name: it for name, it in groups.items() if name not in shares} if shares else groups

    def keep(self, groups: Set[str]) -> None:
        """Let go of what is known of all groups but these."""
        for name in self._last.keys() - groups:
            del self._last[name]

    def offsets(self, groups: Mapping[str, Wanted], timeout_s: float) -> dict[str, GroupValues | ReplicatorError]:
        """Return where share groups stand. What is as it was is the same object."""

        def asked(names: Sequence[str]) -> Iterator[AskedOfGroup]:
            for at in range(0, len(names), DESCRIBED_AT_ONCE):
                some = tuple(names[at : at + DESCRIBED_AT_ONCE])
                yield self._ask.asked_of(DESCRIBE, _describe_fields({name: groups[name] for name in some}), some)

        found: dict[str, GroupValues | ReplicatorError] = {}
        answers = self._ask.of_coordinators(list(groups), timeout_s, asked, self._stand, only)()
        for name, it in answers.items():
            if isinstance(it, ShareValues) and groups[name] is None:
                last = self._last.get(name)
                it = self._last[name] = last if last is not None and last == it else it
            found[name] = self._without_shares(it) if isinstance(it, Unsupported) else it
        return found

    def _stand(self, one: AskedOfGroup, data: bytes) -> Mapping[str, ShareValues | ReplicatorError]:
        found: dict[str, ShareValues | ReplicatorError] = {}
        for it in one.read(data).groups:
            code = int(it.error_code)
            self._ask.moved(it.group_id, code)
            if code == _GONE:
                found[it.group_id] = ShareValues({}, {})
            elif code:
                doing, right = f"read where share group {it.group_id!r} stands", f"Describe on group {it.group_id!r}"
                found[it.group_id] = failures.classify_code(code, self._cluster, doing, right)
            else:
                found[it.group_id] = _stands(it)
        return found

    def send(
        self, offsets: OffsetsToCommit, timeout_s: float
    ) -> Callable[[], dict[str, PartitionCodes | ReplicatorError]]:
        """Set share groups to where they are to stand; what is returned waits for the answers."""

        def asked(names: Sequence[str]) -> Iterator[AskedOfGroup]:
            for name in names:
                yield self._ask.asked_of(ALTER, _alter_fields(name, offsets[name]), (name,), offsets[name])

        answers = self._ask.of_coordinators(list(offsets), timeout_s, asked, self._altered, only, once=True)
        return lambda: {
            name: self._without_shares(it) if isinstance(it, Unsupported) else it for name, it in answers().items()
        }

    def _altered(self, one: AskedOfGroup, data: bytes) -> Mapping[str, PartitionCodes | ReplicatorError]:
        answer, (name,) = one.read(data), one.groups
        if code := int(answer.error_code):
            self._ask.moved(name, code)
            return one.for_all(code)
        return {
            name: {
                it.topic_name: {each.partition_index: int(each.error_code) for each in it.partitions}
                for it in answer.responses
            }
        }

    def _without_shares(self, error: Unsupported) -> Unsupported:
        return Unsupported(f"cluster {self._cluster!r}: no share groups there (Kafka has them since 4.2): {error}")


def _describe_fields(groups: Mapping[str, Wanted]) -> Fields:
    def fields(exchange: Exchange) -> Mapping[str, Any]:
        types = exchange.types
        return {
            "groups": tuple(
                types.DescribeShareGroupOffsetsRequestGroup(
                    group_id=name,
                    topics=None
                    if wanted is None
                    else tuple(
                        types.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=tuple(numbers))
                        for topic, numbers in wanted.items()
                    ),
                )
                for name, wanted in groups.items()
            )
        }

    return fields


def _alter_fields(group: str, offsets: Mapping[str, Mapping[int, OffsetToCommit]]) -> Fields:
    def fields(exchange: Exchange) -> Mapping[str, Any]:
        types = exchange.types
        return {
            "group_id": group,
            "topics": tuple(
                types.AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=tuple(
                        types.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=it.offset)
                        for number, it in values.items()
                    ),
                )
                for topic, values in offsets.items()
            ),
        }

    return fields


def delete_share_fields(group: str, offsets: Partitions, exchange: Exchange) -> Mapping[str, Any]:
    """Make the fields of a request that deletes a group's offsets of whole topics."""
    topic_of = exchange.types.DeleteShareGroupOffsetsRequestTopic
    return {"group_id": group, "topics": tuple(topic_of(topic_name=topic) for topic in offsets)}


def _stands(answer: Any) -> ShareValues:
    """Say where a group stands. A partition without a start offset is one from which nobody has fetched yet."""
    values, lags = dict[str, dict[int, PartitionValue]](), dict[str, dict[int, int | None]]()
    for topic in answer.topics:
        of_topic, left = values.setdefault(topic.topic_name, {}), lags.setdefault(topic.topic_name, {})
        for it in topic.partitions:
            code, offset = int(it.error_code), int(it.start_offset)
            of_topic[it.partition_index] = code or (GroupOffset(offset) if offset >= 0 else None)
            left[it.partition_index] = int(it.lag) if hasattr(it, "lag") else None
    return ShareValues(values, lags)
