"""What `position set` would do to each partition, decided by what both clusters say of it. Pure but for `look`.

Invariants
- Only a position of this flow, in the very topics that are there now, is set: offsets of a topic that was created again
  mean other records.
- A position that goes forward keeps its evidence: what lies between is a signed gap. One that goes back, or that is to
  cover what the target has behind it, is an adoption: what stands there is taken as it is, and nothing of it is the
  flow's. So nothing may be adopted that hides a loss, or that nobody has looked at.
- Of a flow that is to be taken from a worker (`moving`) the position goes on until the fence, and what is shown before
  is only how it stood. What was typed is where copying goes on: it holds as long as nobody but the flow itself has
  moved the position, and the target has nothing else than what the flow has written since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from replicator.config import Delivery, Flow
from replicator.config.routing import selects, target_topic
from replicator.kafka.offset_reader import OffsetReader
from replicator.kafka.topic_questions import raised
from replicator.lane.ports import ClusterQuestions
from replicator.model.checkpoint import NOBODY, Position, Stored
from replicator.model.commands import Command
from replicator.model.contradictions import compare
from replicator.model.errors import Incident, ReplicatorError
from replicator.model.incident_kinds import with_place_of_id
from replicator.model.partition import EndRecords, LogEnds, Partition
from replicator.state.claims import Claim, Claims
from replicator.state.decisions import NotDecided, Objection
from replicator.state.exported_positions import WantedPosition

ANSWERED = ("source_records_gone", "source_truncated")
"""Contradictions that another position is the answer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionFacts:
    """What is known of one partition. `last`: what stands on the target from the last record on that the position
    covers; None where nothing was read. `compacted`: the target topic is. `fenced`: nobody else writes any more.
    `moving`: a worker has the flow, and it is to be taken from it; `covered`: what of the target the position covered
    once `last` was read. `decided`: the occurrences by which the position was moved."""

    target: Partition
    stored: Stored | ReplicatorError | None
    claim: Claim | None
    source_log: LogEnds | ReplicatorError
    target_log: LogEnds | ReplicatorError
    last: EndRecords | ReplicatorError | None = None
    compacted: bool = False
    fenced: bool = False
    moving: bool = False
    covered: int = 0
    decided: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPosition:
    """One partition: its position `before`, the offset `after`, and as what that is recorded (`command`): what lies
    between is left out, or what the target has is adopted. None: it stands there already. `exact`: what the target has
    behind the position isn't the flow's. `moving`, `decided` as of `PositionFacts`."""

    source: Partition
    target: Partition
    before: Position
    after: int
    command: Command | None
    claim: Claim | None
    source_log: LogEnds
    target_log: LogEnds
    exact: bool = True
    moving: bool = False
    decided: frozenset[str] = frozenset()

    @property
    def copied_again(self) -> int:
        """Source offsets whose records are copied a second time, at most so many records."""
        return max(0, self.before.offset - self.after)

    @property
    def left_out(self) -> int:
        """Source offsets that this flow doesn't copy."""
        return max(0, self.after - self.before.offset)

    def outdated(self, shown: PlannedPosition) -> str:
        """Say what has changed since somebody was `shown` this; empty if it is the same, but for the end of the
        target, and for what a flow that was `moving` has copied since."""
        was, now = shown.before, self.before
        covered = (was.evidence.next_target_offset, now.evidence.next_target_offset)
        on = shown.moving and was.offset <= now.offset and covered[0] <= covered[1]
        facts: tuple[tuple[str, object, object, bool], ...] = (
            ("the position", was.offset, now.offset, on),
            ("the source topic's id", shown.source_log.topic_id, self.source_log.topic_id, False),
            ("the target topic's id", shown.target_log.topic_id, self.target_log.topic_id, False),
            ("what the position covers on the target", *covered, on),
            ("what becomes of it", shown.command, self.command, on and (not self.command or bool(self.copied_again))),
            ("what was decided of it", sorted(shown.decided), sorted(self.decided), not shown.moving),
        )
        return "; ".join(
            f"{what} was {before}, is {after}"
            for what, before, after, expected in facts
            if before != after and not expected
        )


