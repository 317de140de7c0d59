"""Who owns positions: this lane, its predecessor, nobody, or another process that has taken over. Used by `lane.start`,
`lane.driver` and `lane.session`.

Invariant 10: a lane that finds a successor leaves. A predecessor whose name could not be overwritten yet is none, and
neither is a commit that this program didn't write.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.lane.plan import LanePlan
from replicator.model.checkpoint import NOBODY, Position, Stored
from replicator.model.errors import ReplicatorError, TakenOver
from replicator.model.partition import Partition
from replicator.state.claims import Claims


def owner_of(found: Stored | None) -> str | None:
    """Read the owner of a position; None where this program didn't write it."""
    if found is None:
        return NOBODY
    return found.evidence.owner if isinstance(found, Position) else None


def check_owners(
    plan: LanePlan,
    known: Mapping[Partition, str],
    found: Mapping[Partition, Stored | ReplicatorError | None],
    *,
    fenced: bool = False,
) -> None:
    """Raise TakenOver if one of these positions, by target partition, has another owner than this lane and the one that
    is `known`.

    After the lane was `fenced` an owner counts also where none was known before: its position is a successor's.
    """
    for target, stored in found.items():
        owner = owner_of(stored) if isinstance(stored, Stored) else None
        if owner not in (None, NOBODY, plan.owner, known.get(target, None if fenced else owner)):
            how = "; this process was fenced off" if fenced else " while this process was away"
            raise TakenOver(f"flow {plan.flow.name}: {owner} has taken over {target}{how}")


def targets_of(plan: LanePlan, claims: Claims) -> list[Partition]:
    """List the target partitions of all positions that the lane has, also of topics that its flow file hasn't."""
    claimed = {target for target, claim in claims.claims.items() if plan.assignment.lane_of(*claim.source) == plan.lane}
    return sorted(claimed | {route.target for route in plan.routes})
