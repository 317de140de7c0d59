"""What is asked of group coordinators about consumer groups that aren't the flow's own; over kio's codecs. Sans-I/O.

OffsetFetch of many groups at once (KIP-709, Kafka 3.0): librdkafka asks for one. OffsetCommit as a client without a
member makes it: the broker refuses it for a group that has members, in both group protocols, which a commit in a
transaction is not (KIP-447).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from replicator.groups.decision import OffsetToCommit
from replicator.model.partition import Partition
from replicator.wire.connection import Fields
from replicator.wire.protocol import Exchange, made

FETCH, COMMIT, LIST, FIND = "offset_fetch", "offset_commit", "list_groups", "find_coordinator"
FETCH_VERSION = 8
"""Version 9 has member epochs, 10 topic ids."""
FIND_VERSION = 4
_GROUP = 0  # FindCoordinator's key type
_NO_MEMBER, _NO_GENERATION = "", -1


class ListedGroup(NamedTuple):
    """A group as one broker lists it. `kind` is its group type (KIP-848), empty before Kafka 3.8; `protocol` the type
    of its members' protocol, empty where it never had any; `state`: Empty, Stable, Dead, ..."""

    protocol: str
    state: str
    kind: str

    @property
    def has_members(self) -> bool:
        """Whether somebody may be consuming."""
        return self.state not in ("Empty", "Dead")


class GroupCoordinator(NamedTuple):
    """The answer for one group: an error, or where its coordinator is."""

    code: int
    address: tuple[str, int]


class GroupValue(NamedTuple):
    """A committed offset as the coordinator tells it; offset -1: none."""

    offset: int
    metadata: str
    leader_epoch: int


class GroupValues(NamedTuple):
    """What one group has committed: an error of the group, or each partition's error and value."""

    code: int
    by_partition: Mapping[Partition, tuple[int, GroupValue]]


def list_fields(_: Exchange) -> dict[str, Any]:
    """Make the fields of a question for all groups that one broker coordinates."""
    return {"states_filter": (), "types_filter": ()}


def listed(answer: Any) -> tuple[int, dict[str, ListedGroup]]:
    """Return the error of an answer to `list_fields`, and the groups by name."""
    return int(answer.error_code), {
        one.group_id: ListedGroup(one.protocol_type, one.group_state, getattr(one, "group_type", "").lower())
        for one in answer.groups
    }


def find_fields(groups: Collection[str]) -> Fields:
    """Make the fields of a question for the coordinators of groups (KIP-699)."""
    return lambda _: {"key_type": _GROUP, "coordinator_keys": tuple(groups)}


def coordinators(answer: Any) -> dict[str, GroupCoordinator]:
    """Return what an answer to `find_fields` says, by group."""
    return {one.key: GroupCoordinator(int(one.error_code), (one.host, int(one.port))) for one in answer.coordinators}


def fetch_fields(groups: Mapping[str, Collection[Partition] | None], *, stable: bool) -> Fields:
    """Make the fields of a question for the offsets of groups that one broker coordinates.

    Args:
        groups: which partitions of each; None: all that it has an offset in.
        stable: an offset that an open transaction may replace is answered with an error (KIP-447).
    """

    def fields(exchange: Exchange) -> dict[str, Any]:
        types = exchange.types
        asked = tuple(
            made(types.OffsetFetchRequestGroup, group_id=group, topics=_topics(types.OffsetFetchRequestTopics, wanted))
            for group, wanted in groups.items()
        )
        return {"groups": asked, "require_stable": stable}

    return fields


def _topics(kind: type, wanted: Collection[Partition] | None) -> tuple[Any, ...] | None:
    if wanted is None:
        return None
    numbers: dict[str, list[int]] = {}
    for at in wanted:
        numbers.setdefault(at.topic, []).append(at.partition)
    return tuple(made(kind, name=topic, partition_indexes=tuple(of_topic)) for topic, of_topic in numbers.items())


def fetched(answer: Any) -> dict[str, GroupValues]:
    """Return what an answer to `fetch_fields` says, by group."""
    return {
        group.group_id: GroupValues(
            int(group.error_code),
            {
                Partition(topic.name, each.partition_index): (
                    int(each.error_code),
                    GroupValue(each.committed_offset, each.metadata or "", each.committed_leader_epoch),
                )
                for topic in group.topics
                for each in topic.partitions
            },
        )
        for group in answer.groups
    }


def commit_fields(group: str, offsets: Mapping[Partition, OffsetToCommit]) -> Fields:
    """Make the fields of a commit to a group without members."""

    def fields(exchange: Exchange) -> dict[str, Any]:
        types, by_topic = exchange.types, dict[str, list[Any]]()
        for at, value in offsets.items():
            by_topic.setdefault(at.topic, []).append(
                made(
                    types.OffsetCommitRequestPartition,
                    partition_index=at.partition,
                    committed_offset=value.offset,
                    committed_leader_epoch=value.leader_epoch,
                    committed_metadata=value.metadata,
                )
            )
        topics = tuple(
            made(types.OffsetCommitRequestTopic, name=topic, partitions=tuple(each)) for topic, each in by_topic.items()
        )
        return {
            "group_id": group,
            "generation_id_or_member_epoch": _NO_GENERATION,
            "member_id": _NO_MEMBER,
            "group_instance_id": None,
            "topics": topics,
        }

    return fields


def committed(answer: Any) -> dict[Partition, int]:
    """Return the error code of each partition in an answer to `commit_fields`; 0: it is committed."""
    return {
        Partition(topic.name, each.partition_index): int(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }
