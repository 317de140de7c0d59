"""What contradicts a position at a failover, though no lane has said so: an incident is written down only by a lane
that runs, and looks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replicator.failover.verdict import FailedPartition
from replicator.model.checkpoint import Position, Stored
from replicator.model.commands import SOURCE_RECREATED
from replicator.model.contradictions import compare
from replicator.model.errors import ReplicatorError
from replicator.model.partition import LogEnds, Partition
from replicator.offset_map.varints import OFFSET_MAX

UNTOLD = "the target doesn't say where its log ends"
_COPIES_GONE = (
    "source_truncated",  # what was copied are other records than those that have these offsets now
    "target_lost_data",
    "target_records_hidden",
    "target_topic_deleted",
    "target_topic_recreated",
    UNTOLD,
)


def copies_doubted(row: FailedPartition) -> bool:
    """Return whether copies of what stands below the position may be gone: it says then only what isn't copied."""
    return any(f"{name}: " in row.problem for name in _COPIES_GONE)


def compared(
    rows: Iterable[FailedPartition],
    found: Mapping[Partition, Stored],
    source_ids: Mapping[str, str],
    logs: Mapping[Partition, LogEnds | ReplicatorError],
) -> list[FailedPartition]:
    """Return the rows, with what is wrong with those positions that don't fit, unless an incident says it already.

    Args:
        found: the positions, by target partition.
        source_ids: of the source's topics, as they were seen last; an empty one isn't known.
        logs: the target's, asked for after the positions were.
    """
    return [
        _also(row, _problem(it, source_ids.get(row.source.topic, ""), logs.get(row.target)))
        if isinstance(it := found.get(row.target), Position)
        else row
        for row in rows
    ]


def _also(row: FailedPartition, problem: str) -> FailedPartition:
    name, colon, _ = problem.partition(": ")
    if not problem or f"{name}{colon}" in row.problem:
        return row
    return row._replace(problem=f"{row.problem}; {problem}" if row.problem else problem)


def _problem(it: Position, source_id: str, log: LogEnds | ReplicatorError | None) -> str:
    was = it.evidence
    if source_id and source_id != was.source_topic_id:
        return (
            f"{SOURCE_RECREATED}: the source topic's id was {was.source_topic_id} when it was copied, and "
            f"{source_id} when the source was looked at last"
        )
    if isinstance(log, ReplicatorError):
        return f"{UNTOLD}: {log}"
    if log is None:
        return ""
    source = LogEnds(was.source_topic_id, 0, OFFSET_MAX, OFFSET_MAX)  # of it nothing is known
    wrong = compare(it, was.source_cluster, was.source_topic, source, log, was.generation)
    return "" if wrong is None else ": ".join(wrong)
