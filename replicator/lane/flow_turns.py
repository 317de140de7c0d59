"""Lets the partitions of a lane take turns while the flow's rate is limited. Pure; called by `lane.throttling`.

Invariant: no partition of a limited flow stands still while another one of its lane has more to copy. A client that
reads returns what it has fetched in the order in which that came, and one fetch holds a MiB of a partition: at a slow
rate that takes minutes. So where one partition alone was copied for `TURN_S`, or several and none but those that had
been copied before, those that had their turn are left out until each of the others had one, or has nothing. As long as
others follow by themselves nothing is read anew, which costs a fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from replicator.model.partition import Partition

TURN_S = 5.0
IDLE_S, IDLE_POLLS = 1.0, 5
"""So long, and in so many looks at what comes, nothing came of those whose turn it is: they have nothing."""

Came = Callable[[Collection[Partition], float], frozenset[Partition]]
"""Finds those of which anything was heard since a time, records or an end."""
AskOffsets = Callable[[Collection[Partition]], dict[Partition, int]]
"""Finds the positions of partitions."""


class FlowTurns:
    """Of one producer session."""

    def __init__(self, came: Came, offsets: AskOffsets) -> None:
        self._came, self._offsets = came, offsets
        self.had_turn: frozenset[Partition] = frozenset()
        """Those that are left out until others had their turn."""
        # Invariant: this and what stands below are of turns, which no partition's state has: all of them are copied.
        self._since_s: float | None = None  # when the turn began
        self._heard_s, self._polls = 0.0, 0  # when anything came last, and how many looks there were since
        self._began_at: dict[Partition, int] = {}
        self._over_rate = False
        self._seen: frozenset[Partition] = frozenset()  # heard in the turns before, since all had one

    def look(self, now_s: float, waits_s: float, readable: frozenset[Partition], *, polls: bool) -> bool:
        """Find whose turn it is; return whether others are read from now on than before.

        Args:
            now_s: monotonic.
            waits_s: seconds until the flow's rate lets it copy more.
            readable: the partitions of the lane that could be read now.
            polls: whether the lane looks at what comes before the next look.
        """
        turn = readable - self.had_turn
        if self._since_s is None:
            self._begin(now_s, turn)
        self._over_rate = self._over_rate or waits_s > 0
        if self._came(turn, self._heard_s):
            self._heard_s, self._polls = now_s, 0
        self._polls += polls
        had = self._had(now_s, turn)
        if had is None:
            return False
        changed, self.had_turn = had != self.had_turn, had
        self._begin(now_s, readable - had)
        return changed

    def _begin(self, now_s: float, turn: frozenset[Partition]) -> None:
        self._since_s = self._heard_s = now_s
        self._polls, self._over_rate, self._began_at = 0, False, self._offsets(turn)

    def _had(self, now_s: float, turn: frozenset[Partition]) -> frozenset[Partition] | None:
        """Find those that are left out of the next turn; None: this one goes on."""
        assert self._since_s is not None
        over = now_s >= self._since_s + TURN_S
        if not self.had_turn and not over:
            return None  # as ever where no limit is reached
        copied, heard = self._copied(turn), self._came(turn, self._since_s)
        if self.had_turn:
            had = self.had_turn | copied | heard
            nothing_left = self._quiet(now_s) or (not copied and heard == turn)
            if turn and not nothing_left and not (over and copied):
                return None
            return had if turn - had and not nothing_left else frozenset()
        before, seen, self._seen = self._seen, self._seen | copied | heard, frozenset()
        if not copied or not self._over_rate or not turn - seen:
            return frozenset()
        if len(copied) > 1 and not copied <= before:
            self._seen = seen  # others follow by themselves
            return frozenset()
        return seen

    def _quiet(self, now_s: float) -> bool:
        """Tell whether nothing came of those whose turn it is for a while."""
        return now_s >= self._heard_s + IDLE_S and self._polls >= IDLE_POLLS

    def _copied(self, turn: frozenset[Partition]) -> frozenset[Partition]:
        """Find those that were copied in this turn."""
        now = self._offsets(turn)
        return frozenset(at for at, offset in now.items() if self._began_at.get(at, offset) != offset)
