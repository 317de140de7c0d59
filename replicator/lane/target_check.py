"""Compares the ends of the target's partitions with what the positions cover (exactly_once only).

Invariant 9. Once the lane is fenced and its transaction has ended
- Nobody else writes there, so the last stable offset is the high watermark. A broker that lost a transaction's
  marker (Kafka 4.3 skips the marker of a partition that has no leader just then) leaves the transaction open, and the
  next marker of the same producer would end it the wrong way: aborted records would be committed, or the reverse.
- The last record that the position covers is visible to a read_committed reader, and none behind it is.

Within a transaction, before its positions are committed
- Between the last record that the position covers and the first of this transaction stand markers and aborted records
  only: there is no moment between the look at the end and the transaction in which a foreign record goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TypeVar

from replicator.lane.partition import LanePartition
from replicator.lane.ports import ClusterQuestions
from replicator.model.delivery import Delivery
from replicator.model.errors import Abortable, Incident, NotAllowed, ReplicatorError
from replicator.model.partition import EndRecords, LogEnds, Partition
from replicator.planes.contract import Copied

Answer = TypeVar("Answer")


def compare_end(next_target: int, log_start: int, end: int, last: EndRecords) -> tuple[str, str] | None:
    """Find what is wrong with one partition: `next_target` is the position's, `end` the high watermark before the
    reading.

    `last` was read from the last record that the position covers on, or from the log start if that is later.
    """
    later = [offset for offset in last.records if offset >= next_target]
    if later:
        detail = (
            f"holds a committed record at offset {later[0]}, but the position covers only those below {next_target}"
        )
        return ("target_has_later_records", detail)
    if last.stable < end:
        return (
            "target_transaction_open",
            f"has a transaction that doesn't end: it is stable up to {last.stable}, and ends at {end}",
        )
    if next_target > log_start and next_target - 1 not in last.records:
        return (
            "target_records_hidden",
            f"holds the record at offset {next_target - 1} as aborted, but the position says that it was committed",
        )
    return None


def check_target(
    lane: Mapping[Partition, LanePartition],
    partitions: Collection[Partition],
    target: ClusterQuestions,
    known: Mapping[Partition, LogEnds | ReplicatorError] = MappingProxyType({}),
) -> dict[Partition, Incident | ReplicatorError]:
    """Find what is wrong with these source partitions' targets; an error that is no Incident says why one can't be
    known.

    `known` are ends by target partition that were read after the positions; others are asked for. Looks at partitions
    whose last records were written exactly once, the others promise nothing; and not at a topic that was created again:
    its ids tell that, before anything is committed, and what it holds says nothing of the position. Raises Retriable,
    NotAllowed, Unreachable when nothing can be known of any.
    """
    checked = {at: lane[at] for at in partitions if _promised(lane[at])}
    if not checked:
        return {}
    targets = [entry.route.target for entry in checked.values()]
    ends = {**known, **target.log_ends([at for at in targets if at not in known])}
    found: dict[Partition, Incident | ReplicatorError] = {}
    starts: dict[Partition, int] = {}
    highs: dict[Partition, int] = {}
    for at, entry in checked.items():
        log = ends[entry.route.target]
        if not isinstance(log, LogEnds):
            found[at] = log
        elif log.topic_id == _topic_id(entry) and log.end > log.start:
            # a target that lost its end is read at the last record that it has
            starts[entry.route.target] = max(min(_next_target(entry), log.end) - 1, log.start)
            highs[entry.route.target] = log.end
    ends_read = target.end_records(starts, highs) if starts else {}
    for at, entry in checked.items():
        last, log = ends_read.get(entry.route.target), ends[entry.route.target]
        if last is None or not isinstance(log, LogEnds):
            continue
        wrong = last if isinstance(last, ReplicatorError) else _wrong(at, entry, log, last, target)
        if wrong is not None:
            found[at] = wrong
    return found


def check_between(
    entries: Mapping[Partition, LanePartition], copied: Mapping[Partition, Copied], target: ClusterQuestions
) -> None:
    """Look at what stands between the positions and the records of the open transaction (`copied`, acknowledged).

    Mostly nothing but the marker of the last transaction, which the acknowledgements tell. Where there is more it is
    read: aborted records and markers, of this flow or of others, are passed over. Raises Incident for a partition with
    anything else, Abortable when it can't be read, NotAllowed.
    """
    gaps = {at: (_next_target(entries[at]), copied[at].first_target) for at in entries.keys() & copied.keys()}
    gaps = {
        at: (covered, first)
        for at, (covered, first) in gaps.items()
        if copied[at].records and _promised(entries[at]) and first > covered + _marker(entries[at])
    }
    if not gaps:
        return
    there = {at: entries[at].route.target for at in gaps}
    logs = target.log_ends(list(there.values()))
    starts: dict[Partition, int] = {}
    for at, (covered, first) in gaps.items():
        log = _known(at, logs[there[at]])
        if log.start < first:
            starts[there[at]] = max(covered, log.start)
    found = target.end_records(starts, {there[at]: first for at, (_, first) in gaps.items()}) if starts else {}
    for at, (covered, first) in gaps.items():
        if there[at] in found:
            _compare_between(at, entries[at], covered, first, _known(at, found[there[at]]))


def _compare_between(at: Partition, entry: LanePartition, covered: int, first: int, read: EndRecords) -> None:
    foreign = [offset for offset in read.records if offset < first]
    if foreign:
        name = "target_has_later_records"
        detail = f"holds a record of somebody else at offset {foreign[0]}, between this flow's transactions"
    elif not read.records and read.stable < first:
        name = "target_transaction_open"
        detail = f"has a transaction of somebody else that doesn't end: it is stable up to {read.stable}"
    else:
        return
    raise _incident(name, f"{detail} (the position covers those below {covered})", at, entry)


def _known(at: Partition, answer: Answer | ReplicatorError) -> Answer:
    if isinstance(answer, NotAllowed):
        raise NotAllowed(str(answer), [at])
    if isinstance(answer, ReplicatorError):
        raise Abortable(f"what stands before the transaction's records in {at} is unknown: {answer}") from answer
    return answer


def _marker(entry: LanePartition) -> int:
    """Count how many markers stand behind what the position covers, at least: one if this flow wrote anything there."""
    return int(_written(entry))


def _written(entry: LanePartition) -> bool:
    """Tell whether this flow has written any record that the position covers."""
    return entry.position is not None and entry.position.evidence.count > 0


def _promised(entry: LanePartition) -> bool:
    position = entry.position
    return position is not None and position.evidence.delivery == Delivery.EXACTLY_ONCE.value


def _topic_id(entry: LanePartition) -> str:
    assert entry.position is not None
    return entry.position.evidence.target_topic_id


def _next_target(entry: LanePartition) -> int:
    assert entry.position is not None
    return entry.position.evidence.next_target_offset


def _wrong(
    at: Partition, entry: LanePartition, log: LogEnds, last: EndRecords, target: ClusterQuestions
) -> Incident | None:
    there, next_target = entry.route.target, _next_target(entry)
    wrong = compare_end(next_target, log.start, log.end, last)
    if wrong is None:
        return None
    name, detail = wrong
    if name == "target_records_hidden" and not _written(entry):
        return None  # an operator has adopted what is there: it may end with a marker
    if name == "target_records_hidden" and target.compacted(there.topic) and not target.holds(there, next_target - 1):
        return None  # compaction takes tombstones, even if they are the last record
    return _incident(name, detail, at, entry)


def _incident(name: str, detail: str, at: Partition, entry: LanePartition) -> Incident:
    """Make an incident; `detail` says what the target's partition has."""
    return Incident(
        name,
        f"{entry.route.target} {detail}",
        topic=at.topic,
        partition=at.partition,
        offset=entry.position.offset if entry.position else -1,
    )
