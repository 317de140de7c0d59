"""What of a committed position contradicts what both clusters say now.

Pure; used by `lane.start_decision`, by jobs and by reconcile.
"""

from __future__ import annotations

from replicator.model.checkpoint import Position
from replicator.model.partition import LogEnds

OF_ANOTHER_SOURCE = ("source_cluster_changed", "source_topic_changed")
"""Incidents of positions that were written for another source: what else they name, such as blocks of an offset map, is
perhaps another flow's."""


def compare(
    position: Position, source_cluster: str, source_topic: str, source: LogEnds, target: LogEnds, newest: int
) -> tuple[str, str] | None:
    """Find the first contradiction between a committed position and what both clusters say: incident name and detail.

    `source_cluster` is a cluster id, `newest` the newest generation that the control topic knows.

    Order matters: a re-created topic explains offsets that don't fit, so ids are compared first.
    """
    was, offset = position.evidence, position.offset
    checks = (
        (
            was.source_cluster == source_cluster,
            "source_cluster_changed",
            f"the position was written for source cluster {was.source_cluster}, but the source is now cluster "
            f"{source_cluster}",
        ),
        (
            was.source_topic == source_topic,
            "source_topic_changed",
            f"the position was written for source topic {was.source_topic}, but the flow now copies "
            f"{source_topic} there",
        ),
        (
            was.source_topic_id == source.topic_id,
            "source_topic_recreated",
            f"the source topic's id was {was.source_topic_id}, and is {source.topic_id} now: "
            f"{_skipped(offset, source)}",
        ),
        (
            was.target_topic_id == target.topic_id,
            "target_topic_recreated",
            f"the target topic's id was {was.target_topic_id}, and is {target.topic_id} now: the records that the flow "
            f"had copied up to source offset {offset - 1} are gone with the old topic",
        ),
        (
            was.generation <= newest,
            "position_newer_than_control",
            f"the position is of generation {was.generation}, but the control topic knows only up to {newest}",
        ),
        (
            offset >= source.start,
            "source_records_gone",
            f"source offsets {offset} to {source.start - 1} were deleted before they were copied",
        ),
        (
            offset <= source.end,
            "source_truncated",
            cut_below(offset, source.end),
        ),
        (
            was.next_target_offset <= target.end,
            "target_lost_data",
            f"the flow had written up to target offset {was.next_target_offset - 1}, but the target ends at "
            f"{target.end}: its offsets {target.end} to {was.next_target_offset - 1} are gone",
        ),
    )
    return next(((name, detail) for holds, name, detail in checks if not holds), None)


def cut_below(offset: int, end: int) -> str:
    """Say that the source's log ends at `end`, below the position `offset`."""
    gone = f"offsets {end} to {offset - 1} were copied and are gone from the source"
    return f"the position is {offset}, but the source ends at {end}: {gone}"


def told_by_an_old_leader(position: Position, source: LogEnds) -> bool:
    """Tell whether the source's log was described under an older leader epoch than the position was reached under: a
    broker that is cut off from the controllers names itself, or another old leader, for ever."""
    same = source.topic_id == position.evidence.source_topic_id
    return same and is_older(source, position.evidence.leader_epoch)


def is_older(told: LogEnds, leader_epoch: int) -> bool:
    """Tell whether a log was described under an older leader epoch than one that is known of the same topic."""
    return 0 <= told.leader_epoch < leader_epoch


def _skipped(offset: int, source: LogEnds) -> str:
    """Say what going on at the old position would do to the new topic, also to records that it doesn't have yet."""
    if offset <= source.start:
        return f"the new topic begins at offset {source.start}, and the old position is {offset}"
    return (
        f"going on at the old position {offset} would have skipped offsets {source.start} to {offset - 1} of the new "
        f"topic (it ends at {source.end} now)"
    )
