"""What is to be known of a share group (KIP-932) at the target before it is moved. Pure.

A share group stands at a start offset, as a consumer group stands at its committed one, and whose it is follows from
the same notes (`ownership`). But its consumers may have acknowledged records behind it while it stood still: out of
order, or all of them, because a coordinator writes down acknowledgements with the start offset that was before them
(Kafka 4.3). Then it isn't the flow's any more. A broker tells only how many are left, so how many are acknowledged lies
between two numbers while the partition grows.
"""

from __future__ import annotations

from typing import NamedTuple

from replicator.groups.decision import GroupDecision, GroupVerdict
from replicator.groups.ownership import OwnershipNote

CONSUMED = "consumers of the target have acknowledged records behind it"
GROWS = "records come while the target is asked what was acknowledged there"


class AcknowledgedBehind(NamedTuple):
    """How many records a share group has acknowledged behind its start offset."""

    least: int = 0
    most: int = 0


def unless_consumed(
    found: GroupDecision, seen: AcknowledgedBehind, observed: OwnershipNote
) -> tuple[GroupDecision, str]:
    """Decide what is done with a partition of a share group that stands somewhere at the target, and why it isn't
    moved.

    Args:
        found: what would be done with that of a consumer group.
        observed: the note after the look at the target, without what would be committed.
    """
    if found.commit is None:
        return found, ""
    if seen.least > 0:
        return GroupDecision(GroupVerdict.NOT_OURS, OwnershipNote(), again=found.again), CONSUMED
    if seen.most > 0:
        return found._replace(note=observed, commit=None), GROWS
    return found, ""
