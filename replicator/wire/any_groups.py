"""The same questions as `group_questions`, about share groups (KIP-932), too; and deletes offsets of groups. Used by
`group_sync` and by what shows it.

Where a share group stands is its share-partition start offset: before it everything is acknowledged, behind it some
may be. It is read with DescribeShareGroupOffsets and set with AlterShareGroupOffsets, which Kafka has since 4.1, and
without a feature that has to be turned on since 4.2. The broker refuses the latter for a group with members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode as E

from replicator.config import Cluster
from replicator.groups.decision import OffsetToCommit
from replicator.groups.ownership import GroupOffset
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Unsupported
from replicator.model.partition import Partition
from replicator.wire.broker_questions import AskedOnce
from replicator.wire.connection import Fields
from replicator.wire.group_questions import (
    FETCHED_AT_ONCE,
    MOVED,
    GroupListing,
    GroupQuestions,
    OffsetsToCommit,
    PartitionCodes,
)
from replicator.wire.offset_fetch_groups import GroupValues, PartitionValue, Wanted
from replicator.wire.protocol import Exchange

DESCRIBE, ALTER = "describe_share_group_offsets", "alter_share_group_offsets"
DELETE, DELETE_SHARE = "offset_delete", "delete_share_group_offsets"
SHARE = "share"
"""A share group's type, as groups are listed."""
_GONE = int(E.group_id_not_found)
T = TypeVar("T")


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
        self.delivered: dict[str, dict[int, int]] | None = None

    def topics(self) -> dict[str, dict[int, PartitionValue]]:
        """Return it as that of a consumer group. These offsets have no metadata."""
        return self._values

    def acknowledged(self, topic: str, partition: int, end: int) -> int:
        """How many records behind its start offset it has acknowledged, if the partition ended at `end` then: all of
        them if its cluster doesn't say."""
        value, left = self._values[topic][partition], self.lags[topic][partition]
        return max(0, end - value.offset - (left or 0)) if isinstance(value, GroupOffset) else 0

    def bound(self, ends: Mapping[Partition, int]) -> None:
        """Take down how many records behind its start offset it has acknowledged at most. `ends`: where partitions
        ended after it was asked where it stands."""
        self.delivered = {
            topic: {at: self.acknowledged(topic, at, ends.get(Partition(topic, at), 0)) for at in of_topic}
            for topic, of_topic in self._values.items()
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShareValues):
            return NotImplemented
        return (self._values, self.lags) == (other._values, other.lags)

    __hash__ = None  # type: ignore[assignment]  # it has dicts


_Partitions = Mapping[str, Collection[int]]
"""By topic."""


class _Asked(AskedOnce):
    """A request to a coordinator, by kio's codecs: share groups are few."""

    def __init__(
        self, client_id: str, api: str, fields: Fields, groups: tuple[str, ...], partitions: _Partitions | None = None
    ) -> None:
        """`partitions`: that are altered or deleted."""
        super().__init__(client_id, api, fields)
        self.api, self.groups, self.partitions = api, groups, partitions or {}


