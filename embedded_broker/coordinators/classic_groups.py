"""Classic groups: runs the effects of their state machines (`state.groups`), holds pending JoinGroups and SyncGroups.

Part of `GroupCoordinator`. Source: Kafka `GroupCoordinatorService`, `GroupMetadataManager`. A group's record is written
when its leader's assignment arrives and when it becomes empty, so members keep their membership over a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.group_memory import MEMBER_BYTES_MAX, GroupMemory, Place
from embedded_broker.coordinators.group_registry import GroupRegistry
from embedded_broker.coordinators.ports import CoordinatorHost, GroupConfig
from embedded_broker.state import group_log
from embedded_broker.state.group_members import member_bytes
from embedded_broker.state.group_types import (
    Cancel,
    Effect,
    GroupState,
    JoinAnswer,
    JoinRequest,
    Reply,
    ScheduleEvent,
    Store,
    StoredEvent,
    SyncAnswer,
    SyncRequest,
    TimerEvent,
)
from embedded_broker.state.groups import Group
from embedded_broker.state.owners import SOMEBODY, Owner


class ClassicGroups:
    """All groups of the classic protocol. Called on the event loop only."""

    def __init__(
        self,
        host: CoordinatorHost,
        background: Background,
        config: GroupConfig,
        registry: GroupRegistry,
        memory: GroupMemory,
    ) -> None:
        """`memory`: of all groups, those of the consumer protocol included."""
        self._host, self._background, self._config, self._registry = host, background, config, registry
        self.memory = memory

    def resume(self) -> None:
        """Start the session timeout of every member found at recovery."""
        for group in self._registry.all():
            if isinstance(group, Group):
                for member in group.members:
                    self.memory.found(Place(group.group_id, member.member_id), member.client_host)
                self.memory.note(group.group_id, group.members.sizes())
                for member in group.members:
                    self._run(group, group.touch(member.member_id))

    async def join(
        self, group_id: str, make: Callable[[object, str], JoinRequest], owner: Owner = SOMEBODY
    ) -> JoinAnswer:
        """Handle JoinGroup; return when the rebalance is over. Raises NoSpace, see `GroupRegistry.refuse_if_full`.

        Args:
            group_id: which group.
            make: the request, given a ticket and a suffix that makes a new member id unique.
            owner: the client's connection.
        """
        self._registry.refuse_if_full()
        ticket: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        request = make(ticket, str(self._host.new_uuid()))
        if not group_id:
            return JoinAnswer(ErrorCode.invalid_group_id, request.member_id)
        limits = self._config.min_session_timeout_ms, self._config.max_session_timeout_ms
        if not limits[0] <= request.session_timeout_ms <= limits[1]:
            return JoinAnswer(ErrorCode.invalid_session_timeout, request.member_id)
        group = self._registry.classic(group_id)
        if group is None and request.member_id:
            return JoinAnswer(ErrorCode.unknown_member_id, request.member_id)
        place = Place(group_id, request.member_id or request.new_member_id)
        joining_bytes = member_bytes(request.client_id, request.instance_id, request.protocols)
        if not self.memory.admit(owner, place, joining_bytes):
            return JoinAnswer(ErrorCode.group_max_size_reached, request.member_id)
        group = group or self._registry.find_or_create_classic(group_id)
        if group is None:
            self.memory.forget_absent(place)
            return JoinAnswer(ErrorCode.inconsistent_group_protocol, request.member_id)
        effects = group.join(request)
        member_id = request.member_id or request.new_member_id
        if group.state is GroupState.PREPARING_REBALANCE and request.instance_id is None and member_id in group.members:
            # Nobody else has come or gone: to look at all members for each one that joins would be quadratic.
            self.memory.note_one(place, group.members[member_id].size_bytes)
            self._run(group, effects)
        else:
            self._run_changed(group, effects)
        self.memory.forget_absent(place)
        return await ticket

    def evict(self, group: Group, member_id: str) -> None:
        """Do as if the member had left; a request of it that waits is answered."""
        instance_id = group.members[member_id].instance_id if member_id in group.members else None
        _, effects = group.leave([(member_id, instance_id)])
        self._run_changed(group, effects)

    async def sync(self, group_id: str, make: Callable[[object], SyncRequest]) -> SyncAnswer:
        """Handle SyncGroup; return when the leader has brought the assignment. Raises NoSpace, as `join`.

        Args:
            group_id: which group.
            make: the request, given a ticket.
        """
        if not group_id:
            return SyncAnswer(ErrorCode.invalid_group_id)
        group = self._registry.classic(group_id)
        if group is None:
            return SyncAnswer(ErrorCode.unknown_member_id)
        self._registry.refuse_if_full()
        ticket: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        request = make(ticket)
        if sum(map(len, request.assignment.values())) > MEMBER_BYTES_MAX:
            # As Kafka when the group's record is larger than a batch may be.
            return SyncAnswer(ErrorCode.unknown_server_error)
        self._run(group, group.sync(request))
        return await ticket

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle Heartbeat: renew a member's session."""
        if not group_id:
            return ErrorCode.invalid_group_id
        group = self._registry.classic(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        error_code, effects = group.heartbeat(member_id, instance_id, generation)
        self._run(group, effects)
        return error_code

    def leave(self, group_id: str, members: list[tuple[str, str | None]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Handle LeaveGroup by (member id, instance id): return an error for the request, and one for each member.
        Raises NoSpace, as `join`."""
        if not group_id:
            return ErrorCode.invalid_group_id, []
        group = self._registry.classic(group_id)
        if group is None:
            return ErrorCode.none, [ErrorCode.unknown_member_id for _ in members]
        self._registry.refuse_if_full()
        results, effects = group.leave(members)
        self._run_changed(group, effects)
        return ErrorCode.none, results

    def touch(self, group_id: str, member_id: str) -> None:
        """Note that a member has committed offsets, which renews its session."""
        group = self._registry.classic(group_id)
        if group is not None and member_id in group.members:
            self._run(group, group.touch(member_id))

    def _run_changed(self, group: Group, effects: list[Effect]) -> None:
        """Run effects as `_run` does, when members have come, gone or changed."""
        self.memory.note(group.group_id, group.members.sizes())
        self._run(group, effects)

    def _run(self, group: Group, effects: list[Effect]) -> None:
        """Run the effects of the state machine, in order."""
        for effect in effects:
            if isinstance(effect, Reply):
                _answer(effect)
            elif isinstance(effect, ScheduleEvent):
                key, event = (group.group_id, effect.key), effect.event
                self._background.schedule(key, effect.delay_ms, self._expiry(group, event))
            elif isinstance(effect, Cancel):
                self._background.cancel((group.group_id, effect.key))
            else:
                self._store(group, effect)

    def _expiry(self, group: Group, event: TimerEvent) -> Callable[[], None]:
        return lambda: self._run_changed(group, group.expired(event))

    def _store(self, group: Group, effect: Store) -> None:
        now_ms = self._host.clock.now_ms()
        self._registry.store(group, group_log.encode_group(group, effect.assignment, now_ms), now_ms)
        if effect.then is not None:
            self._background.retry_until_done(
                f"store group {group.group_id}", partial(self._stored, group, effect.then)
            )

    async def _stored(self, group: Group, event: StoredEvent) -> None:
        await self._registry.durable()
        self._run_changed(group, group.stored(event))


def _answer(reply: Reply) -> None:
    ticket = reply.ticket
    # The client may have hung up, which cancels its future.
    if isinstance(ticket, asyncio.Future) and not ticket.done():
        ticket.set_result(reply.answer)
