"""Which partitions of a lane are copied: judged at its start, judged again one by one later. Called by `lane.session`.

Applies each verdict to the partition's state, and holds what the start of the session has read (control topic, claims).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from replicator.lane.judge import Verdict, unreadable
from replicator.lane.ledger import Ledger
from replicator.lane.memory import Memory
from replicator.lane.origin_check import OriginCheck
from replicator.lane.partition import (
    MISSING,
    Admit,
    Commits,
    LanePartition,
    Reason,
    Stop,
    Wait,
    Waiting,
    reason_of,
)
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Clock, Connections
from replicator.lane.readiness import TargetReadiness
from replicator.lane.start import LaneStart
from replicator.lane.target_check import check_target
from replicator.model.checkpoint import Stored, Unreadable
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claims
from replicator.state.generation import Control


@dataclass(frozen=True, slots=True)
class _Denied:
    """Why a partition is kept out, and whether the target takes its position all the same."""

    text: str
    committable: bool

    @property
    def commits(self) -> Commits:
        return Commits.YES if self.committable else Commits.NO_RIGHT


class Admission:
    """Judges partitions of one producer session.

    Raises what `LaneStart` raises; what concerns one partition is its state.
    """

    def __init__(
        self,
        plan: LanePlan,
        policy: Policy,
        to: Connections,
        memory: Memory,
        readiness: TargetReadiness,
        clock: Clock,
    ) -> None:
        self._plan, self._policy, self._to, self._clock = plan, policy, to, clock
        self._partitions, self._readiness = memory.partitions, readiness
        self._reports = memory.reports
        self._start = LaneStart(plan, policy, to, memory.owners, clock)
        self.origins = OriginCheck(plan, to.origins, clock)
        self._control = Control()
        self._unread = False  # positions without a route that the target could not tell

    def begin(self) -> Ledger:
        """After the fence: all partitions of the lane, judged."""
        self._control = self._start.check_generation()
        claims = self._to.state.claims()
        self._reports.begin(claims.reports)
        self.origins.claimed(claims.claims.values())
        verdicts = self._start.admit(self._plan.routes, self._control, claims)
        unrouted = self._start.unrouted(claims)
        self._unread = unrouted.unread
        self._partitions.begin([*self._plan.routes, *(route for route, _ in unrouted.deleted.values())])
        verdicts |= {at: verdict for at, (_, verdict) in unrouted.deleted.items()}
        self._apply(verdicts, self._still_denied(verdicts))
        delivery = self._plan.flow.delivery.value
        return Ledger(self._partitions, self._plan.owner, self._plan.generation, delivery, unrouted.kept)

    def before_all(self, ledger: Ledger) -> None:
        """Before all positions are committed again: those join that could not be read, or not be committed, before.

        Invariant 7: whatever kept a position out must not keep it out for the rest of the session.
        """
        if self._unread:
            unrouted = self._start.unrouted(Claims(self.origins.claims, ()))
            self._unread = unrouted.unread
            ledger.kept |= unrouted.kept
            found = {at: each for at, each in unrouted.deleted.items() if at not in self._partitions}
            for route, _ in found.values():
                self._partitions.add(route)
            self._apply({at: verdict for at, (_, verdict) in found.items()})
        kept_out = [it for it in self._partitions.values() if it.commits is Commits.NO_RIGHT]
        if kept_out:
            there = self._to.target.missing_rights({it.route.target.topic for it in kept_out})
            lacking = {name for name, rights in there.items() if "Read" in rights.operations}
            for partition in kept_out:
                if partition.route.target.topic not in lacking:
                    partition.commits = Commits.YES

    def _still_denied(self, verdicts: Mapping[Partition, Verdict]) -> dict[Partition, _Denied]:
        """Partitions that the last session left waiting for a right that is still missing."""
        waiting = [at for at in verdicts if self._waits_for_right(at)]
        for at in waiting:
            self._partitions[at].position = verdicts[at].position
        return self._missing(waiting) if waiting else {}

    def _waits_for_right(self, at: Partition) -> bool:
        told = self._partitions[at].told
        return isinstance(told, Waiting) and told.reason is Reason.NOT_ALLOWED

    def judge_again(self, partitions: Collection[Partition]) -> bool:
        """Judge these partitions anew; whether any of them is copied from now on."""
        asked = self._without_denied(self._readiness.ready(partitions))
        if not asked:
            return False
        routes = [self._partitions[at].route for at in asked]
        return self._apply(self._start.admit(routes, self._control, Claims(self.origins.claims, ())))

    def _without_denied(self, partitions: Collection[Partition]) -> list[Partition]:
        """Those that don't wait for a right, or whose right is back: other questions don't show whether it is."""
        denied = [at for at in partitions if self._waits_for_right(at)]
        still = self._missing(denied) if denied else {}
        for at, found in still.items():
            self._partitions.apply(at, Wait(Reason.NOT_ALLOWED, found.text))
        return [at for at in partitions if at not in still]

    def _missing(self, partitions: Collection[Partition]) -> dict[Partition, _Denied]:
        """Which of these lack a right on their source or target topic."""
        try:
            here = self._to.source.missing_rights({at.topic for at in partitions})
        except (Unreachable, Retriable):
            here = {}  # judged again, they wait for the source's answer; the target's positions are kept alive
        there = self._to.target.missing_rights({self._partitions[at].route.target.topic for at in partitions})
        found: dict[Partition, _Denied] = {}
        for at in partitions:
            partition = self._partitions[at]
            mine, other = here.get(at.topic), there.get(partition.route.target.topic)
            committable = other is None or "Read" not in other.operations
            texts = [rights.text for rights in (mine, other) if rights is not None]
            if not committable:
                texts.append(self._expiry(partition))
            if mine is not None or other is not None:
                found[at] = _Denied("; ".join(text for text in texts if text), committable)
        return found

    def _expiry(self, partition: LanePartition) -> str:
        """Without Read on the target topic its position can't be committed again: until when it is kept."""
        if partition.position is None:
            return ""
        kept_ms = self._to.target.offsets_retention_ms()
        if kept_ms is None:
            return "its position can't be committed again meanwhile and expires"
        until = datetime.fromtimestamp((partition.position.evidence.committed_ms + kept_ms) / 1000, UTC)
        return f"its position can't be committed again meanwhile and expires at {until.isoformat(timespec='seconds')}"

    def _apply(
        self, verdicts: Mapping[Partition, Verdict], denied: Mapping[Partition, _Denied] = MappingProxyType({})
    ) -> bool:
        for at, verdict in verdicts.items():
            self._enter(at, verdict, denied.get(at))
        self._readiness.keep_out([at for at in verdicts if self._partitions[at].copied])
        self.check_target([at for at in verdicts if self._partitions[at].copied], self._start.target_ends)
        return any(self._partitions[at].copied for at in verdicts)

    def _enter(self, at: Partition, verdict: Verdict, denied: _Denied | None) -> None:
        """One partition's position and state, by its verdict."""
        partition = self._partitions[at]
        if verdict.position is not None or verdict.waits is None:
            partition.position = verdict.position
        # Otherwise it couldn't be read now: what this session has read is still so, since it fenced all others.
        partition.unreadable = verdict.unreadable
        partition.commits = Commits.YES if verdict.committable else Commits.NO
        stopped = verdict.stopped or self._partitions.lasting(at)
        if stopped is not None and not self._policy.repairs(stopped):
            self._partitions.apply(at, Stop(stopped, lasting=verdict.stopped is None))
        elif verdict.waits is not None:
            self._wait(at, *verdict.waits)
        else:
            self._partitions.apply(at, Admit(verdict.claim))
            if denied is not None:
                partition.commits = denied.commits
                self._partitions.apply(at, Wait(Reason.NOT_ALLOWED, denied.text))

    def _wait(self, at: Partition, reason: Reason, detail: str) -> None:
        if reason is Reason.NOT_ALLOWED and not self._policy.waits:
            raise NotAllowed(detail, [at])
        if reason is Reason.NO_ANSWER and self._readiness.keep_out([at]):
            return  # a partition without a leader gives none
        if reason in MISSING and self._partitions.missing_for_long(at):
            name = "source_topic_deleted" if reason is Reason.SOURCE_MISSING else "target_topic_deleted"
            incident = Incident(name, detail, topic=at.topic, partition=at.partition)
            self._partitions.apply(at, Stop(incident))
        else:
            self._partitions.apply(at, Wait(reason, detail))

    def check_target(
        self,
        partitions: Collection[Partition],
        known: Mapping[Partition, LogEnds | ReplicatorError] = MappingProxyType({}),
    ) -> None:
        """Compare the ends of these partitions' targets with their positions: those whose end can't be known wait, and
        an incident stops those whose end doesn't fit. `known` as in `target_check.check_target`."""
        found = check_target(self._partitions, partitions, self._to.target, known)
        unread = [at for at, wrong in found.items() if isinstance(wrong, NotAllowed)]
        lacking = self._missing(unread) if unread else {}
        for at, wrong in found.items():
            if at in lacking:
                self._partitions[at].commits = lacking[at].commits
                self._wait(at, Reason.NOT_ALLOWED, lacking[at].text)
            elif not isinstance(wrong, Incident):
                self._wait(at, reason_of(wrong, Reason.TARGET_MISSING), str(wrong))
            elif not self._policy.repairs(wrong):
                self._partitions.apply(at, Stop(wrong))
                self.report(at, wrong)

    def report(self, at: Partition, incident: Incident) -> None:
        """An incident that can't be judged from outside has stopped a partition: told where `status` reads it."""
        if self._policy.copies_live:
            self._reports.note(self._partitions[at].route, incident)

    def keep_out(self, denied: NotAllowed) -> bool:
        """Make those partitions wait that lack a right; whether any of them was copied or committed until now."""
        missing = self._missing([at for at, it in self._partitions.items() if it.route.target_topic_id])
        if not missing:
            missing = {at: _Denied(str(denied), True) for at in denied.partitions if at in self._partitions}
        changed = False
        for at, found in missing.items():
            partition = self._partitions[at]
            changed = changed or partition.copied or (partition.commits is Commits.YES and not found.committable)
            if partition.copied:
                self._partitions.apply(at, Wait(Reason.NOT_ALLOWED, found.text))
            partition.commits = found.commits
        return changed

    def check_owners(self, ledger: Ledger) -> bool:
        """Read all positions of the lane again: whether any partition is admitted, and its position to be committed.

        A stray commit stands in place of a position where a consumer has the flow's group id, or somebody has reset its
        offsets: it stops its partition. This lane still knows the position, which nobody else can move while this
        producer isn't fenced: at the next look it is committed again.

        Raises TakenOver when another process owns positions of the lane; Retriable, Unreachable, NotAllowed.
        """
        sources = {it.route.target: at for at, it in self._partitions.items() if it.position is not None}
        strays: dict[Partition, Unreadable] = {}
        for target, found in self._to.plane.positions([*sources, *ledger.kept]).items():
            if not isinstance(found, Stored):
                continue
            self._start.check_owner(target, found)
            if isinstance(found, Unreadable) and target in sources:
                strays[sources[target]] = found
        overwritten = [at for at, it in self._partitions.items() if it.overwritten]
        for at in overwritten:
            self._partitions.apply(at, Admit())
        for at in strays.keys() - set(overwritten):
            self._partitions.apply(at, Stop(unreadable(at, strays[at])))
        return bool(overwritten)

    def check_origins(self) -> None:
        """Look once more at partitions of which nothing was copied yet, now that their claims were committed."""
        for at, wrong in self.origins.before_reading(self._partitions, self._start.source_ends).items():
            if isinstance(wrong, Incident):
                self._partitions.apply(at, Stop(wrong))
            else:
                self._wait(at, reason_of(wrong), str(wrong))
