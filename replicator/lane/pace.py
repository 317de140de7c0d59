"""How long a lane waits after a commit before it writes the next record. Pure.

`Rate` keeps to a limit that somebody set. `Pace` finds the pause with which small transactions are done soonest:
EndTxn is answered before the transaction's markers are written. Until they are, AddPartitionsToTxn is refused
(CONCURRENT_TRANSACTIONS) and librdkafka asks again only 20 ms later: to begin a little later is to be done sooner. How
much later depends on the target, so it is found by trying: each refusal, seen by the 20 ms that it cost, makes the
pause longer, and each transaction without one a little shorter.
"""

from __future__ import annotations

REFUSED_S = 0.020  # librdkafka's wait after CONCURRENT_TRANSACTIONS
PAUSE_S, PAUSE_S_MAX = 0.003, 0.008
LONGER_S, SHORTER_S = 0.001, 0.00005


class Pace:
    """The pause of one lane. It is for small transactions: a full one follows the last without any."""

    def __init__(self) -> None:
        self.pause_s = PAUSE_S
        self._due_s = 0.0

    def on_committed(self, now_s: float, writing_s: float, drained: bool) -> None:
        """Note that a commit was answered at `now_s`; its records took `writing_s` from the first to the last ack.

        `drained`: the transaction ended because nothing more was there to copy.
        """
        if not drained:
            self._due_s = 0.0
            return
        change = LONGER_S if writing_s >= REFUSED_S else -SHORTER_S
        self.pause_s = min(PAUSE_S_MAX, max(0.0, self.pause_s + change))
        self._due_s = now_s + self.pause_s

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the next record should be written; 0 when it is time."""
        return max(0.0, self._due_s - now_s)


class Rate:
    """At most so many records a second over the lane's life, transaction by transaction; None: no limit."""

    def __init__(self, records_max: float | None) -> None:
        self._records_max = records_max
        self._due_s = 0.0

    def records(self, limit: int, interval_s: float) -> int:
        """Limit the records of one transaction: `limit`, or what may be written in `interval_s`."""
        return limit if self._records_max is None else max(1, min(limit, int(self._records_max * interval_s)))

    def spent(self, began_s: float, records: int) -> None:
        """Note that a transaction of `records` that began at `began_s` was committed; an idle time before it earns
        nothing."""
        if self._records_max is not None:
            self._due_s = max(self._due_s, began_s) + records / self._records_max

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the next record may be written; 0 when it is time."""
        return max(0.0, self._due_s - now_s)
