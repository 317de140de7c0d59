"""The group coordinator: carries out what the groups' machines ask for, and keeps their records.

Source: Kafka `GroupCoordinatorService`, `GroupMetadataManager`. A group's record is written when its leader's
assignment arrives and when it becomes empty, so a restart finds consumers in their group and they just go on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.compaction import Compactor, Records
from embedded_broker.coordinators.offsets import OffsetManager
from embedded_broker.coordinators.ports import OFFSETS_TOPIC, GroupConfig, Host
from embedded_broker.state import group_log
from embedded_broker.state.group_types import (
    Cancel,
    Effect,
    GroupState,
    JoinAnswer,
    JoinRequest,
    Reply,
    Schedule,
    Store,
    StoredEvent,
    SyncAnswer,
    SyncRequest,
    TimerEvent,
)
from embedded_broker.state.groups import Group
from embedded_broker.state.offsets import OffsetRecord
from embedded_broker.wire.batch import BatchHeader, Buffer
from embedded_broker.wire.records import decode, encode, marker_commits

SWEEP_INTERVAL_MS = 600_000


class GroupCoordinator:
    """All groups of the broker. Called on the event loop only."""

    def __init__(self, host: Host, config: GroupConfig | None = None) -> None:
        self._host = host
        self._config = config or GroupConfig()
        self._groups: dict[str, Group] = {}
        # The value of each group's last record, and when it was written; a group without members expires by that.
        self._stored: dict[str, tuple[bytes, int]] = {}
        self._background = Background(host.fail)
        self.offsets = OffsetManager(host, self._background, self._config, self._find_or_create)
        self._compactor = Compactor(host, self._background, OFFSETS_TOPIC, self._live)

    def replay(self, header: BatchHeader, batch: Buffer) -> None:
        """Take over a batch of `__consumer_offsets` at recovery, in log order.

        Raises:
            Truncated: a record is not whole although its batch's CRC is right: written by something else.
        """
        if header.is_control:
            self.offsets.end_transaction(header.producer_id, marker_commits(batch))
            return
        for record in decode(batch):
            found = group_log.decode(record.key or b"", record.value, record.offset)
            if isinstance(found, OffsetRecord):
                self.offsets.replay(found, header.producer_id if header.is_transactional else -1)
            elif isinstance(found, group_log.GroupRecord):
                group = self._groups[found.group_id] = self._new_group(found.group_id)
                group_log.restore(group, found)
                self._stored[found.group_id] = record.value or b"", found.state_ms
            elif isinstance(found, group_log.GroupForgotten):
                self._groups.pop(found.group_id, None)
                self._stored.pop(found.group_id, None)

    async def start(self) -> None:
        """Give the members found at recovery one session timeout to show that they live.

        Offsets on topics that don't exist are dropped: a crash came between a topic's deletion and theirs.
        """
        for topic in self.offsets.state.topics():
            if self._host.topics.get(topic) is None:
                await self.offsets.forget_topic(topic)
        for group_id in self.offsets.state.group_ids():
            self._find_or_create(group_id)
        for group in self._groups.values():
            for member in group.members:
                self._run(group, group.touch(member.member_id))
        self._background.schedule("sweep", SWEEP_INTERVAL_MS, self._sweep)
        self._compactor.check()

    async def stop(self) -> None:
        """Let the records under way reach the disk."""
        await self._background.stop()

    async def join(self, group_id: str, make: Callable[[object, str], JoinRequest]) -> JoinAnswer:
        """JoinGroup; returns when the rebalance is over.

        Args:
            group_id: which group.
            make: the request, given a ticket and a suffix that makes a new member id unique.
        """
        ticket: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        request = make(ticket, str(uuid.uuid4()))
        if not group_id:
            return JoinAnswer(ErrorCode.invalid_group_id, request.member_id)
        limits = self._config.min_session_timeout_ms, self._config.max_session_timeout_ms
        if not limits[0] <= request.session_timeout_ms <= limits[1]:
            return JoinAnswer(ErrorCode.invalid_session_timeout, request.member_id)
        group = self._groups.get(group_id)
        if group is None:
            if request.member_id:
                return JoinAnswer(ErrorCode.unknown_member_id, request.member_id)
            group = self._find_or_create(group_id)
        self._run(group, group.join(request))
        return await ticket

    async def sync(self, group_id: str, make: Callable[[object], SyncRequest]) -> SyncAnswer:
        """SyncGroup; returns when the leader has brought the assignment.

        Args:
            group_id: which group.
            make: the request, given a ticket.
        """
        if not group_id:
            return SyncAnswer(ErrorCode.invalid_group_id)
        group = self._groups.get(group_id)
        if group is None:
            return SyncAnswer(ErrorCode.unknown_member_id)
        ticket: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._run(group, group.sync(make(ticket)))
        return await ticket

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat: a member lives."""
        if not group_id:
            return ErrorCode.invalid_group_id
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        error_code, effects = group.heartbeat(member_id, instance_id, generation)
        self._run(group, effects)
        return error_code

    def leave(self, group_id: str, members: list[tuple[str, str | None]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """LeaveGroup by (member id, instance id): an error for the request, and one for each member."""
        if not group_id:
            return ErrorCode.invalid_group_id, []
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.none, [ErrorCode.unknown_member_id for _ in members]
        results, effects = group.leave(members)
        self._run(group, effects)
        return ErrorCode.none, results

    def touch(self, group_id: str, member_id: str) -> None:
        """A member has committed offsets, so it lives."""
        group = self._groups.get(group_id)
        if group is not None and member_id in group.members:
            self._run(group, group.touch(member_id))

    def get(self, group_id: str) -> Group | None:
        """A group, for DescribeGroups. Read only."""
        return self._groups.get(group_id)

    def all(self) -> list[Group]:
        """All groups, for ListGroups. Read only."""
        return list(self._groups.values())

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.state is not GroupState.EMPTY:
            return ErrorCode.non_empty_group
        await self._background.finish(f"delete group {group_id}", self._delete(group))
        return ErrorCode.none

    async def on_topic_deleted(self, topic: str) -> None:
        """A topic is gone: so are the offsets that groups have on it. Call it after the topic's own record."""
        await self._background.finish(f"offsets of {topic}", self.offsets.forget_topic(topic))

    async def _delete(self, group: Group) -> None:
        group.die()
        del self._groups[group.group_id]
        self._stored.pop(group.group_id, None)
        log = self._host.internal_log(OFFSETS_TOPIC)
        log.append(encode([(group_log.encode_key(group.group_id), None)], self._host.clock.now_ms()))
        await self.offsets.forget_group(group.group_id)
        await self._host.durable(log)

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self._config.initial_rebalance_delay_ms, self._config.new_member_join_timeout_ms)

    def _find_or_create(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = self._new_group(group_id)
        return group

    def _run(self, group: Group, effects: list[Effect]) -> None:
        """Carry out what the machine asks for, in its order."""
        for effect in effects:
            if isinstance(effect, Reply):
                _answer(effect)
            elif isinstance(effect, Schedule):
                key, event = (group.group_id, effect.key), effect.event
                self._background.schedule(key, effect.delay_ms, self._expiry(group, event))
            elif isinstance(effect, Cancel):
                self._background.cancel((group.group_id, effect.key))
            else:
                self._store(group, effect)

    def _expiry(self, group: Group, event: TimerEvent) -> Callable[[], None]:
        return lambda: self._run(group, group.expired(event))

    def _store(self, group: Group, effect: Store) -> None:
        now_ms = self._host.clock.now_ms()
        log = self._host.internal_log(OFFSETS_TOPIC)
        value = group_log.encode_group(group, effect.assignment, now_ms)
        log.append(encode([(group_log.encode_key(group.group_id), value)], now_ms))
        self._stored[group.group_id] = value, now_ms
        if effect.then is not None:
            self._background.spawn(f"store group {group.group_id}", self._go_on(group, effect.then))

    async def _go_on(self, group: Group, event: StoredEvent) -> None:
        await self._host.durable(self._host.internal_log(OFFSETS_TOPIC))
        self._run(group, group.stored(event))

    def _live(self) -> Records | None:
        """What the log must hold: each group's latest record, and the committed offsets."""
        committed = self.offsets.live()
        if committed is None:
            return None
        return [(group_log.encode_key(group_id), value) for group_id, (value, _) in self._stored.items()] + committed

    def _sweep(self) -> None:
        """Forget offsets of groups that have had no members for `offsets.retention.minutes`, then empty groups."""
        now_ms = self._host.clock.now_ms()
        for group in self.all():
            if group.state is not GroupState.EMPTY:
                continue
            # A group that never had members counts from each commit alone.
            _, stored_ms = self._stored.get(group.group_id, (b"", 0))
            empty_since_ms = stored_ms if group.protocol_type else 0
            if self.offsets.expire(group.group_id, empty_since_ms, now_ms):
                self._background.spawn(f"expire group {group.group_id}", self._delete(group))
        self._background.schedule("sweep", SWEEP_INTERVAL_MS, self._sweep)


def _answer(reply: Reply) -> None:
    ticket = reply.ticket
    # The client may have hung up, which cancels its future.
    if isinstance(ticket, asyncio.Future) and not ticket.done():
        ticket.set_result(reply.answer)
