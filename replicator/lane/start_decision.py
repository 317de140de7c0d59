"""Decides over one partition by what both clusters say: copied from where, waiting for what, stopped by which incident.

Invariant 9: what contradicts the evidence in the position is an incident. Invariant 11: offsets of the source have
gaps, so only a log start above the position means that records are gone.

Pure. Called by `lane.start` at every start of a lane, for partitions that waited, and for those that failed; and
by `inspect.expected_starts` for `plan` and `status`, so that all three say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from replicator.config import Flow
from replicator.lane.partition import DELETED, Reason, reason_of
from replicator.lane.plan import LanePlan
from replicator.model import contradictions
from replicator.model.checkpoint import Evidence, Position, Stored, Unreadable
from replicator.model.commands import TRUNCATED
from replicator.model.contradictions import compare
from replicator.model.errors import Incident, ReplicatorError, TopicMissing
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim
from replicator.state.decisions import AdoptedSides


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one partition. Read in this order, whose reasons `facts` gives: claim, position, log ends,
    offset of the flow's start.

    An error in place of a value says why it is not known. `stored` None: the target says that there is no position.
    `start`: where the copy begins without one; None where that need not be known. `newest` is the newest generation of
    the control topic. `adopts`: an operator has decided that what the target has is the copy of all before `start`, as
    long as both sides are these; `restarts` names the incident where the topic that is there now is copied from `start`
    on in place of the one before. `failed_over`: that its topic was, in words; empty where it wasn't.
    """

    stored: Stored | ReplicatorError | None
    claim: Claim | None
    source: LogEnds | ReplicatorError
    target: LogEnds | ReplicatorError
    start: int | ReplicatorError | None
    newest: int
    adopts: AdoptedSides | None = None
    restarts: str = ""
    failed_over: str = ""


@dataclass(frozen=True, slots=True)
class StartDecision:
    """What becomes of a partition. Without `stopped` and `waits` it is copied from `position` on.

    `claim`: it has no position yet, and this one goes into its first transaction. `unreadable`: see `LanePartition`.
    `topics`: the ids that both topics have; empty where that isn't known.
    """

    position: Position | None = None
    claim: Claim | None = None
    unreadable: Unreadable | None = None
    stopped: Incident | None = None
    waits: tuple[Reason, str] | None = None
    committable: bool = True
    topics: tuple[str, str] = ("", "")


def decide(plan: LanePlan, route: Route, facts: Facts, now_ms: int) -> StartDecision:
    """Decide over one partition; `plan.owner` is who would copy it."""
    source, target = (log.topic_id if isinstance(log, LogEnds) else "" for log in (facts.source, facts.target))
    return replace(_decided(plan, route, facts, now_ms), topics=(source, target))


def _decided(plan: LanePlan, route: Route, facts: Facts, now_ms: int) -> StartDecision:
    if facts.failed_over:
        return _failed_over(facts)
    if facts.restarts == TRUNCATED:
        return _cut(plan, route, facts, now_ms)
    if facts.restarts:
        found = _decided(plan, route, replace(facts, adopts=None, restarts=""), now_ms)
        if found.stopped is None or found.stopped.name != facts.restarts or not _restartable(plan, route, facts):
            return found
        return _without_position(plan, route, replace(facts, stored=None, claim=None), now_ms)
    if isinstance(facts.stored, ReplicatorError):
        return StartDecision(waits=_waits(facts.stored, Reason.TARGET_MISSING), committable=False)
    if facts.stored is None or (isinstance(facts.stored, Unreadable) and _adoptable(plan, route, facts)):
        return _without_position(plan, route, facts, now_ms)
    return _with_position(plan, route, facts, facts.stored)


def _failed_over(facts: Facts) -> StartDecision:
    """Decide over a partition whose topic was failed over. Its position is kept, whatever else is so: neither side is
    the flow's to decide about. Without a position it gets none."""
    stored, waits = facts.stored, (Reason.FAILED_OVER, facts.failed_over)
    there = not isinstance(facts.target, TopicMissing) and not isinstance(stored, ReplicatorError)
    if isinstance(stored, Unreadable):
        return StartDecision(unreadable=stored, waits=waits, committable=there)
    return StartDecision(position=stored if isinstance(stored, Position) else None, waits=waits, committable=there)


