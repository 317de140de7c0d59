"""A classic consumer group: events in, effects out; no clock and no I/O.

Each event's method changes the group and returns what the coordinator must do about it, in order. Source: Kafka
`GroupMetadataManager` (classic groups), KIP-345 (static members), KIP-394 (known member id), KIP-814 (skip assignment).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from kio.schema.errors import ErrorCode

from embedded_broker.state.group_members import Member
from embedded_broker.state.group_types import (
    NO_MEMBER_ID,
    AssignmentStored,
    Cancel,
    Effect,
    GroupState,
    HeartbeatExpired,
    InitialDelayOver,
    JoinAnswer,
    JoinRequest,
    Reply,
    ScheduleEvent,
    StaticMemberStored,
    Store,
    StoredEvent,
    SyncAnswer,
    SyncExpired,
    SyncRequest,
    TimerEvent,
)
from embedded_broker.state.rebalance import JOIN_TIMER, SYNC_TIMER, Rebalancing, heartbeat_timer

P = ParamSpec("P")
T = TypeVar("T")


def _event(method: Callable[Concatenate[Group, P], None]) -> Callable[Concatenate[Group, P], list[Effect]]:
    """Make an event's method return the effects that it leaves."""

    @wraps(method)
    def handle(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> list[Effect]:
        method(self, *args, **kwargs)
        effects, self._effects = self._effects, []
        return effects

    return handle


class Group(Rebalancing):
    """One group. `generation` grows by one with every rebalance."""

    # Events.

    @_event
    def join(self, request: JoinRequest) -> None:
        """Handle JoinGroup."""
        if self.state is GroupState.DEAD:
            self._refuse_join(request, ErrorCode.coordinator_not_available)
        elif not self.supports(request.protocol_type, request.protocols):
            self._refuse_join(request, ErrorCode.inconsistent_group_protocol)
        elif request.member_id == NO_MEMBER_ID:
            self._join_new(request)
        elif request.member_id in self.members.pending:
            self._add(request, request.member_id)
        else:
            self._join_existing(request)

    @_event
    def sync(self, request: SyncRequest) -> None:
        """Handle SyncGroup."""
        if error_code := self._validate_sync(request):
            self._effects.append(Reply(request.ticket, SyncAnswer(error_code)))
            return
        member = self.members[request.member_id]
        self._pending_sync.discard(member.member_id)
        if self.state is GroupState.STABLE:
            if not self._pending_sync:
                self._effects.append(Cancel(SYNC_TIMER))
            answer = SyncAnswer(ErrorCode.none, self.protocol_type, self.protocol_name, member.assignment)
            self._effects.append(Reply(request.ticket, answer))
            return
        member.syncing = request.ticket
        if member.member_id == self.members.leader_id:
            assignment = {other.member_id: request.assignment.get(other.member_id, b"") for other in self.members}
            self._effects.append(Store(assignment, AssignmentStored(self.generation, assignment)))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[ErrorCode, list[Effect]]:
        """Handle Heartbeat: return the error to answer, and the effects."""
        if self.state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available, []
        if error_code := self.validate_member(member_id, instance_id):
            return error_code, []
        if generation != self.generation:
            return ErrorCode.illegal_generation, []
        rebalancing = self.state is GroupState.PREPARING_REBALANCE
        return (ErrorCode.rebalance_in_progress if rebalancing else ErrorCode.none), self.touch(member_id)

    @_event
    def touch(self, member_id: str) -> None:
        """Note that a member has shown that it lives."""
        self._watch(self.members[member_id])

    def leave(self, leaving: list[tuple[str, str | None]]) -> tuple[list[ErrorCode], list[Effect]]:
        """Handle LeaveGroup, by (member id, instance id): return an error for each, and the effects."""
        results = [self._leave_one(member_id, instance_id) for member_id, instance_id in leaving]
        if ErrorCode.none in results:
            if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._prepare()
            elif self.state is GroupState.PREPARING_REBALANCE:
                self._complete_join_if_all()
        effects, self._effects = self._effects, []
        return results, effects

    @_event
    def expired(self, event: TimerEvent) -> None:
        """Note that a timer asked for by `ScheduleEvent` is over."""
        if isinstance(event, HeartbeatExpired):
            self._expire_member(event.member_id)
        elif isinstance(event, SyncExpired):
            self._expire_sync(event.generation)
        elif self.state is not GroupState.PREPARING_REBALANCE:
            return
        elif isinstance(event, InitialDelayOver) and self._member_came_in_delay and event.remaining_ms:
            self._member_came_in_delay = False
            delay_ms = min(self._initial_delay_ms, event.remaining_ms)
            again = InitialDelayOver(delay_ms, max(event.remaining_ms - event.delay_ms, 0))
            self._effects.append(ScheduleEvent(JOIN_TIMER, delay_ms, again))
        else:
            self._complete_join()

    @_event
    def stored(self, event: StoredEvent) -> None:
        """Note that a record asked for by `Store` is on disk."""
        if isinstance(event, StaticMemberStored):
            self._answer_static(event)
        elif self.state is GroupState.COMPLETING_REBALANCE and event.generation == self.generation:
            for member in self.members:
                member.assignment = event.assignment.get(member.member_id, b"")
            self._propagate(ErrorCode.none)
            self._enter(GroupState.STABLE)

    def die(self) -> None:
        """Note that the group is deleted."""
        self._enter(GroupState.DEAD)

    # Joining.

    def _join_new(self, request: JoinRequest) -> None:
        if request.instance_id is None and request.must_know_member_id:
            self.members.pending[request.new_member_id] = None
            expired = HeartbeatExpired(request.new_member_id)
            timer = heartbeat_timer(request.new_member_id)
            self._effects.append(ScheduleEvent(timer, request.session_timeout_ms, expired))
            answer = JoinAnswer(ErrorCode.member_id_required, request.new_member_id)
            self._effects.append(Reply(request.ticket, answer))
            return
        existing = None if request.instance_id is None else self.members.with_instance(request.instance_id)
        if existing is None:
            self._add(request, request.new_member_id)
        else:
            self._replace_static(request, existing)

    def _join_existing(self, request: JoinRequest) -> None:
        if error_code := self.validate_member(request.member_id, request.instance_id):
            self._refuse_join(request, error_code)
            return
        member = self.members[request.member_id]
        is_leader = member.member_id == self.members.leader_id
        changed = tuple(member.protocols) != request.protocols
        if self.state is GroupState.PREPARING_REBALANCE or changed:
            rejoins = True
        else:
            # A leader that comes back to a stable group wants a new assignment; to a group that still waits for its
            # assignment it has only missed the answer.
            rejoins = is_leader and self.state is GroupState.STABLE
        if rejoins:
            self._update(member, request)
            self._prepare_or_complete()
        else:
            self._effects.append(Reply(request.ticket, self._joined(member, is_leader)))

    def _add(self, request: JoinRequest, member_id: str) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
            joining=request.ticket,
            is_new=True,
        )
        if len(self.members) == 0:
            self.protocol_type = request.protocol_type
        self._member_came_in_delay |= self._in_initial_delay
        self.members.add(member)
        self._watch(member, self._new_member_timeout_ms)
        self._prepare_or_complete()

    def _update(self, member: Member, request: JoinRequest) -> None:
        self.members.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        if member.joining is not None and member.joining is not request.ticket:
            # An earlier request of the same member still waits; only the latest is answered with the generation.
            self._effects.append(Reply(member.joining, JoinAnswer(ErrorCode.unknown_member_id, member.member_id)))
        member.joining = request.ticket

    def _replace_static(self, request: JoinRequest, old_id: str) -> None:
        old, previous_leader_id = self.members[old_id], self.members.leader_id
        if old.joining is not None:
            answer = JoinAnswer(ErrorCode.fenced_instance_id, old_id)
            self._effects.append(Reply(old.joining, answer))
        if old.syncing is not None:
            self._effects.append(Reply(old.syncing, SyncAnswer(ErrorCode.fenced_instance_id)))
        self._effects.append(Cancel(heartbeat_timer(old_id)))
        self._pending_sync.discard(old_id)
        member = self.members.replace_static(old_id, request.new_member_id)
        self._update(member, request)
        self._watch(member)
        if self.state is GroupState.STABLE and self.members.select_protocol() == self.protocol_name:
            assignment = {other.member_id: other.assignment for other in self.members}
            then = StaticMemberStored(member.member_id, previous_leader_id, request.can_skip_assignment)
            self._effects.append(Store(assignment, then))
        elif self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all()
        else:
            self._prepare()

    def _answer_static(self, event: StaticMemberStored) -> None:
        if event.member_id not in self.members or self.state is not GroupState.STABLE:
            # A rebalance has begun meanwhile and will answer.
            return
        member = self.members[event.member_id]
        if member.joining is None:
            return
        is_leader = member.member_id == self.members.leader_id
        skips = event.can_skip_assignment and is_leader
        # An old client believes what it reads: were it told that it leads, it would assign anew.
        leader_id = self.members.leader_id if event.can_skip_assignment else event.previous_leader_id
        answer = self._joined(member, skips, leader_id=leader_id or NO_MEMBER_ID, skip_assignment=skips)
        self._effects.append(Reply(member.joining, answer))
        member.joining = None

    def _refuse_join(self, request: JoinRequest, error_code: ErrorCode) -> None:
        self._effects.append(Reply(request.ticket, JoinAnswer(error_code, request.member_id)))

    def _validate_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if error_code := self.validate_member(request.member_id, request.instance_id):
            return error_code
        if request.generation != self.generation:
            return ErrorCode.illegal_generation
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.inconsistent_group_protocol
        if request.protocol_name is not None and request.protocol_name != self.protocol_name:
            return ErrorCode.inconsistent_group_protocol
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    # Leaving.

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if member_id == NO_MEMBER_ID:
            current = None if instance_id is None else self.members.with_instance(instance_id)
            if current is None:
                return ErrorCode.unknown_member_id
            self._drop(current)
        elif member_id in self.members.pending:
            self._remove(member_id)
        elif error_code := self.validate_member(member_id, instance_id):
            return error_code
        else:
            self._drop(member_id)
        return ErrorCode.none

    def _expire_member(self, member_id: str) -> None:
        if member_id in self.members.pending:
            self._remove(member_id)
            if self.state is GroupState.PREPARING_REBALANCE:
                self._complete_join_if_all()
        elif member_id in self.members and not self.members[member_id].is_waiting:
            self._drop(member_id)
            if self.state is GroupState.PREPARING_REBALANCE:
                self._complete_join_if_all()
            else:
                self._prepare()

    def _expire_sync(self, generation: int) -> None:
        waiting = self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        if generation != self.generation or not waiting or not self._pending_sync:
            return
        for member_id in sorted(self._pending_sync):
            self._remove(member_id)
        self._prepare()
