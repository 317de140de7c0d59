"""Acts on what operators have decided about incidents that stop partitions of a lane. Called by `lane.session`.

They are read with the session's start; what was decided since is told by who watches the control topic, and never
asked for here (`flow_decisions`). A decision whose occurrence is what stops a partition now is acted on, whenever that
comes to be: at a start the cause is found anew first.

Invariant 12
- A decision that moves a position does so in one transaction with the end of its occurrence: done once or not at all,
  wherever the lane dies. The ids of both topics are asked for before it ends (invariant 8): the offsets that were left
  out are of this topic and of no other.
- It moves the position to exactly the end that it names. What is gone beyond that is another incident. A partition that
  has no position yet begins there; where it can't, because more is gone by now or the topic is another one, nothing is
  left out, and what is found then needs a decision of its own.
- What keeps a decision back for a while doesn't use it up: the partition is stopped again by what was decided about, by
  `lane.start` where the clusters show nothing of that any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replicator.lane.aside import aside
from replicator.lane.flow_decisions import NOTHING
from replicator.lane.memory import Memory, SessionContext
from replicator.lane.own_transactions import OPEN
from replicator.lane.partition import Commits, Decided, Stopped, Wait, Waiting, reason_of
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Connections
from replicator.lane.positions import LanePositions
from replicator.lane.signed_beforehand import SignedBeforehand
from replicator.lane.start import LaneStart
from replicator.lane.transaction import LaneTransactions
from replicator.model import names
from replicator.model.commands import Command
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable, TopicMissing, Unreachable
from replicator.model.partition import Partition
from replicator.planes.contract import ReadStopped
from replicator.state.decisions import OperatorDecision
from replicator.state.occurrences import Closing, Ending, Occurrence

AGAIN_S = 30.0  # until what could not be done is tried again
WRITE = frozenset({"Describe", "Write"})
ENDINGS: Mapping[Command, Ending] = {
    Command.RETRY: Ending.RETRIED,
    Command.SKIP: Ending.SKIPPED,
    Command.SET_ASIDE: Ending.SET_ASIDE,
    Command.ADOPT: Ending.ADOPTED,
    Command.RESTART_TOPIC: Ending.RESTARTED,
}


class LaneDecisions:
    """Those that concern one lane, for one producer session."""

    def __init__(
        self,
        plan: LanePlan,
        policy: Policy,
        to: Connections,
        memory: Memory,
        start: LaneStart,
        transactions: LaneTransactions,
        context: SessionContext,
    ) -> None:
        self._plan, self._policy, self._to, self._clock, self._log = plan, policy, to, context.clock, context.log
        self._partitions, self._reports, self._throttle = memory.partitions, memory.reports, memory.throttle
        self._start, self._transactions, self._observer = start, transactions, context.observer
        self._decided: Mapping[str, OperatorDecision] = {}
        self._told, self._taken = memory.decisions, NOTHING  # of what was told: what was taken over last
        self._again_s = memory.decisions_again_s
        self._beforehand = SignedBeforehand(plan.flow.policy, context.clock, context.log)

    def begin(self, decided: Mapping[str, OperatorDecision], occurrences: Iterable[Occurrence] = ()) -> None:
        """Take what the session has read at its start, after its fence: what was decided, and what has become of it."""
        self._decided = self._of_lane(decided)
        self._beforehand.begin(occurrences)

    def _of_lane(self, decided: Mapping[str, OperatorDecision]) -> Mapping[str, OperatorDecision]:
        """Leave out what was acted on, and what concerns other lanes: mostly nothing is left to be looked for."""
        if not decided:
            return decided
        open_ = {it.id for partition in self._partitions.values() for it in partition.report.open.values()}
        return {id_: decision for id_, decision in decided.items() if id_ in open_}

    def look(self) -> None:
        """Take over what was told since. It may have been read before the session's start was: an occurrence is decided
        about once, so what either has stands."""
        newest = self._told.newest
        if self._policy.decides and newest is not self._taken and self._waiting():
            self._taken, self._decided = newest, self._of_lane({**newest, **self._decided})
            self._start.decided = {**newest, **self._start.decided}

    def _waiting(self) -> dict[Partition, Occurrence]:
        """Find the stopped partitions, each with the occurrence that a decision could be about."""
        if len(self._partitions.copied) == len(self._partitions):
            return {}
        return {at: occurrence for at in self._partitions if (occurrence := self._occurrence(at)) is not None}

    def _occurrence(self, at: Partition) -> Occurrence | None:
        """Find what stops one partition; None where nothing does, or where it could not be written down."""
        it = self._partitions[at]
        return it.report.of(it.state.incident) if isinstance(it.state, Stopped) else None

    def due(self) -> dict[Partition, OperatorDecision]:
        """Find what was decided of what stops partitions now: by an operator, or else by the flow's policy."""
        decides = self._plan.flow.policy.decides
        if not (self._decided or decides) or not self._policy.decides:
            return {}
        waiting = self._waiting()
        decided = {at: self._decided.get(it.id) or self._beforehand.decide(it) for at, it in waiting.items()}
        return {at: it for at, it in decided.items() if it is not None and self._fits(at, it, waiting[at])}

    def _fits(self, at: Partition, decision: OperatorDecision, occurrence: Occurrence) -> bool:
        """Tell whether the occurrence has the facts that the decision rests on, and the position isn't past them."""
        if self._again_s.get(decision.occurrence, 0.0) > self._clock.now_s():
            return False
        position = self._partitions[at].position
        if decision.command is Command.ADOPT and position is not None:
            return False  # it has one that is this flow's own
        if decision.goes_back and (position is None or position.offset != decision.offset):
            return False
        if (decision.moves or decision.goes_back) and self._partitions[at].commits is not Commits.YES:
            return False  # the target takes no position of it now
        begins = decision.adopts or (position is None and decision.command is not Command.RETRY)
        if begins and self._throttle.paused(at.topic) is not None:
            return False  # what has it begin elsewhere waits for `resume`, and until then its incident stops it
        before = position is None or not decision.moves or position.offset < decision.end
        return before and decision.fits(occurrence)

    def act(self, positions: LanePositions, at: Partition, decision: OperatorDecision) -> bool:
        """Do what was decided of one partition, and check it again; return False where that can't be done now.

        What moves the position is certainly committed on return; what doesn't, and what gives a partition its first
        position, ends with the positions of admitted partitions, which have to be committed next. Raises as
        `LaneTransactions.commit_decision`.
        """
        occurrence, before = self._occurrence(at), self._partitions[at].position
        if occurrence is None:
            return False
        if decision.command is Command.RETRY:
            self._reports.decided(at, self._closed(occurrence, decision, None))
        elif before is None or decision.command is Command.RESTART_TOPIC or decision.goes_back:
            return self._begin_behind(at, decision, occurrence)
        else:
            kept = self._kept(occurrence, decision) if decision.command is Command.SET_ASIDE else ""
            if kept is None:
                return False
            if decision.command is Command.SET_ASIDE and not kept:  # it is copied on, unless it stops there again
                self._postpone(decision, f"{at} has no record at offset {decision.offset} any more")
                return self._decide_anew(at)
            moved = positions.skipped(at, decision.end, self._clock.now_ms())
            closed = self._closed(occurrence, decision, (before.offset, decision.end), kept)
            self._transactions.commit_decision(positions, at, moved, closed)
            self._observer.on_committed({}, {at: moved}, 0.0)
            self._beforehand.acted(closed)
        self._tell(at, decision)
        self._decide_anew(at)
        return True

    def _decide_anew(self, at: Partition) -> bool:
        """Decide over a partition as if it had not been stopped; return whether it is copied from now on."""
        self._partitions.apply(at, Decided())
        return self._start.decide_again([at])

    def _begin_behind(self, at: Partition, decision: OperatorDecision, occurrence: Occurrence) -> bool:
        """Have a partition begin at the end that was decided that has no position, or one of a topic that has gone, if
        that is all that keeps it back."""
        if decision.command is Command.SET_ASIDE:
            self._postpone(decision, "the partition has no position yet")
            return False
        partition = self._partitions[at]
        self._partitions.apply(at, Decided())
        try:
            self._start.decide_again([at], decision)
        except ReplicatorError as error:
            if partition.claim is not None:  # it must not be committed by itself: the decision is acted on as a whole
                self._partitions.apply(at, Wait(reason_of(error), str(error)))
            raise
        if isinstance(partition.state, Waiting):
            return True  # whatever keeps it back comes first
        state, topic_id = partition.state, self._topic_id(at) if partition.claim is not None else ""
        if decision.adopts and isinstance(state, Stopped) and state.incident.name == OPEN:
            self._postpone(decision, state.incident.detail)
            return self._decide_anew(at)
        if isinstance(topic_id, ReplicatorError):
            self._postpone(decision, str(topic_id))
            return self._decide_anew(at)
        if topic_id == occurrence.topic_id != "":
            closed = self._closed(occurrence, decision, (occurrence.offset, decision.end))
            self._reports.decided(at, closed)
            self._beforehand.acted(closed)
            self._tell(at, decision)
            return True
        self._reports.decided(at, self._closed(occurrence, decision, None, effect=Ending.RETRIED))
        self._decide_anew(at)
        self._log.warning("decision_outdated", topic=at.topic, partition=at.partition, occurrence=decision.occurrence)
        return True

    def _topic_id(self, at: Partition) -> str | ReplicatorError:
        """Ask for the source topic's id, after all else: topics never get one back that they had. Empty where there is
        no such topic; an error where the source doesn't say."""
        (found,) = self._to.source.topic_ids({at.topic}).wait().values()
        return "" if isinstance(found, TopicMissing) else found

    def _kept(self, it: Occurrence, decision: OperatorDecision) -> str | None:
        """Put a record that is to be set aside into the open transaction; how much of it is held. Empty: compaction or
        retention has taken it; None: it can't be done now."""
        topic, reader = names.aside_topic(self._plan.flow.name), self._to.source_records
        try:
            (there,) = self._to.target.topic_ids([topic]).wait().values()
            lacking = self._to.target.missing_rights([topic])
            if isinstance(there, ReplicatorError):
                raise there
            if topic in lacking and lacking[topic].operations & WRITE:
                raise NotAllowed(lacking[topic].text)
            record = reader.record_now(it.source, decision.offset)
        except ReadStopped:
            return None
        except (Retriable, Unreachable, NotAllowed) as error:
            self._postpone(decision, str(error))
            return None
        if record is None:
            return ""
        bytes_max = max(self._plan.flow.limits.record_bytes_max, self._plan.record_bytes_max)
        kept, how = aside(record, it, decision, self._plan.source_cluster, bytes_max)
        self._to.plane.set_aside(kept)
        return how.value

    def _postpone(self, decision: OperatorDecision, reason: str) -> None:
        self._again_s[decision.occurrence] = self._clock.now_s() + AGAIN_S
        self._log.warning("decision_postponed", occurrence=decision.occurrence, reason=reason)

    def failed(self, decision: OperatorDecision, error: ReplicatorError) -> None:
        """Note that what was decided could not be committed: it is tried again after a while."""
        self._postpone(decision, str(error))

    def _tell(self, at: Partition, decision: OperatorDecision) -> None:
        self._log.warning(
            "decided",
            topic=at.topic,
            partition=at.partition,
            name=decision.name,
            command=decision.command.value,
            offset=decision.offset,
            end=decision.end,
            by=decision.by,
            why=decision.why,
            occurrence=decision.occurrence,
        )

    def _closed(
        self,
        it: Occurrence,
        decision: OperatorDecision,
        moved: tuple[int, int] | None,
        kept: str = "",
        *,
        effect: Ending | None = None,
    ) -> Occurrence:
        done = Ending.ADOPTED if decision.goes_back else ENDINGS[decision.command]
        ending, now_ms = effect or done, self._clock.now_ms()
        closing = Closing(effect=ending, by=self._plan.owner, at_ms=now_ms, moved=moved, decision=decision, kept=kept)
        return it.closed(closing, self._plan.generation)