def _cut(plan: LanePlan, route: Route, facts: Facts, now_ms: int) -> StartDecision:
    """Have a partition go on where an operator has decided, since the source's log was cut there. That it was may not
    show in offsets any more: without the decision it would be copied from its old position on."""
    found = _decided(plan, route, replace(facts, adopts=None, restarts=""), now_ms)
    other = found.waits is not None or (found.stopped is not None and found.stopped.name != TRUNCATED)
    if other or not isinstance(facts.stored, Position):
        return found
    if facts.stored.evidence.generation <= facts.newest and _adoptable(plan, route, facts):
        return _without_position(plan, route, replace(facts, stored=None, claim=None), now_ms)
    if found.stopped is not None:
        return found
    at, why = route.source, "its log was cut, and either side is another one than when that was decided about"
    cut = Incident(TRUNCATED, why, topic=at.topic, partition=at.partition, offset=facts.stored.offset)
    return StartDecision(position=facts.stored, stopped=cut)


def _waits(error: ReplicatorError, missing: Reason) -> tuple[Reason, str]:
    return reason_of(error, missing), str(error)


def _hindrance(route: Route, facts: Facts, position: Position | None) -> StartDecision | None:
    """Find what its topic's listing showed, or a cluster that can't say what has to be known."""
    if route.stopped is not None:
        offset = -1 if position is None else position.offset
        return StartDecision(position=position, stopped=route.stopped.at(route.source.partition, offset))
    if route.waiting:
        return StartDecision(position=position, waits=(Reason.LISTED_SO, route.waiting))
    if isinstance(facts.target, ReplicatorError):
        reason, text = _waits(facts.target, Reason.TARGET_MISSING)
        return StartDecision(position=position, waits=(reason, text), committable=reason is not Reason.TARGET_MISSING)
    if isinstance(facts.source, ReplicatorError):
        return StartDecision(position=position, waits=_waits(facts.source, Reason.SOURCE_MISSING))
    return None


def _with_position(plan: LanePlan, route: Route, facts: Facts, position: Stored) -> StartDecision:
    source = route.source
    if isinstance(position, Unreadable):
        return StartDecision(unreadable=position, stopped=unreadable(source, position))
    hindered = _hindrance(route, facts, position)
    if hindered is not None:
        return hindered
    assert isinstance(facts.source, LogEnds)
    assert isinstance(facts.target, LogEnds)
    wrong = compare(position, plan.source_cluster, source.topic, facts.source, facts.target, facts.newest)
    if wrong is None:
        return StartDecision(position=position)
    name, detail = wrong
    if name == TRUNCATED and told_by_an_old_leader(facts):
        epochs = f"of {source} leader epoch {facts.source.leader_epoch} is told, but the position was reached under"
        text = f"{epochs} {position.evidence.leader_epoch}: an old leader, whose log may end before it"
        text += "; if the source's controllers have gone back to older epochs, stop the flow, and use position set"
        return StartDecision(position=position, waits=(Reason.NO_ANSWER, text))
    found = Incident(
        name,
        detail,
        topic=source.topic,
        partition=source.partition,
        offset=position.offset,
        end=facts.source.start if name == "source_records_gone" else -1,
    )
    return StartDecision(position=position, stopped=found)


def told_by_an_old_leader(facts: Facts) -> bool:
    """Say whether an old leader has described the source's log, see `contradictions`."""
    source, position = facts.source, facts.stored
    if not isinstance(source, LogEnds) or not isinstance(position, Position):
        return False
    return contradictions.told_by_an_old_leader(position, source)


def unreadable(source: Partition, found: Unreadable) -> Incident:
    """Make the incident of somebody else's commit in place of a source partition's position."""
    return Incident(found.incident, found.why, topic=source.topic, partition=source.partition, offset=found.offset)


def source_deleted(
    flow: Flow, source: Partition, target: Partition, stored: Stored, failed_over: str = ""
) -> StartDecision:
    """Decide over a position whose source topic the flow selects, and which isn't listed any more. `failed_over` as of
    `Facts`."""
    if failed_over:
        waits = (Reason.FAILED_OVER, failed_over)
        if isinstance(stored, Position):
            return StartDecision(position=stored, waits=waits)
        return StartDecision(unreadable=stored, waits=waits)
    why = f"{target} has its position, but the source topic isn't there any more"
    if isinstance(stored, Position) and flow.deleted_topics in DELETED:
        return StartDecision(position=stored, waits=(DELETED[flow.deleted_topics], why))
    incident = Incident(
        "source_topic_deleted", why, topic=source.topic, partition=source.partition, offset=stored.offset
    )
    if isinstance(stored, Position):
        return StartDecision(position=stored, stopped=incident)
    return StartDecision(unreadable=stored, stopped=incident)


def unlisted(at: Partition) -> ReplicatorError:
    """Make what stands for the log of a partition that isn't in the listing of its cluster."""
    return TopicMissing(f"{at} was not listed")