class AnyGroups(GroupQuestions):
    """Of one cluster. Used by one thread."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        """See `BrokerQuestions`."""
        super().__init__(cluster, client_id)
        self._listed, self._told = frozenset[str](), frozenset[str]()
        self._shares: dict[str, ShareValues] = {}  # as they were answered last

    def listing(self, timeout_s: float) -> GroupListing:
        """See `GroupQuestions`. Which groups are share groups is known from the last one."""
        found = super().listing(timeout_s)
        self._listed = frozenset(name for name, it in found.groups.items() if it.kind == SHARE)
        return found

    def share(self, groups: Set[str]) -> None:
        """Take these for share groups, too, which don't exist yet."""
        self._told = frozenset(groups)

    def _is_share(self, group: str) -> bool:
        return group in self._listed or group in self._told

    def keep(self, groups: Set[str]) -> None:
        """See `GroupQuestions`."""
        super().keep(groups)
        for name in self._shares.keys() - groups:
            del self._shares[name]

    def offsets(
        self,
        groups: Mapping[str, Wanted],
        timeout_s: float,
        *,
        stable: bool,
        else_only: Callable[[], Mapping[str, Collection[int]]] = dict,
    ) -> dict[str, GroupValues | ReplicatorError]:
        """See `GroupQuestions`: of share groups where they stand. What is as it was is the same object."""
        shares = {name: wanted for name, wanted in groups.items() if self._is_share(name)}
        others = {name: wanted for name, wanted in groups.items() if name not in shares} if shares else groups
        found = super().offsets(others, timeout_s, stable=stable, else_only=else_only) if others else {}
        if shares:
            found |= self._described(shares, timeout_s)
        return found

    def _described(self, groups: Mapping[str, Wanted], timeout_s: float) -> dict[str, GroupValues | ReplicatorError]:
        def asked(names: Sequence[str]) -> Iterator[_Asked]:
            for at in range(0, len(names), FETCHED_AT_ONCE):
                some = tuple(names[at : at + FETCHED_AT_ONCE])
                yield _Asked(self._client_id, DESCRIBE, _describe_fields({name: groups[name] for name in some}), some)

        found: dict[str, GroupValues | ReplicatorError] = {}
        answers = self._of_coordinators(list(groups), timeout_s, asked, self._stand, _only)()
        for name, it in answers.items():
            if isinstance(it, ShareValues) and groups[name] is None:
                last = self._shares.get(name)
                it = self._shares[name] = last if last is not None and last == it else it
            found[name] = _without_shares(it, self._cluster) if isinstance(it, Unsupported) else it
        return found

    def _stand(self, one: _Asked, data: bytes) -> Mapping[str, ShareValues | ReplicatorError]:
        found: dict[str, ShareValues | ReplicatorError] = {}
        for it in one.read(data).groups:
            code = int(it.error_code)
            if code in MOVED:
                self._coordinators.pop(it.group_id, None)
            if code == _GONE:
                found[it.group_id] = ShareValues({}, {})
            elif code:
                doing, right = f"read where share group {it.group_id!r} stands", f"Describe on group {it.group_id!r}"
                found[it.group_id] = failures.classify_code(code, self._cluster, doing, right)
            else:
                found[it.group_id] = _stands(it)
        return found

    def send_commits(
        self, offsets: OffsetsToCommit, timeout_s: float
    ) -> Callable[[], dict[str, PartitionCodes | ReplicatorError]]:
        """See `GroupQuestions`: share groups are set to where they are to stand."""
        shares = {name: topics for name, topics in offsets.items() if self._is_share(name)}
        others = {name: topics for name, topics in offsets.items() if name not in shares} if shares else offsets
        answers = super().send_commits(others, timeout_s) if others else None
        if not shares:
            return answers or dict

        def asked(names: Sequence[str]) -> Iterator[_Asked]:
            for name in names:
                yield _Asked(self._client_id, ALTER, _alter_fields(name, shares[name]), (name,), shares[name])

        altered = self._of_coordinators(list(shares), timeout_s, asked, self._altered, _only, once=True)

        def codes() -> dict[str, PartitionCodes | ReplicatorError]:
            found = answers() if answers is not None else {}
            for name, it in altered().items():
                found[name] = _without_shares(it, self._cluster) if isinstance(it, Unsupported) else it
            return found

        return codes

    def _altered(self, one: _Asked, data: bytes) -> Mapping[str, PartitionCodes | ReplicatorError]:
        answer = one.read(data)
        if code := int(answer.error_code):
            return self._for_all(one, code)
        return {
            one.groups[0]: {
                it.topic_name: {each.partition_index: int(each.error_code) for each in it.partitions}
                for it in answer.responses
            }
        }

    def _for_all(self, one: _Asked, code: int) -> Mapping[str, PartitionCodes]:
        """What a code of the whole answer says of each partition."""
        (name,) = one.groups
        if code in MOVED:
            self._coordinators.pop(name, None)
        return {name: {topic: dict.fromkeys(numbers, code) for topic, numbers in one.partitions.items()}}

    def delete_offsets(
        self, offsets: Mapping[str, _Partitions], timeout_s: float
    ) -> dict[str, PartitionCodes | ReplicatorError]:
        """Delete these offsets of groups, those of share groups by whole topics, and no others: the code of each
        partition, 0 if its offset is deleted; or an error, after which nothing is known of this group's."""

        def asked(names: Sequence[str]) -> Iterator[_Asked]:
            for name in names:
                api, fields = (DELETE_SHARE, _delete_share) if self._is_share(name) else (DELETE, _delete)
                yield _Asked(self._client_id, api, partial(fields, name, offsets[name]), (name,), offsets[name])

        return self._of_coordinators(list(offsets), timeout_s, asked, self._deleted, _only, once=True)()

    def _deleted(self, one: _Asked, data: bytes) -> Mapping[str, PartitionCodes | ReplicatorError]:
        answer, (name,) = one.read(data), one.groups
        if code := int(answer.error_code):
            return self._for_all(one, code)
        if one.api == DELETE_SHARE:
            codes = {it.topic_name: int(it.error_code) for it in answer.responses}
            return {name: {topic: dict.fromkeys(one.partitions[topic], code) for topic, code in codes.items()}}
        return {
            name: {
                it.name: {each.partition_index: int(each.error_code) for each in it.partitions} for it in answer.topics
            }
        }


def _only(_: str, answers: list[T]) -> T:
    """About each group there is one question."""
    return answers[-1]


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


def _delete(group: str, offsets: _Partitions, exchange: Exchange) -> Mapping[str, Any]:
    types = exchange.types
    return {
        "group_id": group,
        "topics": tuple(
            types.OffsetDeleteRequestTopic(
                name=topic, partitions=tuple(types.OffsetDeleteRequestPartition(partition_index=it) for it in numbers)
            )
            for topic, numbers in offsets.items()
        ),
    }


def _delete_share(group: str, offsets: _Partitions, exchange: Exchange) -> Mapping[str, Any]:
    topic_of = exchange.types.DeleteShareGroupOffsetsRequestTopic
    return {"group_id": group, "topics": tuple(topic_of(topic_name=topic) for topic in offsets)}


def _stands(answer: Any) -> ShareValues:
    """Where a group stands. A partition without a start offset is one from which nobody has fetched yet."""
    values, lags = dict[str, dict[int, PartitionValue]](), dict[str, dict[int, int | None]]()
    for topic in answer.topics:
        of_topic, left = values.setdefault(topic.topic_name, {}), lags.setdefault(topic.topic_name, {})
        for it in topic.partitions:
            code, offset = int(it.error_code), int(it.start_offset)
            of_topic[it.partition_index] = code or (GroupOffset(offset) if offset >= 0 else None)
            left[it.partition_index] = int(it.lag) if hasattr(it, "lag") else None
    return ShareValues(values, lags)


def _without_shares(error: Unsupported, cluster: str) -> Unsupported:
    return Unsupported(f"cluster {cluster!r}: no share groups there (Kafka has them since 4.2): {error}")
