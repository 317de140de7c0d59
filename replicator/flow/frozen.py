"""A flow that was failed over: nothing is copied, and its positions are committed again so as not to expire.

Whoever starts the flow does that, also where the source can't be reached any more: all that is needed stands on the
target. It goes on until a command has opened another generation (`eos-replicate failover --undo`).

Invariants
- Fence, then read, then commit (invariant 1), under the id of the generation's only lane: of several processes each
  commits what stands there, and nothing else.
- Positions are released: nobody runs the flow.
- A right that is missing on one topic lets no other topic's positions expire.
- A failover whose command has died before it had fenced anybody is finished here, as any half-done change is (W7):
  other workers may still copy meanwhile, and no position can be kept under a generation that isn't open.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import structlog

from replicator.backoff import Backoff
from replicator.config import Flow
from replicator.flow.connecting import unless_asked
from replicator.flow.parts import ConditionObserver, Note
from replicator.flow.topics import ControlPlane
from replicator.kafka import properties
from replicator.kafka.offset_reader import OffsetReader
from replicator.kafka.producer import TransactionalProducer
from replicator.kafka.topic_questions import TopicInfo, raised
from replicator.model import checkpoint, names
from replicator.model.checkpoint import NOBODY, Position, Stored
from replicator.model.counting import named
from replicator.model.errors import (
    Abortable,
    Fatal,
    Fenced,
    NotAllowed,
    ReplicatorError,
    Retriable,
    TakenOver,
    UnknownOutcome,
    Unreachable,
)
from replicator.model.names import process_name
from replicator.model.partition import Partition
from replicator.state.control import Changer
from replicator.state.control_topic import Control, check_generation
from replicator.state.generation import Generation
from replicator.state.kept_positions import KeptPositions
from replicator.workers.settings import NOTHING_SEEN

LOOK_S_MAX = 5.0
AGAIN_FIRST_S, AGAIN_MAX_S = 0.2, 5.0


def failed_over(control: Control | None) -> str:
    """Say that a flow is failed over; empty where it isn't, or not yet (see `being_failed_over`)."""
    found = None if control is None else control.frozen
    if control is None or found is None or not control.is_frozen:
        return ""
    return f"it was failed over ({found.begun_said}): nothing is copied until failover --undo"


def being_failed_over(control: Control | None) -> str:
    """Say that somebody has begun to fail a flow over, and hasn't fenced all workers; empty where that isn't so."""
    found = None if control is None else control.frozen
    if control is None or found is None or control.is_frozen:
        return ""
    return (
        f"it is being failed over ({found.begun_said}): workers may still copy. If the command has died, give it "
        "again, or failover --undo"
    )


def while_frozen(
    flow: Flow,
    asked: threading.Event,
    log: structlog.stdlib.BoundLogger,
    found: Callable[[], None],
    observer: ConditionObserver,
    note: Callable[[Note], None] = lambda note: None,
) -> bool:
    """Keep the positions of a flow that is failed over, until that is undone or `asked` is set. `observer` is told, and
    `found` is called once that is known. `note` writes who keeps them where `status` reads it; may raise
    ReplicatorError.

    Returns whether it was failed over at all. Raises Unreachable, NotAllowed, Incident of the flow's own topics: what
    the target says at the beginning. Later a target that doesn't answer is waited for, or one that refuses the flow.
    """
    try:
        return _kept_while_frozen(flow, asked, log, found, observer, note)
    finally:
        observer.failed_over("")
        observer.being_failed_over("")


def _kept_while_frozen(
    flow: Flow,
    asked: threading.Event,
    log: structlog.stdlib.BoundLogger,
    begun: Callable[[], None],
    observer: ConditionObserver,
    note: Callable[[Note], None],
) -> bool:
    told, said, kept_s, owner = 0, "", float("-inf"), process_name()
    backoff, watch = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S), NOTHING_SEEN
    with ControlPlane(flow) as plane:
        plane.target.connect(unless_asked(asked, flow.target.name))
        while True:
            pause_s = min(LOOK_S_MAX, flow.limits.discovery_interval_ms / 1000)
            try:
                control = plane.state.control_if_any()
                found, change = (None, None) if control is None else (control.frozen, control.preparing)
                now_s = time.monotonic()
                watch = watch.look(0, 0 if change is None else change.number, now_s)
                may_finish = change is not None and watch.may_change(now_s)
                if found is None and not (told and change is not None and not may_finish):  # isn't being undone
                    if told:
                        log.info("failover_undone")
                    return told > 0
                whole, half = failed_over(control), being_failed_over(control)
                if found is not None and (whole or half) != said:
                    told, said = found.number, whole or half
                    observer.failed_over(whole)  # first: who reads the log may ask for it at once
                    observer.being_failed_over(half)
                    if found == change:
                        log.warning("being_failed_over", generation=told, by=found.who)
                    else:
                        log.warning("failed_over", generation=told, by=found.who)
                    begun()
                if found is not None and found == change and may_finish:
                    watch = watch.fenced(now_s)  # whatever comes of it, it isn't tried again at once
                    if _finished(flow, plane, found, owner):
                        log.warning("failover_finished", generation=found.number, by=found.who)
                        continue
                due = now_s >= kept_s + flow.limits.recommit_interval_ms / 1000
                if due and found is not None and plane.state.control().open == found:
                    done = keep_positions(flow, plane, found)
                    partitions = len(done.found)
                    kept_s, backoff = time.monotonic(), Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
                    log.info("positions_kept", partitions=partitions)
                    if done.denied:
                        log.warning("positions_not_kept", reason=done.denied_said)
                    now_ms = time.time_ns() // 1_000_000
                    kept = KeptPositions(owner=owner, at_ms=now_ms, partitions=partitions, generation=found.number)
                    _noted(note, kept, log)
            except (Retriable, Unreachable, Fenced, TakenOver, UnknownOutcome, Abortable, NotAllowed) as error:
                if not told or (isinstance(error, NotAllowed) and kept_s == float("-inf")):
                    raise
                log.warning("positions_not_kept", reason=str(error))
                pause_s = backoff.next_s()
            if asked.wait(pause_s):
                return told > 0