def _without_position(plan: LanePlan, route: Route, facts: Facts, now_ms: int) -> StartDecision:
    source = route.source
    adopts = _adoptable(plan, route, facts)
    if facts.claim is not None and not adopts:
        return _claimed_before(plan, route, facts, facts.claim)
    hindered = _hindrance(route, facts, None)
    if hindered is not None:
        return hindered
    assert isinstance(facts.source, LogEnds)
    assert isinstance(facts.target, LogEnds)
    if facts.target.end > 0 and not adopts:
        why = f"{route.target} has data up to offset {facts.target.end}, but this flow has no position for it"
        return StartDecision(stopped=Incident("target_not_empty", why, topic=source.topic, partition=source.partition))
    if isinstance(facts.start, ReplicatorError):
        return StartDecision(waits=_waits(facts.start, Reason.SOURCE_MISSING))
    start = facts.source.start if facts.start is None else facts.start
    if start < facts.source.start:  # a job was told to begin there, or it was resolved when the flow was opened
        why = f"source offsets {start} to {facts.source.start - 1} were deleted before they were copied"
        gone = Incident(
            "source_records_gone",
            why,
            topic=source.topic,
            partition=source.partition,
            offset=start,
            end=facts.source.start,
        )
        return StartDecision(stopped=gone)
    if start > facts.source.end:  # what is written up to there would never be copied
        why = f"the copy is to begin at offset {start}, but the source ends at {facts.source.end} now: its log was cut"
        cut = Incident("source_truncated", why, topic=source.topic, partition=source.partition, offset=start)
        return StartDecision(stopped=cut)
    evidence = Evidence(
        generation=plan.generation,
        owner=plan.owner,
        source_topic=source.topic,
        source_cluster=plan.source_cluster,
        source_topic_id=facts.source.topic_id,
        target_topic_id=facts.target.topic_id,
        log_start=facts.source.start,
        next_target_offset=facts.target.end,
        delivery=plan.flow.delivery.value,
        moved_ms=now_ms,
        owned_ms=now_ms,
    )
    claim = Claim(
        target=route.target,
        source=source,
        source_topic_id=facts.source.topic_id,
        target_topic_id=facts.target.topic_id,
        target_end=facts.target.end,
        offset=start,
        generation=plan.generation,
        owner=plan.owner,
        at_ms=now_ms,
        source_cluster=plan.source_cluster,
        origins=route.origins,
    )
    return StartDecision(position=Position(start, evidence), claim=claim)


def _adoptable(plan: LanePlan, route: Route, facts: Facts) -> bool:
    """Tell whether an operator's decision to adopt what the target has is about what is there now, and about what was
    claimed: another topic, and a target that has grown since, are not what somebody has looked at."""
    source, target, claim = facts.source, facts.target, facts.claim
    if facts.adopts is None or not isinstance(source, LogEnds) or not isinstance(target, LogEnds):
        return False
    if not facts.adopts.are(source, target):
        return False
    if claim is None:
        return True
    same = claim.contradicted(plan.source_cluster, route.source, source.topic_id) is None
    return same and claim.target_topic_id == target.topic_id


def _restartable(plan: LanePlan, route: Route, facts: Facts) -> bool:
    """Tell whether a decision to copy a topic from its beginning is about the topics that are there now, in place of
    those that were claimed: neither side was created once more, and the target has not grown since."""
    sides, source, target, claim = facts.adopts, facts.source, facts.target, facts.claim
    if sides is None or claim is None or not isinstance(source, LogEnds) or not isinstance(target, LogEnds):
        return False
    if isinstance(facts.stored, Position) and facts.stored.evidence.generation > facts.newest:
        return False
    ids = (source.topic_id, target.topic_id)
    former, _ = claim.former_topic_ids(facts.restarts, plan.source_cluster, route.source, *ids)
    return former == sides.former_topic_id != "" and sides.are(source, target)


def _claimed_before(plan: LanePlan, route: Route, facts: Facts, claim: Claim) -> StartDecision:
    """Name the incident of a claim without a position.

    Kafka removes a deleted topic's committed offsets, so only the claim can tell.
    """
    source, target = route.source, facts.target
    if isinstance(target, ReplicatorError):
        reason, text = _waits(target, Reason.TARGET_MISSING)
        if route.target_topic_id:  # it was listed: a broker that has just started may not know of it yet
            return StartDecision(waits=(reason, text), committable=False)
    source_topic_id, target_topic_id = (
        it.topic_id if isinstance(it, LogEnds) else None for it in (facts.source, target)
    )
    name, why = claim.why_without_position(plan.source_cluster, source, source_topic_id, target_topic_id)
    found = Incident(name, why, topic=source.topic, partition=source.partition)
    return StartDecision(stopped=found, committable=False)
