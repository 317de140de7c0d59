"""The part of a classic group that all events share: its checks and the course of a rebalance.

A rebalance: prepare (wait until all have joined, or long enough) → a new generation → the leader's assignment → stable.
Source: Kafka `ClassicGroup`, `GroupMetadataManager`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from embedded_broker.state.codec import Truncated
from embedded_broker.state.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from embedded_broker.state.group_members import Member, Members
from embedded_broker.state.group_types import (
    NO_MEMBER_ID,
    TRANSITIONS,
    Cancel,
    Effect,
    GroupState,
    HeartbeatExpired,
    IllegalGroupStep,
    InitialDelayOver,
    JoinAnswer,
    JoinExpired,
    Reply,
    ScheduleEvent,
    Store,
    SyncAnswer,
    SyncExpired,
)

JOIN_TIMER = "join"
SYNC_TIMER = "sync"


def heartbeat_timer(member_id: str) -> str:
    """Return the key of a member's session timer."""
    return f"heartbeat {member_id}"


class Rebalancing:
    """State of a group, and its way from one generation to the next. `groups.Group` adds the events."""

    def __init__(self, group_id: str, initial_delay_ms: int, new_member_timeout_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self._initial_delay_ms = initial_delay_ms
        self._new_member_timeout_ms = new_member_timeout_ms
        # Of the current generation, those that have not yet asked for their assignment.
        self._pending_sync: set[str] = set()
        self._in_initial_delay = False
        self._member_came_in_delay = False
        self._effects: list[Effect] = []

    # What requests are checked against.

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check whether a request comes from a member, and from the current one under its instance id."""
        if instance_id is not None:
            current = self.members.with_instance(instance_id)
            if current is None:
                return ErrorCode.unknown_member_id
            if current != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def validate_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool, version: int = 2
    ) -> ErrorCode:
        """Check whether offsets may be committed, whatever the version. Source: `ClassicGroup.validateOffsetCommit`."""
        if self.state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.none
        if generation >= 0 or member_id != NO_MEMBER_ID or instance_id is not None:
            if error_code := self.validate_member(member_id, instance_id):
                return error_code
            if generation != self.generation:
                return ErrorCode.illegal_generation
        elif not transactional:
            return ErrorCode.unknown_member_id
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    @property
    def is_consumers(self) -> bool:
        """Whether the group has members, and they are consumers."""
        return self.state is not GroupState.EMPTY and self.protocol_type == PROTOCOL_TYPE

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members are subscribed to; None if that can't be told. Source: `ClassicGroup`."""
        if len(self.members) == 0:
            return frozenset()
        if not self.is_consumers or self.protocol_name is None:
            return None
        try:
            return frozenset().union(
                *(subscribed_topics(member.metadata(self.protocol_name)) for member in self.members)
            )
        except Truncated:
            return None

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether a member with these protocols can be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if len(self.members) == 0:
            return True
        return protocol_type == self.protocol_type and bool(
            self.members.common_protocols() & {name for name, _ in protocols}
        )

    def _joined(
        self, member: Member, with_members: bool, *, leader_id: str | None = None, skip_assignment: bool = False
    ) -> JoinAnswer:
        # Only the leader is told of all the others: for all members together that would be quadratic.
        told = self.members if with_members else ()
        members = tuple((other.member_id, other.instance_id, other.metadata(self.protocol_name)) for other in told)
        return JoinAnswer(
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            (self.members.leader_id or NO_MEMBER_ID) if leader_id is None else leader_id,
            skip_assignment,
            members,
        )

    # Rebalancing.

    def _prepare_or_complete(self) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all()
        else:
            self._prepare()

    def _prepare(self) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members:
                member.assignment = b""
            self._propagate(ErrorCode.rebalance_in_progress)
        self._pending_sync.clear()
        self._effects.append(Cancel(SYNC_TIMER))
        initial = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE)
        if initial:
            self._in_initial_delay, self._member_came_in_delay = True, False
            remaining_ms = max(self.members.rebalance_timeout_ms - self._initial_delay_ms, 0)
            event = InitialDelayOver(self._initial_delay_ms, remaining_ms)
            self._effects.append(ScheduleEvent(JOIN_TIMER, self._initial_delay_ms, event))
        elif self.members.all_joined():
            self._complete_join()
        else:
            self._effects.append(ScheduleEvent(JOIN_TIMER, self.members.rebalance_timeout_ms, JoinExpired()))

    def _complete_join_if_all(self) -> None:
        if not self._in_initial_delay and self.members.all_joined():
            self._complete_join()

    def _complete_join(self) -> None:
        self._effects.append(Cancel(JOIN_TIMER))
        self._in_initial_delay = False
        for member in self.members:
            if member.joining is None and member.instance_id is None:
                self._remove(member.member_id)
        if len(self.members) and not self.members.elect_joined_leader():
            # Only static members are left and none has come: they keep their places until their sessions expire.
            self._effects.append(ScheduleEvent(JOIN_TIMER, self.members.rebalance_timeout_ms, JoinExpired()))
            return
        self.generation += 1
        self._pending_sync.clear()
        if len(self.members) == 0:
            self.protocol_name = None
            self._enter(GroupState.EMPTY)
            self._effects.append(Store({}))
            return
        self.protocol_name = self.members.select_protocol()
        self._enter(GroupState.COMPLETING_REBALANCE)
        for member in self.members:
            if member.joining is not None:
                answer = self._joined(member, member.member_id == self.members.leader_id)
                self._effects.append(Reply(member.joining, answer))
                member.joining = None
            member.is_new = False
            self._watch(member)
            self._pending_sync.add(member.member_id)
        delay_ms = self.members.rebalance_timeout_ms
        self._effects.append(ScheduleEvent(SYNC_TIMER, delay_ms, SyncExpired(self.generation)))

    def _propagate(self, error_code: ErrorCode) -> None:
        """Answer every pending SyncGroup."""
        for member in self.members:
            if member.syncing is None:
                continue
            if error_code is ErrorCode.none:
                answer = SyncAnswer(error_code, self.protocol_type, self.protocol_name, member.assignment)
            else:
                answer = SyncAnswer(error_code)
            self._effects.append(Reply(member.syncing, answer))
            member.syncing = None
            self._watch(member)

    def _drop(self, member_id: str) -> None:
        """Remove a member that may be waiting for an answer."""
        member = self.members[member_id]
        if member.joining is not None:
            self._effects.append(Reply(member.joining, JoinAnswer(ErrorCode.unknown_member_id)))
        if member.syncing is not None:
            self._effects.append(Reply(member.syncing, SyncAnswer(ErrorCode.unknown_member_id)))
        self._remove(member_id)

    def _remove(self, member_id: str) -> None:
        self.members.remove(member_id)
        self._pending_sync.discard(member_id)
        self._effects.append(Cancel(heartbeat_timer(member_id)))

    def _watch(self, member: Member, timeout_ms: int | None = None) -> None:
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        event = HeartbeatExpired(member.member_id)
        self._effects.append(ScheduleEvent(heartbeat_timer(member.member_id), delay_ms, event))

    def _enter(self, state: GroupState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalGroupStep(f"{self.group_id}: {self.state} to {state}")
        self.state = state