def look(
    flow: Flow,
    reader: OffsetReader,
    source: ClusterQuestions,
    target: ClusterQuestions,
    wanted: Collection[Partition],
    claims: Claims,
    *,
    fenced: bool,
    moving: bool = False,
) -> dict[Partition, PositionFacts]:
    """Ask both clusters about these source partitions. `fenced`: nobody else writes any more, so what is open over the
    target is waited for. `moving`: it is to be taken from a worker that has the flow, and copies while it is asked.

    Raises NotDecided for one that the flow doesn't copy; Unreachable, NotAllowed, Retriable.
    """
    for at in wanted:
        if not selects(flow, at.topic):
            was = any(claim.source.topic == at.topic for claim in claims.claims.values())
            why = ": it is no longer in the flow file" if was else ""
            raise NotDecided(Objection.NO_POSITION, f"flow {flow.name} doesn't copy topic {at.topic}{why}")
    there = {at: Partition(target_topic(flow, at.topic), at.partition) for at in wanted}
    stored = reader.positions(list(there.values()))
    logs, copies = source.log_ends(list(there)), target.log_ends(list(there.values()))
    starts: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    for to in there.values():
        log, found = copies[to], stored[to]
        if not isinstance(log, LogEnds) or not isinstance(found, Position):
            continue
        end = log.end if fenced else log.stable  # before the fence it may be the worker's own that is open
        first = max(min(found.evidence.next_target_offset, end) - 1, log.start)
        if first < end:
            starts[to], ends[to] = first, end
    last = target.end_records(starts, ends) if starts else {}
    compacted = {topic: target.compacted(topic) for topic in {to.topic for to in starts}}
    again = reader.positions(list(there.values())) if moving else stored
    return {
        at: PositionFacts(
            target=to,
            stored=stored[to],
            claim=claims.claims.get(to),
            source_log=logs[at],
            target_log=copies[to],
            last=last.get(to),
            compacted=compacted.get(to.topic, False),
            fenced=fenced,
            moving=moving and isinstance(now := again[to], Position) and now.evidence.owner != NOBODY,
            covered=now.evidence.next_target_offset if isinstance(now := again[to], Position) else 0,
            decided=frozenset(it.id for it in claims.occurrences if it.target == to and it.moved is not None),
        )
        for at, to in there.items()
    }


def plan_position(
    flow: Flow, wanted: WantedPosition, facts: PositionFacts, source_cluster: str, newest: int
) -> PlannedPosition:
    """Plan the position of one partition. `source_cluster`: its id; `newest`: generation of the control topic.

    Raises NotDecided where the position can't be set there; what a cluster has answered in place of a fact.
    """
    at, position = wanted.source, _own_position(flow, wanted.source, facts)
    source, target = raised(facts.source_log), raised(facts.target_log)
    wrong = compare(position, source_cluster, at.topic, source, target, newest)
    if wrong is not None and wrong[0] not in ANSWERED:
        raise _stopped(flow, at, *wrong)
    for side, seen, there in (
        ("source", wanted.source_topic_id, source.topic_id),
        ("target", wanted.target_topic_id, target.topic_id),
    ):
        if seen and seen != there:
            raise NotDecided(
                Objection.OUTDATED, f"{at}: the {side} topic's id was {seen} when it was exported, is {there}"
            )
    if not source.start <= wanted.offset <= source.end:
        known = f"{at} has offsets from {source.start} on, and ends at {source.end}"
        raise NotDecided(Objection.OUT_OF_RANGE, f"copying can't go on at {wanted.offset}: {known}")
    return PlannedPosition(
        source=at,
        target=facts.target,
        before=position,
        after=wanted.offset,
        command=_command(flow, wanted, facts, position, target),
        claim=facts.claim,
        source_log=source,
        target_log=target,
        exact=_exact(flow, position),
        moving=facts.moving,
        decided=facts.decided,
    )


def _exact(flow: Flow, position: Position) -> bool:
    return Delivery.EXACTLY_ONCE.value in (flow.delivery.value, position.evidence.delivery)


