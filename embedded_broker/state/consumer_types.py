"""States of a consumer group (KIP-848) and its members, its requests and answers, and what it asks the coordinator for.

A consumer group differs from a classic one in who assigns: the broker does, and members only report what they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

TopicIdPartition = tuple[UUID, int]
Partitions = frozenset[TopicIdPartition]
NOTHING: Partitions = frozenset()


def by_topic(partitions: Partitions) -> dict[UUID, list[int]]:
    """Group partitions by their topics, both in order."""
    found: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return found


JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class ConsumerGroupState(StrEnum):
    """The values are what ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


# From → to, from the end of one event to the end of the next. A join assigns at once; after a member is gone the others
# are assigned anew with the next heartbeat, and until then the group is ASSIGNING. Source: Kafka `ConsumerGroup`.
GROUP_TRANSITIONS: Mapping[ConsumerGroupState, frozenset[ConsumerGroupState]] = {
    ConsumerGroupState.EMPTY: frozenset(
        {ConsumerGroupState.STABLE, ConsumerGroupState.RECONCILING, ConsumerGroupState.DEAD}
    ),
    ConsumerGroupState.ASSIGNING: frozenset(
        {ConsumerGroupState.STABLE, ConsumerGroupState.RECONCILING, ConsumerGroupState.EMPTY}
    ),
    ConsumerGroupState.RECONCILING: frozenset(
        {ConsumerGroupState.STABLE, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY}
    ),
    ConsumerGroupState.STABLE: frozenset(
        {ConsumerGroupState.RECONCILING, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY}
    ),
    ConsumerGroupState.DEAD: frozenset(),
}


class MemberState(IntEnum):
    """How far a member is on the way to its target. The values are those of Kafka's records."""

    STABLE = 0
    UNREVOKED = 1
    """It must give partitions back, and still holds them."""
    UNRELEASED = 2
    """Partitions of its target are still held by others."""


class Situation(IntEnum):
    """What stands between a member and its target."""

    OWES = 0
    WAITS = 1
    NOTHING = 2


# What a member found in a situation becomes, and whether it moves on to the target's epoch: it does as soon as it owes
# nothing. The state that it comes from doesn't matter. Source: Kafka `CurrentAssignmentBuilder`.
MEMBER_STEPS: Mapping[Situation, tuple[MemberState, bool]] = {
    Situation.OWES: (MemberState.UNREVOKED, False),
    Situation.WAITS: (MemberState.UNRELEASED, True),
    Situation.NOTHING: (MemberState.STABLE, True),
}


class HeartbeatRejected(Exception):
    """A request that changes nothing; carries the answer's error."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class TopicInfo(NamedTuple):
    """What an assignment needs of a topic."""

    topic_id: UUID
    partitions: int


class Catalog(Protocol):
    """The topics of the broker, as groups see them."""

    @property
    def version(self) -> int:
        """Grows whenever a topic comes, goes, or gets partitions."""

    def names(self) -> Collection[str]:
        """Return the names of all topics that may be subscribed to by a pattern."""

    def infos(self, names: frozenset[str]) -> Mapping[str, TopicInfo]:
        """Return what is known of these topics, in the order of their names. Those that don't exist are left out, and
        take no time: members may name thousands of them."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. None: as the member said before."""

    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def says_something(self) -> bool:
        """Whether it says anything of the member that is kept, beside that it is there."""
        said = (self.instance_id, self.rack_id, self.topic_names, self.topic_regex)
        return any(each is not None for each in said)

    @property
    def size_bytes(self) -> int:
        """What that takes in memory."""
        texts = (self.member_id, self.client_id, self.instance_id, self.rack_id, self.topic_regex)
        return text_bytes(texts, self.topic_names or ())

    @property
    def is_full(self) -> bool:
        """Whether it says everything: the member joins, or isn't sure of what has been heard."""
        said = self.rebalance_timeout_ms is not None and self.topic_names is not None and self.owned is not None
        return self.member_epoch == JOIN_EPOCH or said


MEMBER_BYTES, NAME_BYTES, PARTITION_BYTES = 2_000, 100, 100
"""What a member takes in memory beside its texts; the name of a topic; a partition that it has or shall have."""


def text_bytes(texts: Iterable[str | None], topic_names: Collection[str]) -> int:
    """Compute what a member takes in memory that says this of itself."""
    names = NAME_BYTES * len(topic_names) + sum(map(len, topic_names))
    return MEMBER_BYTES + sum(len(text) for text in texts if text is not None) + names


@dataclass(frozen=True, slots=True)
class ConsumerAnswer:
    """Answer to ConsumerGroupHeartbeat; `assignment` only if the member must be told."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    assignment: Partitions | None = None
    heartbeat_interval_ms: int = 0


# Timer events, handed back by the coordinator.


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """A member has been silent for the session timeout."""

    member_id: str


@dataclass(frozen=True, slots=True)
class RevocationExpired:
    """A member has had its rebalance timeout to give partitions back, since it was in this epoch."""

    member_id: str
    member_epoch: int


ConsumerTimer = SessionExpired | RevocationExpired


@dataclass(frozen=True, slots=True)
class Watch:
    """Hand `event` back after `delay_ms`, in place of the timer with the same key."""

    key: str
    delay_ms: int
    event: ConsumerTimer


@dataclass(frozen=True, slots=True)
class Unwatch:
    """Forget a timer."""

    key: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Named as in Kafka's broker configuration, without `group.consumer.`"""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
