"""Reconciles a member's current assignment with its target assignment; used by `state.consumer_groups`. Pure.

A partition moves from one member to another in three heartbeats: the owner is asked to revoke it, confirms that it has,
and the next owner is assigned it. Source: KIP-848; Kafka `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from embedded_broker.state.consumer_members import ConsumerMember
from embedded_broker.state.consumer_types import (
    MEMBER_STEPS,
    NOTHING,
    MemberState,
    Partitions,
    Situation,
    TopicIdPartition,
)

Owner = Callable[[TopicIdPartition], str | None]


def reconcile(
    member: ConsumerMember, target: Partitions, target_epoch: int, owner: Owner, owned: Partitions | None
) -> ConsumerMember:
    """Return the member after a heartbeat; the same if it can't go on yet.

    Args:
        member: as it is.
        target: what it shall have.
        target_epoch: since when.
        owner: the member that owns a partition, assigned or not yet revoked; None if there is none.
        owned: what the member says that it holds; None if it didn't say.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and _holds_any(owned, member.revoking):
        return member
    kept = member.assigned & target
    revoking = member.assigned - target
    missing = target - kept
    # Partitions that the member itself was revoking are free for it: it has just confirmed that.
    free = frozenset(each for each in missing if owner(each) in (None, member.member_id))
    if _holds_any(owned, revoking):
        situation = Situation.OWES
    elif free != missing:
        situation = Situation.WAITS
    else:
        situation = Situation.NOTHING
    state, moves_on = MEMBER_STEPS[situation]
    assigned, revoking = (kept | free, NOTHING) if moves_on else (kept, revoking)
    epochs = {each: member.assignment_epochs[each] for each in sorted((assigned | revoking) - free)}
    return replace(
        member,
        epoch=target_epoch if moves_on else member.epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
        assignment_epochs=epochs | dict.fromkeys(sorted(assigned & free), target_epoch),
    )


def _holds_any(owned: Partitions | None, partitions: Partitions) -> bool:
    """Return whether the member may still hold some of them; it may hold anything as long as it doesn't say."""
    return bool(partitions) and (owned is None or bool(owned & partitions))