def _own_position(flow: Flow, at: Partition, facts: PositionFacts) -> Position:
    stored = facts.stored
    if isinstance(stored, ReplicatorError):
        raise stored
    if isinstance(stored, Position):
        return stored
    if stored is not None:
        raise NotDecided(
            Objection.NO_POSITION, f"{at}: {stored.incident}: {stored.why}. {with_place_of_id(_ADOPT, flow.name)}"
        )
    if facts.claim is not None:
        raise NotDecided(
            Objection.NO_POSITION,
            f"{at} was copied to {facts.target}, and its position is gone. {with_place_of_id(_ADOPT, flow.name)}",
        )
    raise NotDecided(Objection.NO_POSITION, f"{at}: the flow has not begun to copy it; see start in the flow file")


_ADOPT = (
    "Run the flow, and decide about the incident that stops it: eos-replicate incident resolve ID --adopt map "
    "--why TEXT -c FILE"
)


def _stopped(flow: Flow, at: Partition, name: str, detail: str) -> NotDecided:
    advice = Incident(name, detail).of_flow(flow.name).advice
    return NotDecided(Objection.STOPPED, f"{at}: {name}: {detail}. Another position is no answer to that. {advice}")


def _command(
    flow: Flow, wanted: WantedPosition, facts: PositionFacts, position: Position, target: LogEnds
) -> Command | None:
    """Say as what it is recorded, by the direction and by what the target has. Raises NotDecided."""
    at, covered = wanted.source, position.evidence.next_target_offset
    if isinstance(facts.last, ReplicatorError):
        raise facts.last
    last = facts.last or EndRecords((), target.stable)
    exact = _exact(flow, position)
    later = [offset for offset in last.records if offset >= max(covered, facts.covered)] if exact else []
    if wanted.offset > position.offset and not later:
        return Command.SKIP
    if wanted.offset == position.offset and not later:
        return None
    if covered > target.end:
        why = f"the target must reach offset {covered}, but ends at {target.end}"
        raise _stopped(flow, at, "target_lost_data", why)
    stable = target.stable if len(last.records) > 1 else last.stable  # reading stops at the second one
    if facts.fenced and stable < target.end:
        why = f"{facts.target} is stable up to {stable}, and ends at {target.end}"
        raise _stopped(flow, at, "target_transaction_open", why)
    seen = last.stable >= covered > target.start and position.evidence.count > 0 and not facts.compacted
    if exact and seen and covered - 1 not in last.records:
        raise _stopped(
            flow, at, "target_records_hidden", f"{facts.target} holds the record at offset {covered - 1} as aborted"
        )
    return Command.ADOPT


def check_grown(
    shown: Mapping[Partition, PlannedPosition], now: Mapping[Partition, PlannedPosition], target: ClusterQuestions
) -> None:
    """Check that the targets of partitions that are adopted have no other records than somebody was `shown`: commit
    markers are none, and what a flow that was moving has written since is its own. Both by source partition. Raises
    NotDecided, and what the target says instead."""
    grown = {
        it.target: (seen, it.target_log.end)
        for at, it in now.items()
        if it.command is Command.ADOPT and it.target_log.end > (seen := _seen(shown[at], it))
    }
    if not grown:
        return
    found = target.end_records(
        {to: first for to, (first, _) in grown.items()}, {to: end for to, (_, end) in grown.items()}
    )
    for to, (first, end) in grown.items():
        read = found[to]
        if isinstance(read, ReplicatorError):
            raise read
        if read.records or read.stable < end:
            what = f"has a record at offset {read.records[0]}" if read.records else "has an open transaction"
            raise NotDecided(Objection.OUTDATED, f"{to} ended at {first}, and {what} now")


def _seen(shown: PlannedPosition, now: PlannedPosition) -> int:
    """Return up to which target offset it was seen, or is known by the position, what the target has."""
    if not shown.moving:
        return shown.target_log.end
    if not now.exact:  # what a worker has sent and not committed the position of can't be told from anything else
        return now.target_log.end
    return max(shown.target_log.stable, now.before.evidence.next_target_offset)
