"""How long the position group's coordinator may take for positions before its connection is given up. Pure.

librdkafka (2.16, `rd_kafka_coord_req_fsm`) keeps no time-out while it waits for a coordinator that it knows and that is
dead: it looks for another one only when the state of one of its connections changes. Such a coordinator may have left
the cluster, and nothing changes any more. A new producer asks for the coordinator anew. It isn't known by which of both
the answer is late, so a slow coordinator is given more time after each time-out.

Made by `flow.wiring` for all lanes of a flow, whose positions have one coordinator.
"""

from __future__ import annotations

LATE_S = 2.0
"""A coordinator that lives answers within milliseconds; a lane stands still for so long when it dies."""


class CoordinatorPatience:
    """The time for one TxnOffsetCommit, seconds."""

    def __init__(self, limit_s_max: float, late_s: float = LATE_S) -> None:
        """`limit_s_max`: the transaction timeout; no answer is of use after that. `late_s`: the time to begin with."""
        self._late_s, self._limit_s_max = late_s, max(late_s, limit_s_max)
        self.limit_s = late_s

    def answered(self) -> None:
        """Note that positions were committed in time."""
        self.limit_s = max(self._late_s, self.limit_s / 2)

    def timed_out(self, limit_s: float) -> None:
        """Note that there was no answer within `limit_s`. Lanes that find that at the same time double it once."""
        self.limit_s = max(self.limit_s, min(2 * limit_s, self._limit_s_max))
