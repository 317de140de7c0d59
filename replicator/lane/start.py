"""Starts the partitions of a lane: has their facts read, decides over each by itself, and applies the decisions.

    read    everything that has to be known, in the one order that is safe                     (facts)
    decide  partition by partition: copied, waiting or stopped                                 (start_decision)
    apply   to the partition's state; what was admitted is committed next, in one transaction  (session, transaction)

Called by `lane.session` after the fence for all partitions, and later for those that waited or failed. No other module
stops a partition; `leaders`, `readiness`, `throttling`, `unserved` and `driver` make partitions wait, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import structlog

from replicator.lane.facts import FactReader
from replicator.lane.incident_report import UNKNOWN, Topics
from replicator.lane.leaders import SourceLeaders
from replicator.lane.memory import Memory
from replicator.lane.origin_check import OriginCheck
from replicator.lane.own_transactions import OPEN, OwnTransactions
from replicator.lane.partition import (
    DELETED,
    MISSING,
    Admit,
    Commits,
    Reason,
    Stop,
    Wait,
    reason_of,
)
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Clock, Connections
from replicator.lane.positions import LanePositions
from replicator.lane.readiness import TargetReadiness
from replicator.lane.rights import MissingRight, Rights
from replicator.lane.start_decision import StartDecision, decide, told_by_an_old_leader, unreadable
from replicator.lane.target_check import check_target
from replicator.model.checkpoint import Position, Unreadable
from replicator.model.commands import TRUNCATED, Command, commands_for
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claims
from replicator.state.decisions import OperatorDecision
from replicator.state.occurrences import Occurrence

StartErrors = dict[Partition, Incident | ReplicatorError]
BY_OFFSETS = ("source_records_gone", "source_truncated", "target_lost_data")
"""Incidents that offsets show: those of a topic that was created again would, too."""


class LaneStart:
    """Starts partitions of one producer session.

    Raises what `FactReader` raises; what concerns one partition is its state.
    """

    def __init__(
        self,
        plan: LanePlan,
        policy: Policy,
        to: Connections,
        memory: Memory,
        readiness: TargetReadiness,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._plan, self._policy, self._to, self._clock = plan, policy, to, clock
        self._partitions, self._readiness = memory.partitions, readiness
        self._reports, self._throttle = memory.reports, memory.throttle
        self._facts = FactReader(plan, policy, to, memory.owners)
        self._rights = Rights(memory.partitions, to)
        self._own = OwnTransactions(plan, to.target, to.transactions, log)
        self.leaders = SourceLeaders(memory.partitions, to.source, plan.flow.source.name, clock)
        self.origins = OriginCheck(plan, memory.partitions, to.origins, clock)
        self.decided: Mapping[str, OperatorDecision] = {}
        """As the control topic had it when it was read last. Written by `decisions`, too."""
        self.occurrences: Sequence[Occurrence] = ()  # as the claims topic has them then
        self._unread = False  # positions without a route that the target could not tell

    def begin(self) -> LanePositions:
        """Read, decide and apply for all partitions of the lane, after the fence."""
        claims = self._facts.begin()
        self.decided, self.occurrences = self._facts.decided, claims.occurrences
        if self._policy.copies_live:
            self._throttle.take(self._facts.settings, self._plan.generation)  # before anything is read
        self.origins.claimed(claims.claims.values())
        decisions = self._decide(self._plan.routes)
        unrouted = self._facts.unrouted(claims)
        self._unread = unrouted.unread
        self._partitions.begin([*self._plan.routes, *(route for route, _ in unrouted.deleted.values())])
        self._reports.begin(claims.open_occurrences())
        decisions |= {at: decision for at, (_, decision) in unrouted.deleted.items()}
        self._apply(decisions, self._still_denied(decisions))
        delivery = self._plan.flow.delivery.value
        return LanePositions(self._partitions, self._plan.owner, self._plan.generation, delivery, unrouted.kept)

    def _decide(
        self,
        routes: Sequence[Route],
        decided: OperatorDecision | None = None,
        positions: Mapping[Partition, Position] = MappingProxyType({}),
    ) -> dict[Partition, StartDecision]:
        """Read the facts of partitions and decide. `positions`: those that count where a stray commit stands now."""
        facts, now_ms = self._facts.read(routes, self.origins.claims), self._clock.now_ms()
        for at, position in positions.items():
            if isinstance(facts[at].stored, Unreadable):
                facts[at] = replace(facts[at], stored=position)
        if decided is not None:
            replaces = decided.command is Command.RESTART_TOPIC or decided.goes_back
            restarts = decided.name if replaces else ""
            begins = {"start": decided.end, "adopts": decided.adopted, "restarts": restarts}
            facts = {at: replace(known, **begins) for at, known in facts.items()}  # type: ignore[arg-type]
        found = {it.source: decide(self._plan, it, facts[it.source], now_ms) for it in routes}
        contradicted = {it.source: it for it in routes if _by_offsets(found[it.source])}
        for at, known in self._facts.with_ids(facts, contradicted.values()).items():
            found[at] = decide(self._plan, contradicted[at], known, now_ms)
        if any(told_by_an_old_leader(known) for known in facts.values()):
            self._to.source.ask_another()
        return found

    def before_all(self, positions: LanePositions) -> None:
        """Let those positions join that could not be read, or not be committed, before all are committed again.

        Invariant 7: whatever kept a position out must not keep it out for the rest of the session.
        """
        if self._unread:
            unrouted = self._facts.unrouted(Claims(self.origins.claims, ()))
            self._unread = unrouted.unread
            positions.kept |= unrouted.kept
            found = {at: each for at, each in unrouted.deleted.items() if at not in self._partitions}
            for route, _ in found.values():
                self._partitions.add(route)
            self._apply({at: decision for at, (_, decision) in found.items()})
        self._rights.restore()

    def _still_denied(self, decisions: Mapping[Partition, StartDecision]) -> dict[Partition, MissingRight]:
        """Find the partitions that the last session left waiting for a right that is still missing."""
        waiting = [at for at in decisions if self._waits_for_right(at)]
        for at in waiting:
            if decisions[at].claim is None:
                self._partitions[at].position = decisions[at].position
        return self._rights.missing(waiting)

    def _waits_for_right(self, at: Partition) -> bool:
        return self._partitions[at].waits_since(Reason.NOT_ALLOWED) is not None

    def decide_again(self, partitions: Collection[Partition], decided: OperatorDecision | None = None) -> bool:
        """Decide anew over these partitions; return whether any of them is copied from now on.

        `decided`: those without a position begin at its end; where it adopts what the target has, also over a target
        that has records, if both sides are as it says; where it restarts a topic, also in place of a position.
        """
        asked = self._without_denied(self._readiness.ready(self.leaders.led(partitions)))
        if not asked:
            return False
        routes = [self._partitions[at].route for at in asked]
        return self._apply(self._decide(routes, decided, self._known(asked)))

    def _known(self, partitions: Collection[Partition]) -> dict[Partition, Position]:
        """Return the positions that this session knows of these partitions."""
        return {at: known for at in partitions if (known := self._partitions[at].known) is not None}

    def decide_paused(self, partitions: Collection[Partition]) -> None:
        """Decide over partitions that an operator has paused, or a limit holds back: they stay so, but for those that
        an incident stops, or whose topic isn't there, as it would be found once they are read again."""
        decisions = self._decide([self._partitions[at].route for at in partitions], None, self._known(partitions))
        for at, decision in decisions.items():
            if decision.stopped is not None or (decision.waits is not None and decision.waits[0] in MISSING):
                self._enter(at, decision, None)

    def _without_denied(self, partitions: Collection[Partition]) -> list[Partition]:
        """Leave out those that still wait for a right: other questions don't show whether it is."""
        denied = [at for at in partitions if self._waits_for_right(at)]
        still = self._rights.missing(denied)
        for at, found in still.items():
            self._partitions.apply(at, Wait(Reason.NOT_ALLOWED, found.text))
        return [at for at in partitions if at not in still]

    def _apply(
        self,
        decisions: Mapping[Partition, StartDecision],
        denied: Mapping[Partition, MissingRight] = MappingProxyType({}),
    ) -> bool:
        for at, decision in decisions.items():
            self._enter(at, decision, denied.get(at))
            if decision.claim is None and self._partitions[at].copied:
                self._stop_at_cut(at)
        self._readiness.keep_out([at for at in decisions if self._partitions[at].copied])
        self.check_target([at for at in decisions if self._partitions[at].copied], self._facts.target_ends)
        return any(self._partitions[at].copied for at in decisions)

    def _enter(self, at: Partition, decision: StartDecision, denied: MissingRight | None) -> None:
        """Set one partition's position and state by its decision."""
        partition = self._partitions[at]
        # Where it couldn't be read now, what this session has read is still so, since it fenced all others.
        unread = decision.position is None and decision.waits is not None
        position = partition.stored if unread else decision.position
        # Invariant 4: the position of a claim is committed with it only, never without.
        stored = position if decision.claim is None else partition.stored
        partition.unreadable = decision.unreadable
        partition.commits = Commits.YES if decision.committable else Commits.NO
        stopped = decision.stopped or self._partitions.lasting(at)
        if stopped is None or self._policy.repairs(stopped):
            stopped = None if position is None else partition.report.truncated(position)
        if stopped is not None:
            once = _shown_by_the_end(stopped, position)
            self._partitions.apply(at, Stop(stopped, lasting=decision.stopped is None or once))
            partition.position = stored  # after the event, with which an earlier claim and its position go
            if commands_for(stopped.name):
                self._note(at, stopped, decision.topics, once=once)
        elif decision.waits is not None:
            self._wait(at, *decision.waits)
            partition.position = stored
        else:
            partition.position = position
            self._partitions.apply(at, Admit(decision.claim, stored))
            if denied is not None:
                partition.commits = denied.commits
                self._partitions.apply(at, Wait(Reason.NOT_ALLOWED, denied.text))
            elif self._policy.copies_live and (paused := self._throttle.paused(at.topic)) is not None:
                self._partitions.apply(at, Wait(Reason.PAUSED, paused.said))

    def _stop_at_cut(self, at: Partition) -> None:
        """Stop a partition at the cut of its source about which an operator has decided, as long as that isn't done.

        Something else may have kept the decision back, and both clusters show nothing of the cut after that: the
        partition would be copied from its old position on, and the decision never be looked at again.
        """
        partition = self._partitions[at]
        it = partition.report.open.get(TRUNCATED)
        decision = None if it is None else self.decided.get(it.id)
        if it is None or decision is None or not decision.goes_back or not self._policy.decides:
            return
        position = partition.position
        if position is not None and position.offset == it.offset and decision.fits(it):
            self.stop(at, Incident(it.name, it.detail, topic=at.topic, partition=at.partition, offset=it.offset))

    def wait(self, at: Partition, error: ReplicatorError, missing: Reason = Reason.SOURCE_MISSING) -> None:
        """Make a partition wait for what `error` says; `missing`: whose topic a TopicMissing means."""
        if isinstance(error, NotAllowed) and not self._policy.waits:
            raise error
        self._wait(at, reason_of(error, missing), str(error))

    def stop(self, at: Partition, incident: Incident, *, lasting: bool = False) -> None:
        """Stop a partition by an incident that can't be seen from outside: told where `status` reads it, too."""
        position = self._partitions[at].position
        placed = incident.at(at.partition, incident.offset)
        if position is not None and (incident.offset < 0 or _shown_by_the_end(incident, position)):
            placed = incident.at(at.partition, position.offset)  # by which later sessions know it
        self._partitions.apply(at, Stop(placed, lasting))
        self._note(at, placed)

    def _note(self, at: Partition, incident: Incident, topics: Topics = UNKNOWN, *, once: bool = False) -> None:
        """Have an incident written down: told where `status` reads it, and decided about by its occurrence's id.

        Jobs leave that to the lanes of `run`, which find the same; but not where they may find it no longer (`once`).
        """
        if self._policy.decides or once:
            self._reports.note(self._partitions[at], incident, topics)

    def _wait(self, at: Partition, reason: Reason, detail: str) -> None:
        if reason is Reason.NOT_ALLOWED and not self._policy.waits:
            raise NotAllowed(detail, [at])
        if reason is Reason.NO_ANSWER and self._readiness.keep_out([at]):
            return  # a partition without a leader gives none
        gone = reason is Reason.SOURCE_MISSING and DELETED.get(self._plan.flow.deleted_topics)
        if gone and self._policy.copies_live and self._partitions.deleted(at):
            self._partitions.apply(at, Wait(gone, detail))
        elif reason in MISSING and self._partitions.missing_for_long(at):
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
        found = self._end_own(check_target(self._partitions, partitions, self._to.target, known))
        unread = [at for at, wrong in found.items() if isinstance(wrong, NotAllowed)]
        lacking = self._rights.missing(unread)
        for at, wrong in found.items():
            if at in lacking:
                self._partitions[at].commits = lacking[at].commits
                self._wait(at, Reason.NOT_ALLOWED, lacking[at].text)
            elif not isinstance(wrong, Incident):
                self.wait(at, wrong, Reason.TARGET_MISSING)
            elif not self._policy.repairs(wrong):
                self.stop(at, wrong)

    def _end_own(self, found: StartErrors) -> StartErrors:
        """Have open transactions ended that are this lane's own; return what is wrong after that."""
        open_ = {at: it for at, it in found.items() if isinstance(it, Incident) and it.name == OPEN}
        if not open_:
            return found
        looked = self._own.end(self._partitions, open_)
        left = {at: it for at, it in found.items() if at not in looked.ended}
        return left | looked.instead | check_target(self._partitions, looked.ended, self._to.target)

    def keep_out(self, denied: NotAllowed) -> bool:
        """Make those partitions wait that lack a right; return whether any was copied or committed until now."""
        missing = self._rights.missing([at for at, it in self._partitions.items() if it.route.target_topic_id])
        if not missing:
            missing = {at: MissingRight(str(denied), Commits.YES) for at in denied.partitions if at in self._partitions}
        changed = False
        for at, found in missing.items():
            partition = self._partitions[at]
            changed = (
                changed or partition.copied or (partition.commits is Commits.YES and found.commits is not Commits.YES)
            )
            if partition.copied:
                self._partitions.apply(at, Wait(Reason.NOT_ALLOWED, found.text))
            partition.commits = found.commits
        return changed

    def check_owners(self, positions: LanePositions) -> bool:
        """Read all positions of the lane again: whether they have to be committed again.

        A stray commit stands in place of a position where a consumer has the flow's group id, or somebody has reset its
        offsets. A partition that is copied is stopped by it, see `decide_overwritten`. Of any other one no more than
        the position changes: it stays stopped by what stopped it.

        Raises TakenOver when another process owns positions of the lane; Retriable, Unreachable, NotAllowed.
        """
        known = {it.route.target: at for at, it in self._partitions.items() if it.known is not None}
        mine = known.keys() | {target for target, kept in positions.kept.items() if isinstance(kept, Position)}
        found = self._facts.positions([*known, *positions.kept])
        strays = {target: it for target, it in found.items() if isinstance(it, Unreadable) and target in mine}
        for target in strays.keys() & known.keys():
            if self._partitions[known[target]].copied:
                self._partitions.apply(known[target], Stop(unreadable(known[target], strays[target])))
        return bool(strays or self._overwritten())

    def _overwritten(self) -> list[Partition]:
        return [at for at, it in self._partitions.items() if it.overwritten]

    def decide_overwritten(self) -> bool:
        """Decide anew over the partitions that a stray commit has stopped, once the target has their positions again;
        return whether any is copied from now on. Those that can't be decided over now wait."""
        overwritten = self._overwritten()
        try:
            return self.decide_again(overwritten)
        except (Retriable, Unreachable) as error:
            for at in overwritten:  # what was found of some of them before the error stays
                if self._partitions[at].overwritten or self._partitions[at].copied:
                    self.wait(at, error)
            return False

    def check_origins(self) -> None:
        """Look once more at partitions of which nothing was copied yet, now that their claims were committed."""
        for at, wrong in self.origins.before_reading(self._facts.source_ends).items():
            if isinstance(wrong, Incident):
                self._partitions.apply(at, Stop(wrong))
            else:
                self.wait(at, wrong)


def _by_offsets(decision: StartDecision) -> bool:
    return decision.stopped is not None and decision.stopped.name in BY_OFFSETS


def _shown_by_the_end(incident: Incident, position: Position | None) -> bool:
    """Tell whether an incident is a truncation that nothing shows once the log has grown again."""
    return incident.name == TRUNCATED and (position is None or position.evidence.leader_epoch < 0)
