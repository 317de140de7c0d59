"""Compares the ends of the target's partitions with what the positions vouch for (exactly_once only).

Invariants, once the lane is fenced and its transaction has ended
- Nobody else writes there, so the last stable offset is the high watermark. A broker that lost a transaction's
  marker (Kafka 4.3 skips the marker of a partition that has no leader just then) leaves the transaction open, and the
  next marker of the same producer would end it the wrong way: aborted records would be committed, or the reverse.
- The last record that the position vouches for is visible to a read_committed reader, and none behind it is.
"""

from __future__ import annotations

from collections.abc import Callable

from replicator.checkpoint import Mismatch
from replicator.config import Delivery
from replicator.errors import Incident
from replicator.ledger import Ledger
from replicator.planes.contract import Partition
from replicator.planes.records.reading import Reader, Tail

HANGING = "see kafka-transactions.sh find-hanging: a position and its records must be ended the same way"
ADVICE = {
    "target_has_later_records": "the position went back, or somebody else writes to this topic",
    "target_transaction_open": f"somebody else writes to this topic, or the broker lost a marker: {HANGING}",
    "target_records_hidden": "the broker lost the transaction's marker: copy these records again by a decision",
}


def judge(next_target: int, log_start: int, end: int, tail: Tail) -> Mismatch | None:
    """What is wrong with one partition: `next_target` is the position's, `end` the high watermark before the reading.

    `tail` was read from the last vouched record on, or from the log start if that is later.
    """
    later = [offset for offset in tail.records if offset >= next_target]
    if later:
        detail = (
            f"holds a committed record at offset {later[0]}, the position vouches only for those below {next_target}"
        )
        return Mismatch("target_has_later_records", detail)
    if tail.stable < end:
        return Mismatch(
            "target_transaction_open",
            f"has a transaction that doesn't end: it is stable up to {tail.stable}, and ends at {end}",
        )
    if next_target > log_start and next_target - 1 not in tail.records:
        return Mismatch(
            "target_records_hidden",
            f"holds the record at offset {next_target - 1} as aborted, but the position says that it was committed",
        )
    return None


def examine(ledger: Ledger, reader: Reader, compacted: Callable[[str], bool]) -> dict[Partition, Incident]:
    """Incidents of the running partitions of `ledger`, by source partition; `compacted` tells of a target topic.

    Raises Retriable, NotAllowed, Unreachable.
    """
    vouched: dict[Partition, tuple[Partition, int, int]] = {}
    starts: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    for source, entry in ledger.running.items():
        position, target = entry.position, entry.route.target
        if position is None or position.evidence.delivery != Delivery.EXACTLY_ONCE.value:
            continue
        log_start, end = reader.bounds(target)
        next_target = position.evidence.next_target_offset
        if end > log_start:
            vouched[source] = (target, next_target, log_start)
            starts[target], ends[target] = max(next_target - 1, log_start), end
    tails = reader.tails(starts, ends) if starts else {}
    found: dict[Partition, Incident] = {}
    for source, (target, next_target, log_start) in vouched.items():
        wrong = judge(next_target, log_start, ends[target], tails[target])
        if wrong is None:
            continue
        hidden = wrong.name == "target_records_hidden"
        if hidden and compacted(target.topic) and not reader.holds(target, next_target - 1):
            continue  # compaction takes tombstones, even if they are the last record
        found[source] = _incident(source, target, ledger, wrong)
    return found


def _incident(source: Partition, target: Partition, ledger: Ledger, wrong: Mismatch) -> Incident:
    position = ledger.entries[source].position
    return Incident(
        wrong.name,
        f"{target} {wrong.detail}",
        topic=source.topic,
        partition=source.partition,
        offset=position.offset if position else -1,
        advice=ADVICE[wrong.name],
    )
