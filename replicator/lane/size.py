"""How large a lane's transactions may be: as large as the flow allows, and no larger than its target can take. Pure.

Made by `lane.driver` for all producer sessions of a lane. `lane.transaction` keeps to it; `lane.session` says which
transactions have timed out.

A lane with many partitions that starts far from its target has a batch for each of them, and only a few produce
requests under way: the first transactions of a session are small, or the first one would take long to be acknowledged.

Invariant: a transaction that has timed out is not tried again at its size. Its records or bytes halve, down to one
record, whose time no smaller transaction would change.
"""

from __future__ import annotations

from replicator.planes.contract import Written

FIRST_RECORDS, LARGER = 32, 4
GROWS_BELOW = 1 / 4  # of the timeout: a transaction that took longer is not followed by a larger one
GROWTH = 1 / 4  # after a timeout; the next one would cost as much time as many transactions
TOLD_AFTER = 3  # timeouts in a row


class TransactionSize:
    """The limits of one lane's next transaction; the first that is reached ends it."""

    def __init__(self, records_max: int, bytes_max: int, *, small: bool = True) -> None:
        """`records_max`, `bytes_max`: what no transaction may exceed. `small`: begin with few records; a job of one
        partition has no need to."""
        self._records_max, self._bytes_max, self._small = records_max, bytes_max, small
        self.records, self.bytes = records_max, bytes_max
        self.timeouts = 0  # in a row
        self._slow = False
        self._record_bytes = 0.0  # on average, in the transaction that timed out last

    def session_began(self) -> None:
        """Begin small: the lane has a new producer."""
        if self._small:
            self.records = min(self.records, FIRST_RECORDS)

    def left(self, records: int, size: int) -> int:
        """Say how many records more a transaction may have that holds `records` of `size` bytes; 0 or less: none."""
        if size >= self.bytes:
            return 0
        left = self.records - records
        if self._record_bytes and left > 0:  # what one poll returns can't be given back
            left = min(left, max(0 if records else 1, int((self.bytes - size) / self._record_bytes)))
        return left

    def on_committed(self, written: Written) -> None:
        """Note that a transaction is committed; `written` is as of its last acknowledgement."""
        self.timeouts = 0
        if not self._slow:
            self.records = min(self._records_max, self.records * LARGER)
        elif written.limit_s is None or written.took_s < written.limit_s * GROWS_BELOW:
            self.records = min(self._records_max, max(self.records + 1, int(self.records * (1 + GROWTH))))
            self.bytes = min(self._bytes_max, int(max(self.bytes, written.bytes) * (1 + GROWTH)) + 1)
            if (self.records, self.bytes) == (self._records_max, self._bytes_max):
                self._slow, self._record_bytes = False, 0.0

    def timed_out(self, written: Written) -> None:
        """Note that a transaction was given up for its time."""
        self.timeouts += 1
        self._slow, self._record_bytes = True, written.bytes / written.records
        self.records = max(1, min(self.records, written.records) // 2)
        self.bytes = max(1, min(self.bytes, written.bytes) // 2)


def slowness(timeouts: int, written: Written) -> str:
    """Say what an operator needs to know of a target that was too slow `timeouts` times in a row, lastly for
    `written`."""
    limit_s = written.limit_s or written.took_s
    needed = written.bytes / written.records / limit_s
    seen = "nothing"
    if written.acknowledged_bytes:
        seen = f"about {written.acknowledged_bytes / written.took_s:,.0f} bytes a second"
    return (
        f"{timeouts} transactions in a row were not written within {limit_s:g} s. The last one had {written.records} "
        f"records with {written.bytes:,} bytes, of which {seen} was acknowledged; a single one of its records needs "
        f"{needed:,.0f} bytes a second. Transactions become smaller, down to one record; if that is not enough, "
        "give the line or the quota more, or raise limits.transaction_timeout_ms"
    )
