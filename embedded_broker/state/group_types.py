"""States of a classic consumer group, and the events and effects of its state machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kio.schema.errors import ErrorCode

NO_MEMBER_ID = ""
NO_GENERATION = -1


class GroupState(StrEnum):
    """The values are what DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# From → to. Source: Kafka `ClassicGroupState`.
TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD},
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


class IllegalGroupStep(Exception):
    """A step that the table doesn't have: a bug of the broker, never a client's fault."""


# Events that the machine asks to be handed back later.


@dataclass(frozen=True, slots=True)
class HeartbeatExpired:
    """A member has been silent for its session timeout."""

    member_id: str


@dataclass(frozen=True, slots=True)
class InitialDelayOver:
    """A new group has waited for more members; `remaining_ms` may still be waited if some came."""

    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class JoinExpired:
    """The rebalance timeout is over: go on without those who have not joined."""


@dataclass(frozen=True, slots=True)
class SyncExpired:
    """Members of this generation have had time enough to ask for their assignment."""

    generation: int


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """The leader's assignment of this generation is on disk."""

    generation: int
    assignment: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    """A static member's new member id is on disk."""

    member_id: str
    previous_leader_id: str | None
    can_skip_assignment: bool


TimerEvent = HeartbeatExpired | InitialDelayOver | JoinExpired | SyncExpired
StoredEvent = AssignmentStored | StaticMemberStored


# Answers.


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """Answer to JoinGroup."""

    error_code: ErrorCode = ErrorCode.none
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER_ID
    skip_assignment: bool = False
    # Member id, instance id, metadata; for the leader only.
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """Answer to SyncGroup."""

    error_code: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


# Effects: what the coordinator must do, in this order.


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request."""

    ticket: object
    answer: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """Hand `event` back after `delay_ms`, in place of the timer with the same key."""

    key: str
    delay_ms: int
    event: TimerEvent


@dataclass(frozen=True, slots=True)
class Cancel:
    """Forget a timer."""

    key: str


@dataclass(frozen=True, slots=True)
class Store:
    """Write the group's record with these assignments; once on disk, hand `then` back."""

    assignment: Mapping[str, bytes]
    then: StoredEvent | None = None


Effect = Reply | ScheduleEvent | Cancel | Store


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """JoinGroup, with a ticket by which the answer finds its way back."""

    ticket: object
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    # From JoinGroup 4 on a new dynamic member must join a second time, with its member id (KIP-394).
    must_know_member_id: bool
    # From JoinGroup 9 on a leader that comes back can be told that it need not assign (KIP-814).
    can_skip_assignment: bool
    # Made by the coordinator, so that the machine needs no randomness; used for a new member.
    new_member_id: str


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """SyncGroup, with a ticket."""

    ticket: object
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: Mapping[str, bytes]
