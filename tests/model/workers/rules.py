"""What can be left out of the rules for several workers, one switch each. Nothing by default: that is the design."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class WorkerRules:
    """Mutations of membership, of settings and of changes."""

    # When a lane may initialise its transactional id
    no_proof: bool = False  # as soon as it is assigned, or was fenced
    any_proof: bool = False  # an accepted proof counts, whenever it was begun
    membership_is_enough: bool = False  # a proof counts though the lane is not in the local assignment
    permission_outlives_revoke: bool = False  # the group's thread doesn't take it back, the flow's does, later
    ignore_member_id: bool = False  # a proof counts that was accepted under a former member id
    # A lane that was taken away
    outgoing_initialises: bool = False  # it is started again after it was fenced, if the membership is proved
    outgoing_has_no_end: bool = False  # it goes on for as long as nobody fences it
    lost_stops: bool = False  # it ends with the membership, also where the coordinator is only down
    # A lane that is assigned
    stays_ended: bool = False  # what has ended is not started again
    broken_stays: bool = False  # a worker that can't run a lane keeps it
    cluster_cause_leaves: bool = False  # a worker leaves the group for a cause in the clusters, too
    # Before there is an assignment
    early_again: bool = False  # an early lane that was fenced initialises again
    early_beside_others: bool = False  # lanes are opened early although another worker lives
    early_unchecked: bool = False  # an early lane doesn't check the generation after it has initialised
    # Whose settings hold
    proposes_always: bool = False  # a file is proposed at each start where another one is open
    proposes_any_time: bool = False  # not only at a start
    decides_once: bool = False  # not again after the control id is initialised
    runs_own_file: bool = False  # a worker cuts lanes as its own file says
    replaces_jobs: bool = False  # a file replaces any open generation
    # Who finishes a change
    only_its_beginner_finishes: bool = False
    finishes_at_once: bool = False  # whoever sees it half done, while its beginner is at it
    finishes_with_own_file: bool = False  # not as it was prepared
    finishes_unfenced: bool = False  # without the fencing that its beginner would have done
    fenced_changer_insists: bool = False  # it reads again at once, without waiting

    def __str__(self) -> str:
        return "+".join(field.name for field in fields(self) if getattr(self, field.name)) or "as_designed"
