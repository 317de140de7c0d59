"""More planted bugs: in groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.classic_groups import ClassicGroups
from embedded_broker.coordinators.offsets import FetchedOffset, OffsetManager
from embedded_broker.simulation.history import ViolationKind
from embedded_broker.simulation.schedule import WorkloadKind
from embedded_broker.state import consumer_groups, reconciliation
from embedded_broker.state.consumer_groups import ConsumerEffects, ConsumerGroup
from embedded_broker.state.consumer_members import ConsumerMember
from embedded_broker.state.consumer_types import JOIN_EPOCH, HeartbeatRejected, TopicIdPartition
from embedded_broker.state.group_types import AssignmentStored, HeartbeatExpired
from embedded_broker.state.groups import Group
from embedded_broker.state.rebalance import Rebalancing
from tests.embedded_broker.simulation.mutations import Mutations, Patch, leave_out_batches

MUTATIONS = Mutations(WorkloadKind.GROUPS)
mutation = MUTATIONS.add


@mutation(ViolationKind.STALE_COMMIT)
def take_commits_of_former_generations(patch: Patch) -> None:
    def lenient(self: Rebalancing, member_id: str, *args: Any) -> ErrorCode:
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    patch.setattr(Rebalancing, "validate_commit", lenient)


@mutation(ViolationKind.STALE_COMMIT, ViolationKind.TWO_OWNERS)
def take_commits_of_members_that_are_gone(patch: Patch) -> None:
    patch.setattr(Rebalancing, "validate_commit", lambda *args: ErrorCode.none)


@mutation(ViolationKind.STALE_COMMIT)
def take_commits_of_former_epochs(patch: Patch) -> None:
    def lenient(self: ConsumerGroup, member_id: str, *args: Any) -> ErrorCode:
        return ErrorCode.none if self.members.get(member_id) else ErrorCode.unknown_member_id

    patch.setattr(ConsumerGroup, "validate_commit", lenient)


@mutation(ViolationKind.STALE_COMMIT)
def forget_since_when_members_have_partitions(patch: Patch) -> None:
    def lenient(self: ConsumerMember, epoch: int, partitions: Iterable[TopicIdPartition]) -> bool:
        return all(each in self.assigned | self.revoking for each in partitions)

    patch.setattr(ConsumerMember, "has_since", lenient)


@mutation(ViolationKind.TWO_OWNERS)
def take_commits_of_former_epochs_for_what_others_have(patch: Patch) -> None:
    patch.setattr(ConsumerMember, "has_since", lambda *args: True)


@mutation(ViolationKind.BROKEN)
def refuse_fenced_members_that_join_again(patch: Patch) -> None:
    check = consumer_groups._check_epoch

    def strict(member: Any, request: Any) -> None:
        if request.member_epoch == JOIN_EPOCH and member.epoch > JOIN_EPOCH:
            raise HeartbeatRejected(ErrorCode.fenced_member_epoch, "planted")
        check(member, request)

    patch.setattr(consumer_groups, "_check_epoch", strict)


@mutation(ViolationKind.TWO_OWNERS)
def give_partitions_that_others_still_hold(patch: Patch) -> None:
    reconcile = reconciliation.reconcile

    def hasty(member: Any, target: Any, target_epoch: int, owner: Any, owned: Any) -> Any:
        return reconcile(member, target, target_epoch, lambda partition: None, owned)

    patch.setattr(consumer_groups, "reconcile", hasty)


@mutation(ViolationKind.TWO_OWNERS)
def give_the_leaders_share_to_everybody(patch: Patch) -> None:
    stored = Group.stored

    def same(self: Group, event: Any) -> Any:
        if isinstance(event, AssignmentStored):
            share = max(event.assignment.values(), default=b"")
            event = AssignmentStored(event.generation, dict.fromkeys(event.assignment, share))
        return stored(self, event)

    patch.setattr(Group, "stored", same)


@mutation(ViolationKind.NON_MONOTONIC)
def keep_the_first_offset_that_was_committed(patch: Patch) -> None:
    fetch = OffsetManager.fetch

    def stuck(self: OffsetManager, group_id: str, *args: Any) -> Any:
        found = fetch(self, group_id, *args)
        first = self.__dict__.setdefault("first", {})
        return {
            partition: first.setdefault((group_id, partition), offset) if offset.offset >= 0 else offset
            for partition, offset in found.items()
        }

    patch.setattr(OffsetManager, "fetch", stuck)


@mutation(ViolationKind.WRONG_GROUP_OFFSET, ViolationKind.SKIPPED_RECORD)
def tell_an_offset_one_too_high(patch: Patch) -> None:
    fetch = OffsetManager.fetch

    def higher(self: OffsetManager, *args: Any) -> Any:
        return {
            partition: FetchedOffset(found.offset + 1) if found.offset > 0 else found
            for partition, found in fetch(self, *args).items()
        }

    patch.setattr(OffsetManager, "fetch", higher)


@mutation(ViolationKind.SKIPPED_RECORD)
def leave_out_what_members_should_process(patch: Patch) -> None:
    leave_out_batches(patch)


@mutation(ViolationKind.UNSTABLE_GROUP)
def never_expire_classic_members(patch: Patch) -> None:
    expired = Group.expired

    def patient(self: Group, event: Any) -> Any:
        return [] if isinstance(event, HeartbeatExpired) else expired(self, event)

    patch.setattr(Group, "expired", patient)


@mutation(ViolationKind.UNSTABLE_GROUP)
def never_expire_members_of_consumer_groups(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "expired", lambda self, event: ConsumerEffects())


@mutation(ViolationKind.UNSTABLE_GROUP)
def forget_timers_of_members_at_a_restart(patch: Patch) -> None:
    patch.setattr(ClassicGroups, "resume", lambda self: None)
