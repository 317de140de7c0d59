"""Checks the history of a run against the contents of the logs at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from embedded_broker.simulation.history import (
    History,
    Outcome,
    PartitionReads,
    TopicPartition,
    ViolationKind,
    WrittenTransaction,
)

Log = Mapping[int, bytes]
"""Offset → value of the records of one partition."""


def check(history: History, committed: Mapping[TopicPartition, Log], everything: Mapping[TopicPartition, Log]) -> None:
    """Check a whole run; violations are added to `history`.

    Args:
        history: what clients know.
        committed: what a read_committed reader sees at the end, when nothing is open any more.
        everything: what a read_uncommitted reader sees then.
    """
    _check_acknowledged(history, everything)
    _check_log_starts(history)
    for name, logs in (("committed", committed), ("all", everything)):
        for partition, log in logs.items():
            _check_once_and_in_order(history, f"{partition}, {name} records", list(log.values()))
    _check_transactions(history, committed)
    for reads in history.reads:
        final = committed if reads.committed else everything
        if reads.partition in final:
            _check_reads(history, reads, final[reads.partition])


def _check_acknowledged(history: History, everything: Mapping[TopicPartition, Log]) -> None:
    for value, (partition, offset) in history.acked.items():
        there = everything[partition].get(offset)
        if there != value and not (there is None and _may_be_gone(history, partition, offset)):
            detail = f"{value!r} was acknowledged at {offset} of {partition}, where {there!r} is"
            history.found(ViolationKind.LOST_WRITE, detail)


def _may_be_gone(history: History, partition: TopicPartition, offset: int) -> bool:
    """Return whether nothing need be at an offset; whether it has gone for good is looked at elsewhere."""
    topic = history.topics[partition[0]]
    return topic.is_compacted or offset < max(history.log_starts.get(partition, {0: 0}))


def _check_log_starts(history: History) -> None:
    """Check that no record goes before its time."""
    for value, (partition, offset) in history.acked.items():
        retention_ms = history.topics[partition[0]].retention_ms
        for log_start, at_ms in history.log_starts.get(partition, {}).items():
            age_ms = at_ms - history.written_ms[value]
            if offset < log_start and (retention_ms is None or age_ms < retention_ms):
                detail = f"{value!r} at {offset} of {partition} is {age_ms} ms old when the log begins at {log_start}"
                history.found(ViolationKind.LOST_WRITE, detail)
                break


def _check_once_and_in_order(history: History, where: str, values: Sequence[bytes]) -> None:
    """Check that every value is there at most once, and those of one producer in the order in which it sent them."""
    values = [value for value in values if value]  # tombstones are all alike
    for value, count in Counter(values).items():
        if count > 1:
            history.found(ViolationKind.DUPLICATE, f"{value!r} stands {count} times in {where}")
    latest: dict[bytes, bytes] = {}
    for value in values:
        producer = value.rpartition(b":")[0]
        if value < latest.get(producer, b""):
            history.found(ViolationKind.REORDERING, f"{value!r} comes after {latest[producer]!r} in {where}")
        latest[producer] = value


def _check_transactions(history: History, committed: Mapping[TopicPartition, Log]) -> None:
    visible = {partition: set(log.values()) for partition, log in committed.items()}
    for transaction in history.transactions:
        wanted = {(each, value) for each, values in transaction.values.items() for value in values}
        found = {(each, value) for each, value in wanted if value in visible.get(each, ())}
        if not wanted:
            continue
        if found and transaction.outcome is Outcome.NOT_COMMITTED:
            history.found(
                ViolationKind.ABORTED_READ, f"{transaction.name}: {sorted(found)[0]} is visible and not committed"
            )
        elif any(history.topics[topic].forgets for topic, _ in transaction.values):
            continue  # what must be there is looked at elsewhere
        elif found and found != wanted:
            missing = sorted(wanted - found)[0]
            history.found(
                ViolationKind.TORN_TRANSACTION, f"{transaction.name}: {missing} is not visible, {sorted(found)[0]} is"
            )
        elif not found and transaction.outcome is Outcome.COMMITTED:
            history.found(ViolationKind.LOST_WRITE, f"{transaction.name}: {sorted(wanted)[0]} was committed")


def _check_reads(history: History, reads: PartitionReads, final: Log) -> None:
    """Check that what was read stays, was read once, and nothing between was left out."""
    twice = [value for value, count in Counter(reads.values.values()).items() if count > 1 and value]
    for value in twice:
        history.found(ViolationKind.DUPLICATE, f"{reads.reader} read {value!r} at two offsets of {reads.partition}")
    uncommitted = (
        {
            value
            for each in history.transactions
            if each.outcome is Outcome.NOT_COMMITTED
            for value in each.values.get(reads.partition, ())
        }
        if reads.committed
        else frozenset[bytes]()
    )
    for offset, value in reads.values.items():
        where = f"{reads.reader} read {value!r} at {offset} of {reads.partition}"
        there = final.get(offset)
        if value in uncommitted:
            history.found(ViolationKind.ABORTED_READ, f"{where}, which was not committed")
        elif there != value and not (there is None and _may_be_gone(history, reads.partition, offset)):
            history.found(ViolationKind.DIRTY_READ, f"{where}, where {there!r} is in the end")
    for offset, value in final.items():
        if reads.complete and offset < reads.end and offset not in reads.values:
            detail = f"{reads.reader} polled {reads.partition} up to {reads.end} and did not get {value!r} at {offset}"
            history.found(ViolationKind.SKIPPED_POLL, detail)


def check_keys(history: History, partition: TopicPartition, committed: Log, keys: Mapping[int, bytes]) -> None:
    """Check that the latest value of each key is there.

    Args:
        history: what clients know.
        partition: of a compacted topic.
        committed: what a read_committed reader sees of it at the end.
        keys: offset → key of that.
    """
    latest = {keys[offset]: committed[offset] for offset in sorted(committed)}
    for (where, key), sent in history.by_key.items():
        if where != partition:
            continue
        possible: set[bytes] = {b""}
        for value, transaction in sent:
            outcome = Outcome.COMMITTED if transaction is None else transaction.outcome
            if outcome is Outcome.COMMITTED:
                possible = {value or b""}
            elif outcome is Outcome.UNKNOWN:
                possible.add(value or b"")
        found = latest.get(key, b"")
        if found not in possible:
            detail = f"{partition}: {key!r} has {found!r}, and should have {sorted(possible)}"
            history.found(ViolationKind.LOST_WRITE, detail)


def check_copy(
    history: History,
    transactions: Sequence[WrittenTransaction],
    offsets: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, Log],
    to: str,
) -> None:
    """Check that a copier's positions say exactly what it has copied.

    Args:
        history: where violations are noted.
        transactions: the copier's, in order.
        offsets: its group's positions in the end.
        committed: logs of both topics, as a read_committed reader sees them.
        to: the topic that it copied to.
    """
    for partition, offset in offsets.items():
        source, copy = committed[partition], committed[to, partition[1]]
        wanted = [value for at, value in source.items() if at < offset]
        found = [value.partition(b" of ")[2] for value in copy.values()]
        if missing := [value for value in wanted if value not in set(found)]:
            history.found(
                ViolationKind.WRONG_GROUP_OFFSET, f"{partition}: the position is {offset}, {missing[0]!r} isn't there"
            )
        elif extra := [value for value in found if value not in set(wanted)]:
            history.found(
                ViolationKind.WRONG_GROUP_OFFSET, f"{partition}: the position is {offset}, {extra[0]!r} is there"
            )
        elif found != wanted:
            history.found(ViolationKind.REORDERING, f"{to}-{partition[1]}: not as in {partition}")
        known = [each.offsets[partition] for each in transactions if partition in each.offsets]
        committed_last = [
            each.offsets[partition]
            for each in transactions
            if partition in each.offsets and each.outcome is Outcome.COMMITTED
        ]
        if offset not in (*known, -1) or offset < max(committed_last, default=-1):
            detail = f"{partition}: the position is {offset}, committed was {max(committed_last, default=-1)}"
            history.found(ViolationKind.WRONG_GROUP_OFFSET, detail)