def _noted(note: Callable[[Note], None], kept: KeptPositions, log: structlog.stdlib.BoundLogger) -> None:
    """Have it noted where `status` reads it. The positions are committed, whether or not that can be written."""
    try:
        note(kept)
    except ReplicatorError as unnoted:
        log.warning("kept_not_noted", reason=str(unnoted))


def _finished(flow: Flow, plane: ControlPlane, begun: Generation, owner: str) -> bool:
    """Fence all workers and open the generation that somebody has begun; whether that was done here. Raises as
    `Changer`; TakenOver where another change is under way."""

    def propose(control: Control) -> None:
        if control.preparing is not None and control.preparing != begun:
            raise TakenOver(f"flow {flow.name}: {control.preparing.begun_said} is being prepared")

    changer = Changer(flow, plane.state, owner, _ignored, _no_starts)
    return changer.ensure(propose, {}, lambda found: None)[1]


@dataclass(frozen=True, slots=True)
class PositionsThere:
    """The positions of a flow, by target partition; and the target topics whose positions the target doesn't show, or
    take, for want of a right."""

    found: Mapping[Partition, Stored]
    denied: Mapping[str, NotAllowed]

    @property
    def denied_said(self) -> str:
        """For people: empty where there are none."""
        return named([self.denied[topic] for topic in sorted(self.denied)], "; ", noun="topic")


def keep_positions(flow: Flow, plane: ControlPlane, frozen_: Generation) -> PositionsThere:
    """Commit all positions of the flow again, without an owner, but for those that a right on their topic is missing
    for: one of them would have the target refuse all. Return which these are.

    Raises Fenced, TakenOver (another generation is open), UnknownOutcome, Abortable, Retriable, Unreachable,
    NotAllowed (of the flow as a whole), Incident of the flow's own topics.
    """
    lane_id = names.lane_id(flow.name, frozen_.number, 0)
    producer = TransactionalProducer(flow, properties.position_producer(flow, lane_id), _ignored)
    with closing(producer), closing(OffsetReader(flow)) as reader:
        producer.fence()
        check_generation(plane.state.control(), frozen_.number, frozen_.assignment)
        there = positions(flow, plane, reader, to_commit=True)
        now_ms = time.time_ns() // 1_000_000
        renewed = {at: checkpoint.written(_released(it, now_ms)) for at, it in there.found.items()}
        if renewed:
            producer.begin()
            producer.send_positions(names.position_group(flow.name), renewed, reader.group_metadata)
            producer.end()
    return there


def positions(flow: Flow, plane: ControlPlane, reader: OffsetReader, *, to_commit: bool = False) -> PositionsThere:
    """Read the position of each partition that the flow has ever claimed, where its target topic is there, and it has
    one. The source isn't asked. `to_commit`: where the user may commit positions, too.

    Raises ReplicatorError: what isn't the right on a topic.
    """
    claimed = [it.target for it in plane.state.claims().claims.values()]
    topics: dict[str, TopicInfo] = {}
    denied: dict[str, NotAllowed] = {}
    for name, answer in plane.target.describe({at.topic for at in claimed}, rights=to_commit).items():
        if isinstance(answer, NotAllowed):
            denied[name] = answer
        elif to_commit and (rights := raised(answer).rights) is not None and "Read" not in rights:
            denied[name] = NotAllowed(f"cluster {flow.target.name!r}: the user needs Read on topic {name!r}")
        else:
            topics[name] = raised(answer)
    found: dict[Partition, Stored] = {}
    for at, it in reader.positions(_existing(claimed, topics)).items():
        if isinstance(it, NotAllowed):
            denied[at.topic] = it
        elif (stored := raised(it)) is not None:
            found[at] = stored
    return PositionsThere(found, denied)


def _existing(claimed: Iterable[Partition], topics: Mapping[str, TopicInfo]) -> list[Partition]:
    return [at for at in claimed if at.topic in topics and at.partition < topics[at.topic].partitions]


def _released(found: Stored, now_ms: int) -> Stored:
    if not isinstance(found, Position):
        return found
    return replace(found, evidence=replace(found.evidence, owner=NOBODY, committed_ms=now_ms))


def _no_starts(partitions: Mapping[str, int]) -> Sequence[tuple[bytes, bytes]]:
    raise Fatal("a flow that was never open is being failed over")


def _ignored(text: str) -> None:
    """Ignore it: the error that ends what was tried says it, too."""
