"""Producer state of one partition: idempotence, epochs, open and aborted transactions, last stable offset.

Source: Kafka `ProducerStateManager`, `ProducerAppendInfo`, KIP-98, KIP-360. The state is a function of the partition's
log, batches that retention has removed included: a snapshot and the batch headers behind it rebuild it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.producer_entry import SEQUENCE_MAX, ProducerEntry
from embedded_broker.state.producer_quota import ProducerQuota

NO_PRODUCER_ID = -1
NO_EPOCH = -1
# There is one coordinator, which never moves; DescribeProducers shows this once a producer has had a marker.
COORDINATOR_EPOCH = 0


class Header(Protocol):
    """What is read of a record batch's header; `kafka_records.batch.BatchHeader` has it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch may be appended."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is already in the log: answer as then, append nothing."""

    base_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RefuseBatch:
    """The batch must not be appended."""

    error_code: ErrorCode


BatchVerdict = Accept | Duplicate | RefuseBatch
ACCEPT = Accept()


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An entry of the aborted index; `stable_offset` is the last stable offset once its marker was written."""

    producer_id: int
    first_offset: int
    marker_offset: int
    stable_offset: int


class PartitionProducers:
    """Decides over batches of producers with an id, and knows which offsets are undecided or aborted."""

    def __init__(self, quota: ProducerQuota | None = None) -> None:
        """`quota`: of the broker; None: without a bound."""
        self._quota = quota or ProducerQuota()
        self._entries: dict[int, ProducerEntry] = {}
        # Invariant: keys are the ids of exactly the entries whose first_offset_open is set.
        self._open: dict[int, int] = {}
        # Ended, but the marker is not yet below the high watermark: first offset and marker offset.
        self._unreplicated: list[tuple[int, int]] = []
        # Sorted by marker_offset, because markers are appended in log order.
        self._aborted: list[AbortedTransaction] = []

    def check(self, header: Header, now_ms: int, *, from_client: bool = True) -> BatchVerdict:
        """Say whether a data batch may be appended. Changes nothing.

        Args:
            header: the batch as it came from the producer.
            now_ms: the broker's clock; unused today, part of the contract so that expiry can be lazy.
            from_client: false for the group coordinator's own appends, which carry an epoch but no sequence.

        Source: `UnifiedLog.analyzeAndValidateProducerState`, `ProducerAppendInfo`.
        """
        if header.producer_id < 0:
            return RefuseBatch(ErrorCode.invalid_record) if header.is_transactional else ACCEPT
        if header.producer_epoch < 0 or (from_client and header.base_sequence < 0):
            return RefuseBatch(ErrorCode.invalid_record)
        entry = self._entries.get(header.producer_id)
        if entry is None:
            # Nothing is known: the records were deleted, or the id is new here. Kafka takes any sequence.
            return ACCEPT
        if from_client and (duplicate := self._find_duplicate(entry, header)) is not None:
            return duplicate
        if header.producer_epoch < entry.epoch:
            return RefuseBatch(ErrorCode.invalid_producer_epoch)
        if from_client and not _continues(entry, header):
            return RefuseBatch(ErrorCode.out_of_order_sequence_number)
        if entry.first_offset_open is not None and not header.is_transactional:
            return RefuseBatch(ErrorCode.invalid_txn_state)
        return ACCEPT

    def check_marker(self, producer_id: int, epoch: int, *, bumped: bool = False) -> ErrorCode:
        """Say whether a marker may be written.

        Args:
            producer_id: whose transaction ends.
            epoch: the marker's. A lower one than the producer's comes from a zombie.
            bumped: the marker must have a later epoch than what it ends (transaction version 2); then one of the same
                epoch would end the wrong transaction, or is a repetition if none is open.

        Source: `ProducerAppendInfo.appendEndTxnMarker`.
        """
        entry = self._entries.get(producer_id)
        lowest = 0
        if entry is not None:
            lowest = entry.epoch + int(bumped and entry.first_offset_open is not None)
        return ErrorCode.invalid_producer_epoch if epoch < lowest else ErrorCode.none

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether this epoch has a transaction open here; if not, the coordinator must verify it (KIP-890)."""
        return producer_id in self._open and self._entries[producer_id].epoch == epoch

    def has_committed(self, producer_id: int, epoch: int, since: int) -> bool:
        """Return whether the last that this epoch did here was to commit, with a marker at or behind offset `since`."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch or entry.first_offset_open is not None or entry.last_end is None:
            return False
        marker_offset, commit = entry.last_end
        return commit and marker_offset >= since

    def knows(self, producer_id: int) -> bool:
        """Return whether the producer has written here, and not expired since."""
        return producer_id in self._entries

    def has_room(self, owner: Owner) -> bool:
        """Return whether a client may append a batch of a producer that isn't known here."""
        return self._quota.fits(owner)

    def apply(
        self, header: Header, commit: bool | None = None, now_ms: int | None = None, owner: Owner = SOMEBODY
    ) -> None:
        """Take note of a batch that has been appended, or that is found in the log at recovery.

        Args:
            header: with the offsets it has in the log.
            commit: what a control batch decides; None for a data batch.
            now_ms: when it was appended, or found at recovery; None takes the records' own time. Expiry counts from
                here, because producers that copy old records would otherwise expire at once.
            owner: whom the producer counts for if it is new here.
        """
        if header.producer_id < 0:
            return
        seen_ms = header.max_timestamp if now_ms is None else now_ms
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if commit is not None and self._quota.is_full:
                return  # a marker without data: the coordinator knows the epoch, too
            entry = ProducerEntry(header.producer_id, header.producer_epoch, seen_ms, owner=owner)
            self._add(entry)
        entry.enter_epoch(header.producer_epoch)
        entry.last_timestamp_ms = seen_ms
        if commit is not None:
            entry.coordinator_epoch = COORDINATOR_EPOCH
            self._end(entry, header.base_offset, commit)
            return
        if header.base_sequence >= 0:
            entry.window = entry.window.followed_by(
                header.base_sequence, header.last_sequence, header.base_offset, header.max_timestamp
            )
        if header.is_transactional and entry.first_offset_open is None:
            entry.first_offset_open = header.base_offset
            self._open[entry.producer_id] = header.base_offset

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset whose fate a read_committed reader can't know yet, or None.

        A transaction that has ended counts until its marker is below `high_watermark`: before that a crash could undo
        the marker. Source: `ProducerStateManager.firstUnstableOffset`.
        """
        if self._unreplicated:
            self._unreplicated = [pair for pair in self._unreplicated if pair[1] >= high_watermark]
        candidates = [first for first, _ in self._unreplicated]
        if self._open:
            candidates.append(min(self._open.values()))
        return min(candidates, default=None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return where read_committed reading ends: the first unstable offset, at most the high watermark."""
        unstable = self.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the aborted transactions with records in [start, end): (producer id, first offset), in order of
        markers.
        """
        index = bisect_left(self._aborted, start, key=lambda transaction: transaction.marker_offset)
        found: list[tuple[int, int]] = []
        for transaction in self._aborted[index:]:
            if transaction.first_offset < end:
                found.append((transaction.producer_id, transaction.first_offset))
            if transaction.stable_offset >= end:
                # Whatever aborted later began at or above this one's stable offset.
                break
        return found

    def open_transactions(self) -> dict[int, int]:
        """Return the producer id → first offset of every transaction that has no marker yet."""
        return dict(self._open)

    def entries(self) -> list[ProducerEntry]:
        """Return all producers known here, for DescribeProducers. Read only."""
        return list(self._entries.values())

    def has_window_in(self, start: int, end: int) -> bool:
        """Return whether batches in [start, end) may come again and must be recognised then.

        The last one of each producer doesn't count: compaction leaves it in the log, and a scan finds it there.
        """
        return any(
            start <= batch.base_offset < end
            for entry in self._entries.values()
            for batch in entry.window.batches()[:-1]
        )

    def expire(self, now_ms: int, idle_ms_max: int) -> int:
        """Forget producers idle for `idle_ms_max`, or for less when there are too many; those with an open transaction
        stay. Returns how many went."""
        idle_ms = {
            owner: self._quota.idle_ms_max(owner, idle_ms_max)
            for owner in dict.fromkeys(entry.owner for entry in self._entries.values())
        }
        gone = [
            entry
            for entry in self._entries.values()
            if entry.first_offset_open is None and now_ms - entry.last_timestamp_ms >= idle_ms[entry.owner]
        ]
        for entry in gone:
            del self._entries[entry.producer_id]
            self._quota.remove(entry.owner)
        return len(gone)

    def release(self) -> None:
        """Note that the partition is closed: its producers count for nobody any more."""
        for entry in self._entries.values():
            self._quota.remove(entry.owner)
        self._quota = ProducerQuota()

    def _add(self, entry: ProducerEntry) -> None:
        if (before := self._entries.pop(entry.producer_id, None)) is not None:
            self._quota.remove(before.owner)
        self._entries[entry.producer_id] = entry
        self._quota.add(entry.owner)

    def drop_before(self, log_start: int) -> None:
        """Forget aborted transactions that lie wholly below the log start."""
        index = bisect_left(self._aborted, log_start, key=lambda transaction: transaction.marker_offset)
        del self._aborted[:index]

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """Return all that readers of the log are told of."""
        return list(self._aborted)

    def forget_aborted(self, marker_offsets: Set[int]) -> None:
        """Forget these markers, which compaction removes, after all records of their transactions.

        A reader that were told of such a transaction would wait for its marker, and drop what its producer
        committed later.
        """
        self._aborted = [each for each in self._aborted if each.marker_offset not in marker_offsets]

    def snapshot(self) -> dict[str, Any]:
        """Return all of it as JSON, for `restore`, but for the windows, of which `plain` makes JSON: that takes
        longest, and need not be done on the event loop. Transactions whose marker is in the log count as ended."""
        return {
            "producers": [
                (
                    entry.producer_id,
                    entry.epoch,
                    entry.last_timestamp_ms,
                    entry.coordinator_epoch,
                    entry.first_offset_open,
                    entry.window,
                    entry.last_end,
                )
                for entry in self._entries.values()
            ],
            "aborted": [[a.producer_id, a.first_offset, a.marker_offset, a.stable_offset] for a in self._aborted],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state that `snapshot` returned; everything in the log up to there must be durable."""
        for producer_id, epoch, seen_ms, coordinator_epoch, first_offset_open, batches, last_end in state["producers"]:
            entry = ProducerEntry(producer_id, epoch, seen_ms, coordinator_epoch, first_offset_open)
            entry.last_end = None if last_end is None else (last_end[0], last_end[1])
            for numbers in batches:
                entry.window = entry.window.followed_by(*numbers)
            self._add(entry)
            if entry.first_offset_open is not None:
                self._open[entry.producer_id] = entry.first_offset_open
        self._aborted.extend(AbortedTransaction(*numbers) for numbers in state["aborted"])

    def _find_duplicate(self, entry: ProducerEntry, header: Header) -> Duplicate | None:
        if header.producer_epoch != entry.epoch:
            return None
        for batch in entry.window.batches():
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return Duplicate(batch.base_offset, batch.timestamp_ms)
        return None

    def _end(self, entry: ProducerEntry, marker_offset: int, commit: bool) -> None:
        first_offset = entry.first_offset_open
        if first_offset is None:
            # A marker without data: the coordinator repeats markers after a restart. Nothing became decided by it.
            return
        entry.first_offset_open = None
        entry.last_end = marker_offset, commit
        del self._open[entry.producer_id]
        self._unreplicated.append((first_offset, marker_offset))
        if not commit:
            stable_offset = min(self._open.values(), default=marker_offset + 1)
            self._aborted.append(AbortedTransaction(entry.producer_id, first_offset, marker_offset, stable_offset))


def _continues(entry: ProducerEntry, header: Header) -> bool:
    """Return whether the batch's first sequence is the one that must come next."""
    if header.producer_epoch != entry.epoch:
        return header.base_sequence == 0
    last = entry.last_sequence
    return header.base_sequence == (0 if last == SEQUENCE_MAX else last + 1)
