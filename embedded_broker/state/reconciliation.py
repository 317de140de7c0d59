"""One member's way from what it has to what it shall have. Pure.

A partition goes from one member to another in three heartbeats: the holder is told to give it back, says that it has,
and the next holder is told to take it. Source: KIP-848; Kafka `CurrentAssignmentBuilder`.
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
    """The member after a heartbeat; the same if it can't go on yet.

    Args:
        member: as it is.
        target: what it shall have.
        target_epoch: since when.
        owner: who holds a partition now, assigned or not yet given back; None if nobody.
        owned: what the member says that it holds; None if it didn't say.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and _holds_any(owned, member.revoking):
        return member
    kept = member.assigned & target
    revoking = member.assigned - target
    missing = target - kept
    # What the member itself was giving back is free for it: it has just shown that it has let go.
    free = frozenset(each for each in missing if owner(each) in (None, member.member_id))
    if _holds_any(owned, revoking):
        situation = Situation.OWES
    elif free != missing:
        situation = Situation.WAITS
    else:
        situation = Situation.NOTHING
    state, moves_on = MEMBER_STEPS[situation]
    return replace(
        member,
        epoch=target_epoch if moves_on else member.epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=kept | free if moves_on else kept,
        revoking=NOTHING if moves_on else revoking,
    )


def _holds_any(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member may still hold some of them; it may hold anything as long as it doesn't say."""
    return bool(partitions) and (owned is None or bool(owned & partitions))
