"""Where copying goes on after the source's log was cut, for `incident resolve --skip` of `source_truncated`.

An unclean leader election takes records that were copied, and gives their offsets to others. How far it went is not to
be seen from offsets, once the log has grown again: the source's leader knows where the epoch ends that the position's
last record was written under (KIP-320). Copying goes on there.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace

from replicator.flow.topics import ControlPlane
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import raised
from replicator.model.checkpoint import Position
from replicator.model.errors import Unsupported
from replicator.model.fetches import EpochEnd
from replicator.model.partition import LogEnds
from replicator.state.decisions import AdoptedSides, NotDecided, Objection, OperatorDecision
from replicator.state.occurrences import Occurrence
from replicator.wire.leader_epochs import LeaderEpochs, OldLeader

_WENT_BACK = "if the source's controllers have gone back to older epochs, go on with the command position set"


def from_the_cut_on(plane: ControlPlane, it: Occurrence, decision: OperatorDecision) -> OperatorDecision:
    """Return the decision with where the source's log was cut, and what both sides are now: a lane acts on that alone.

    Raises NotDecided where the cut can't be known, or isn't below the position any more; and what the clusters say.
    """
    stored = offset_reader.positions(plane.flow, [it.target])[it.target]
    if not isinstance(stored, Position) or stored.offset != it.offset:
        why = f"the position of {it.target} is not the source offset {it.offset} any more"
        raise NotDecided(Objection.OUTDATED, f"{it.id}: {why}; run the flow, and look at what it finds")
    epoch = stored.evidence.leader_epoch
    there = raised(plane.target_logs.log_ends([it.target])[it.target])
    found = _asked(plane, it, epoch)
    here = raised(plane.source_logs.log_ends([it.source])[it.source])  # behind the answer, which goes by a name
    return cut_at(it, decision, epoch, found, (here, there))


def _asked(plane: ControlPlane, it: Occurrence, epoch: int) -> EpochEnd:
    if epoch < 0:
        raise NotDecided(Objection.NOT_PROVEN, f"{it.id}: the position of {it.target} knows no leader epoch")
    try:
        with closing(LeaderEpochs(plane.flow, plane.flow.source, threading.Event())) as epochs:
            return epochs.end_of(it.source, epoch)
    except OldLeader as error:
        raise NotDecided(Objection.NOT_PROVEN, f"{it.id}: {error}; {_WENT_BACK}") from error
    except Unsupported as error:
        raise NotDecided(
            Objection.NOT_PROVEN, f"{it.id}: the source can't be asked where it was cut: {error}"
        ) from error


def cut_at(
    it: Occurrence, decision: OperatorDecision, epoch: int, found: EpochEnd, sides: tuple[LogEnds, LogEnds]
) -> OperatorDecision:
    """Return the decision by what the source has answered. Pure.

    Args:
        epoch: the leader epoch of the last record that was copied.
        found: what the source has of that epoch, or of the last one before it.
        sides: the ends of the source and of the target.

    Raises NotDecided.
    """
    source, target = sides
    if source.topic_id != it.topic_id:
        why = f"{it.source.topic} is not the topic any more that the flow has found"
        raise NotDecided(Objection.OUTDATED, f"{why}: its id was {it.topic_id}, is {source.topic_id}")
    if 0 <= source.leader_epoch < epoch:
        why = (
            f"{it.source} is told under leader epoch {source.leader_epoch}, but the position was reached under {epoch}"
        )
        raise NotDecided(Objection.NOT_PROVEN, f"{it.id}: {why}: an old leader has answered; {_WENT_BACK}")
    if found.end < 0:
        raise NotDecided(Objection.NOT_PROVEN, f"{it.id}: {it.source} has no record of leader epoch {epoch} or before")
    if found.end >= it.offset:
        why = f"leader epoch {epoch} of {it.source} ends at {found.end}: nothing is lost below the position {it.offset}"
        raise NotDecided(Objection.OUTDATED, f"{it.id}: {why}; --retry has it checked again")
    if found.end < source.start:
        why = f"its log was cut at {found.end}, and begins at {source.start}"
        raise NotDecided(Objection.NOT_PROVEN, f"{it.id}: {it.source}: {why}")
    both = AdoptedSides(source_topic_id=source.topic_id, target_topic_id=target.topic_id, target_end=target.end)
    return replace(decision, end=found.end, adopted=both)
