"""Decides about incidents as the flow's `policy` has said beforehand, within its bounds. Called by `lane.decisions`.

Invariants, parts of invariant 12
- What it decides is what an operator could, in the same form: the lane acts on it in one transaction with the end of
  the occurrence, which holds the decision. So it is done once or not at all, and on record as the policy's.
- What it has left out is counted from these records, which never go: over all producer sessions, processes and
  generations. A session counts after its fence, when nobody else adds to them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import structlog

from replicator.config.policies import DecisionPolicy
from replicator.lane.ports import Clock
from replicator.model.commands import Command, commands_for
from replicator.model.partition import Partition
from replicator.state.decisions import BY_POLICY, OperatorDecision
from replicator.state.occurrences import Occurrence

DAY_MS = 86_400_000
COMMANDS = {"skip": Command.SKIP, "set_aside": Command.SET_ASIDE}
Counted = tuple[Partition, str]
"""A target partition, and a kind of incident."""


class SignedBeforehand:
    """What the policy has decided of one lane's partitions, for one producer session."""

    def __init__(self, policy: DecisionPolicy, clock: Clock, log: structlog.stdlib.BoundLogger) -> None:
        self._policy, self._clock, self._log = policy, clock, log
        # When, and how many offsets, by occurrence: what could not be committed is decided once more.
        self._left_out: dict[Counted, dict[str, tuple[int, int]]] = {}
        self._told: set[str] = set()  # occurrences that are beyond the bound

    def begin(self, occurrences: Iterable[Occurrence]) -> None:
        """Count what was left out before, as the session has read it after its fence."""
        self._left_out = {}
        if self._policy.decides:
            for it in occurrences:
                self.acted(it)

    def acted(self, closed: Occurrence) -> None:
        """Count an occurrence that has ended, if the policy has decided that."""
        closing = closed.closing
        if closing is None or closing.decision is None or closing.decision.by != BY_POLICY or closing.moved is None:
            return
        decision = closing.decision
        known = self._left_out.setdefault((closed.target, closed.name), {})
        known[closed.id] = closing.at_ms, decision.end - decision.offset

    def decide(self, it: Occurrence) -> OperatorDecision | None:
        """Return what the policy decides of an open occurrence; None where that is left to an operator."""
        rule = self._policy.of(it.name)
        if rule is None or COMMANDS[rule.decide] not in commands_for(it.name) or not 0 <= it.offset < it.end:
            return None
        now_ms, bound = self._clock.now_ms(), rule.gap_offsets_max_per_day
        known = self._left_out.get((it.target, it.name), {})
        before = sum(size for id_, (at_ms, size) in known.items() if at_ms > now_ms - DAY_MS and id_ != it.id)
        if before + it.end - it.offset > bound:
            self._tell(it, before, bound)
            return None
        return OperatorDecision(
            occurrence=it.id,
            command=COMMANDS[rule.decide],
            name=it.name,
            offset=it.offset,
            end=it.end,
            by=BY_POLICY,
            why=f"policy.{it.name} of the flow file: {rule.decide}, at most {bound} offsets in 24 hours",
            at_ms=now_ms,
            token=uuid.uuid4().hex,
        )

    def _tell(self, it: Occurrence, before: int, bound: int) -> None:
        if it.id in self._told:
            return
        self._told.add(it.id)
        self._log.warning(
            "policy_bound_reached",
            topic=it.source.topic,
            partition=it.source.partition,
            name=it.name,
            offset=it.offset,
            end=it.end,
            offsets_left_out=before,
            bound=bound,
            occurrence=it.id,
        )
