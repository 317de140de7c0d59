"""What can be left out of the protocol, one switch each. Nothing by default: that is the design."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Rules:
    """Mutations of the worker, of the changer, of the lane's transactions, and of what the broker guarantees."""

    # A worker's start
    unstable_read: bool = False  # the position is read without require-stable
    no_check: bool = False  # the generation is not read again after InitProducerId
    check_before_fence: bool = False  # it is read, but before InitProducerId
    position_before_fence: bool = False  # the position is read before InitProducerId
    check_stable_end_only: bool = False  # the control topic is read to its last stable offset only
    start_under_preparing: bool = False
    id_by_host: bool = False
    ignore_newer_position: bool = False  # a position that is newer than the control topic doesn't stop it
    resolve_at_admission: bool = False  # where a partition begins is not stored when the flow is opened
    # A change
    no_fencing: bool = False
    fence_previous_only: bool = False  # only the generation before, not all that aren't closed
    fence_first_lane_only: bool = False
    fence_before_preparing: bool = False
    no_preparing: bool = False  # `open` alone, after the fencing
    no_wait_for_preparing: bool = False  # fences once `preparing` was sent
    wait_for_answer_only: bool = False  # fences once EndTxn was answered: markers may be missing
    overtake_half_done: bool = False  # begins the next generation over a half-done one
    abandon_half_done: bool = False  # leaves a half-done change to whoever began it
    no_control_fencing: bool = False  # the control topic is not written under one id
    begin_over_positions: bool = False  # an empty control topic is begun anew although the flow has a position
    # A lane's transaction
    resume_after_unknown_end: bool = False  # the same producer goes on after an EndTxn without answer
    no_rewind_after_abort: bool = False
    position_outside_before: bool = False  # at_most_once
    position_outside_after: bool = False  # at_least_once
    # The broker
    no_partition_verification: bool = False  # takes a late Produce of an old epoch into a transaction (before KIP-890)

    def __str__(self) -> str:
        return "+".join(field.name for field in fields(self) if getattr(self, field.name)) or "as_designed"
