"""A consumer group (KIP-848): heartbeats and timers in; an answer, records and timers out. No clock and no I/O.

Three epochs drive it. The group's grows when members or topics change; the targets' follows when they are computed
anew, with the same heartbeat; each member's follows when it has given back what it must. Source: Kafka
`GroupMetadataManager.consumerGroupHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kio.schema.errors import ErrorCode

from embedded_broker.state import assignors
from embedded_broker.state.assignors import Assignee
from embedded_broker.state.consumer_members import (
    Change,
    ConsumerMember,
    ConsumerMembers,
    Current,
    GroupEpoch,
    Subscription,
    Target,
    TargetEpoch,
)
from embedded_broker.state.consumer_types import (
    GROUP_TRANSITIONS,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    Catalog,
    ConsumerAnswer,
    ConsumerGroupConfig,
    ConsumerGroupState,
    ConsumerHeartbeat,
    ConsumerTimer,
    HeartbeatRejected,
    MemberState,
    Partitions,
    RevocationExpired,
    SessionExpired,
    TopicIdPartition,
    Unwatch,
    Watch,
)
from embedded_broker.state.group_types import IllegalGroupStep
from embedded_broker.state.reconciliation import reconcile
from embedded_broker.state.subscriptions import Subscriptions


@dataclass(slots=True)
class ConsumerEffects:
    """What the coordinator must do: write the records as one batch, then set the timers."""

    records: list[Change] = field(default_factory=list)
    timers: list[Watch | Unwatch] = field(default_factory=list)


class ConsumerGroup:
    """One group."""

    def __init__(self, group_id: str, config: ConsumerGroupConfig) -> None:
        self.group_id = group_id
        self.members = ConsumerMembers()
        self.state = ConsumerGroupState.EMPTY
        self.config = config
        # By patterns, what their members may see: resolved with heartbeats.
        self._subscriptions = Subscriptions()
        # The same as if they could see everything: for those who only ask what a topic may be needed for.
        self._possible = Subscriptions()
        self._effects = ConsumerEffects()

    # Events.

    def heartbeat(self, request: ConsumerHeartbeat, topics: Catalog) -> tuple[ConsumerAnswer, ConsumerEffects]:
        """Handle ConsumerGroupHeartbeat: return the answer, to be given when the records are on disk.

        Args:
            request: checked by `subscriptions.check` already.
            topics: as they are now.
        """
        try:
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                answer = self._leave(request)
            else:
                answer = self._beat(request, topics)
        except HeartbeatRejected as refused:
            return ConsumerAnswer(refused.error_code, str(refused)), self._end()
        return answer, self._end()

    def remove(self, leaving: list[tuple[str, str | None]]) -> tuple[list[ErrorCode], ConsumerEffects]:
        """Handle LeaveGroup, by (member id, instance id), as admin clients use it for any group: return an error for
        each.
        """
        results = []
        for member_id, instance_id in leaving:
            member = self.members.get(member_id) if instance_id is None else self.members.static(instance_id)
            if member is None:
                results.append(ErrorCode.unknown_member_id)
            elif member_id not in ("", member.member_id):
                results.append(ErrorCode.fenced_instance_id)
            else:
                self._fence(member)
                results.append(ErrorCode.none)
        return results, self._end()

    def expired(self, event: ConsumerTimer) -> ConsumerEffects:
        """Note that a timer asked for by `Watch` is over."""
        member = self.members.get(event.member_id)
        if member is not None and (isinstance(event, SessionExpired) or member.epoch == event.member_epoch):
            self._fence(member)
        return self._end()

    def resume(self) -> ConsumerEffects:
        """Go on after a replay: the members have all their time to show that they live."""
        for member in self.members:
            self._watch(member)
            self._watch_revocation(member)
        return self._end()

    def replay(self, change: Change) -> None:
        """Take over a record found at recovery."""
        self.members.apply(change)
        self.state = self._derived()

    def die(self) -> None:
        """Note that the group is deleted."""
        self._enter(ConsumerGroupState.DEAD)

    # What requests are checked against.

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        transactional: bool,
        version: int,
        partitions: Iterable[TopicIdPartition] = (),
    ) -> ErrorCode:
        """Check whether offsets of `partitions` may be committed: all of them, or none.

        A member may commit with a former epoch what it has had since then (KIP-1251): it need not wait for the response
        that tells it its new epoch. Source: `ConsumerGroup.validateOffsetCommit`.
        """
        if epoch < 0 and not len(self.members):
            return ErrorCode.none
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not transactional and version < 9:
            return ErrorCode.unsupported_version
        if epoch > member.epoch or (epoch < member.epoch and not member.has_since(epoch, partitions)):
            # Transactions know no member epochs: a producer is told what it can understand.
            return ErrorCode.illegal_generation if transactional else ErrorCode.stale_member_epoch
        return ErrorCode.none

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Check whether a member may read offsets. Source: `ConsumerGroup.validateOffsetFetch`."""
        if member_id is None and epoch < 0:
            return ErrorCode.none
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if member.epoch == epoch else ErrorCode.stale_member_epoch

    def subscribed_topics(self, topics: Catalog) -> frozenset[str]:
        """Return the names of the topics that some member is subscribed to, by name or pattern, whatever it may see."""
        self._possible.resolve(self.members, topics)
        return self._possible.names(self.members)

    # Heartbeats.

    def _beat(self, request: ConsumerHeartbeat, topics: Catalog) -> ConsumerAnswer:
        if self.members.get(request.member_id) is None and len(self.members) >= self.config.max_size:
            raise HeartbeatRejected(
                ErrorCode.group_max_size_reached, f"the group has {len(self.members)} members already"
            )
        before = self._existing(request)
        member = before.said(request)
        known = self.members.get(before.member_id)
        if member != known:
            self._put(Subscription(member.member_id, member))
        changed = known is None or (member.topic_names, member.topic_regex) != (known.topic_names, known.topic_regex)
        self._follow(changed, topics)
        if self.members.epoch > self.members.assignment_epoch:
            self._assign(topics)
        member = self._current(member.member_id)
        target = self.members.targets.get(member.member_id, NOTHING)
        after = reconcile(member, target, self.members.assignment_epoch, self.members.owner, request.owned)
        if after != member:
            self._put(Current(after.member_id, after))
            self._watch_revocation(after)
        self._watch(after)
        tells = request.is_full or after.assigned != before.assigned
        return ConsumerAnswer(
            member_id=after.member_id,
            member_epoch=after.epoch,
            assignment=after.assigned if tells else None,
            heartbeat_interval_ms=self.config.heartbeat_interval_ms,
        )

    def _existing(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member that a heartbeat comes from, perhaps a new one. Raises HeartbeatRejected."""
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = self.members.get(request.member_id)
            if member is None and not joins:
                raise HeartbeatRejected(
                    ErrorCode.unknown_member_id, f"{request.member_id} is no member of {self.group_id}"
                )
        else:
            member = self.members.static(request.instance_id)
            if joins and member is not None:
                return self._replace(member, request.member_id)
            if not joins:
                member = self._check_static(member, request)
        if member is None:
            return ConsumerMember(request.member_id)
        _check_epoch(member, request)
        return member

    def _check_static(self, member: ConsumerMember | None, request: ConsumerHeartbeat) -> ConsumerMember:
        if member is None:
            raise HeartbeatRejected(ErrorCode.unknown_member_id, f"instance id {request.instance_id} is unknown")
        if member.member_id != request.member_id:
            raise HeartbeatRejected(
                ErrorCode.fenced_instance_id, f"{request.instance_id} belongs to the member {member.member_id}"
            )
        return member

    def _replace(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace a static member that comes back under a new id: it gets the place of its predecessor, which must have
        left.
        """
        if not old.is_away:
            raise HeartbeatRejected(
                ErrorCode.unreleased_instance_id, f"{old.instance_id} is held by the member {old.member_id}"
            )
        target = self.members.targets.get(old.member_id, NOTHING)
        self._remove(old)
        member = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        self._put(Subscription(member_id, member))
        self._put(Target(member_id, target))
        self._put(Current(member_id, member))
        return member

    def _follow(self, changed: bool, topics: Catalog) -> None:
        """Raise the group's epoch if subscriptions have changed, or topics that are subscribed to."""
        if not self._subscriptions.is_new(topics) and not changed:
            return
        self._subscriptions.resolve(self.members, topics)
        metadata_hash = self._subscriptions.metadata_hash(self.members, topics)
        if changed or metadata_hash != self.members.metadata_hash:
            self._put(GroupEpoch(self.members.epoch + 1, metadata_hash))

    def _assign(self, topics: Catalog) -> None:
        self._subscriptions.resolve(self.members, topics)
        assignees, counts = [], {}
        for member in self.members:
            infos = topics.infos(self._subscriptions.of(member)).values()
            counts.update({info.topic_id: info.partitions for info in infos})
            target = self.members.targets.get(member.member_id, NOTHING)
            topic_ids = frozenset(info.topic_id for info in infos)
            assignees.append(Assignee(member.member_id, member.instance_id, topic_ids, target))
        targets = assignors.assign(self.members.assignor(), assignees, counts)
        for member_id, partitions in targets.items():
            if self.members.targets.get(member_id) != partitions:
                self._put(Target(member_id, partitions))
        self._put(TargetEpoch(self.members.epoch))

    # Leaving.

    def _leave(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        if request.instance_id is None:
            member = self.members.get(request.member_id)
            if member is None:
                raise HeartbeatRejected(
                    ErrorCode.unknown_member_id, f"{request.member_id} is no member of {self.group_id}"
                )
        else:
            member = self._check_static(self.members.static(request.instance_id), request)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                epochs = {each: member.assignment_epochs[each] for each in sorted(member.assigned)}
                away = replace(member, epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING, assignment_epochs=epochs)
                self._put(Current(away.member_id, away))
                return ConsumerAnswer(member_id=away.member_id, member_epoch=LEAVE_STATIC_EPOCH)
        self._fence(member)
        return ConsumerAnswer(member_id=member.member_id, member_epoch=request.member_epoch)

    def _fence(self, member: ConsumerMember) -> None:
        """Remove a member; its partitions are free at once, and are shared out with the next heartbeat."""
        self._remove(member)
        self._put(GroupEpoch(self.members.epoch + 1, self.members.metadata_hash))

    def _remove(self, member: ConsumerMember) -> None:
        self._put(Current(member.member_id, None))
        self._put(Target(member.member_id, None))
        self._put(Subscription(member.member_id, None))
        self._effects.timers += [Unwatch(session_timer(member.member_id)), Unwatch(_revocation_timer(member.member_id))]

    # Inside.

    def _current(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        assert member is not None, member_id
        return member

    def _watch(self, member: ConsumerMember) -> None:
        event = SessionExpired(member.member_id)
        self._effects.timers.append(Watch(session_timer(member.member_id), self.config.session_timeout_ms, event))

    def _watch_revocation(self, member: ConsumerMember) -> None:
        key = _revocation_timer(member.member_id)
        if member.state is MemberState.UNREVOKED:
            event = RevocationExpired(member.member_id, member.epoch)
            self._effects.timers.append(Watch(key, member.rebalance_timeout_ms, event))
        else:
            self._effects.timers.append(Unwatch(key))

    def _put(self, change: Change) -> None:
        self.members.apply(change)
        self._effects.records.append(change)

    def _end(self) -> ConsumerEffects:
        """End an event: what it leaves to be done."""
        derived = self._derived()
        if derived is not self.state:
            self._enter(derived)
        effects, self._effects = self._effects, ConsumerEffects()
        return effects

    def _derived(self) -> ConsumerGroupState:
        if not len(self.members):
            return ConsumerGroupState.EMPTY
        if self.members.epoch > self.members.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.members.is_reconciled(member) for member in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def _enter(self, state: ConsumerGroupState) -> None:
        if state not in GROUP_TRANSITIONS[self.state]:
            raise IllegalGroupStep(f"{self.group_id}: {self.state} to {state}")
        self.state = state


def session_timer(member_id: str) -> str:
    """Return the key of a member's session timer."""
    return f"session {member_id}"


def _revocation_timer(member_id: str) -> str:
    return f"revocation {member_id}"


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Check the epoch of a member, which may be one behind if it holds no more than it may: the answer with the new
    epoch was lost.

    One that was fenced has given up all, and may join again at any time (KAFKA-19233).

    Raises HeartbeatRejected.
    """
    if request.member_epoch in (JOIN_EPOCH, member.epoch):
        return
    missed = request.member_epoch == member.previous_epoch and _within(request.owned, member.assigned)
    if request.member_epoch > member.epoch or not missed:
        raise HeartbeatRejected(
            ErrorCode.fenced_member_epoch,
            f"the member has epoch {member.epoch}, not {request.member_epoch}; it must give up all and join again",
        )


def _within(owned: Partitions | None, assigned: Partitions) -> bool:
    return owned is not None and owned <= assigned
