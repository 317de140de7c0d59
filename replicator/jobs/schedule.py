"""Which range of a job is copied next. Pure; `jobs.range_job` asks whenever a slot of the engine is free.

Invariants
- One task of a partition at a time: its lane's transactional id is shared by all of them.
- Until every partition is claimed nothing is copied: however far the job comes, whoever runs the flow later begins
  where it would have begun.
- The partition with the most offsets left is next, so that none is left over that could have been copied beside others.
  As long as it would be chosen again anyway its ranges are joined into one task: each task connects anew. Only one
  whose position was not committed for long goes before it, see `urge`, or whose lane is only to look at it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable

from replicator.jobs.ranges import Range
from replicator.model.partition import Partition


class Schedule:
    """The ranges that are left of a plan, by partition. Use from one thread."""

    def __init__(self, ranges: Iterable[Range], begun: Collection[Partition] = ()) -> None:
        """`ranges`: those of each partition in their order, its claim (an empty range) before them. `begun`: partitions
        that have a position. An empty range of such a one is no claim: nobody waits for it. Its lane is to do what was
        decided, or write down what was found, and gets the first turn."""
        self._left: dict[Partition, deque[Range]] = {}
        for cut in ranges:
            self._left.setdefault(cut.at, deque()).append(cut)
        empty = {at for at, cuts in self._left.items() if cuts[0].empty}
        self._unclaimed = empty.difference(begun)
        self._waiting: set[Partition] = set()  # those of which no task runs
        self._urgent = empty - self._unclaimed
        self._order: list[tuple[bool, bool, int, Partition]] = []  # a heap; some entries are out of date, see `_top`
        for at in self._left:
            self._wait(at)

    @property
    def waiting(self) -> int:
        """How many partitions could be begun now."""
        return len(self._unclaimed & self._waiting if self._unclaimed else self._waiting)

    def next(self, *, joined: bool = True) -> Range | None:
        """Return the next range to copy; its partition runs until `ended`, `drop` or `release`. None: none can begin
        now.

        `joined`: several ranges of a partition may become one.
        """
        top = self._top()
        if top is None or (self._unclaimed and top not in self._unclaimed):
            return None
        urgent = bool(self._urgent - {top})
        self._waiting.discard(top)
        self._urgent.discard(top)
        cuts, after = self._left[top], self._top()
        cut = cuts[0]
        if joined and not cut.empty and not urgent:
            others = 0 if after is None else self._offsets(after)
            for further in list(cuts)[1:]:
                if cuts[-1].end - cut.end < others:
                    break
                cut = cut._replace(end=further.end)
        return cut

    def has(self, at: Partition) -> bool:
        """Return whether something of this partition is left to copy."""
        return at in self._left

    def urge(self, at: Partition) -> None:
        """Give this partition the next turn: a task of it commits its position again, which must not get too old."""
        if at in self._waiting and at not in self._urgent:
            self._urgent.add(at)
            self._wait(at)

    def hold(self, at: Partition) -> None:
        """Note that something else runs under this partition's lane, until `release`."""
        self._waiting.discard(at)

    def release(self, at: Partition) -> None:
        """Note that nothing runs any more under this partition's lane: what is left of it is tried again."""
        if at in self._left:
            self._wait(at)

    def ended(self, at: Partition, position: int) -> None:
        """Note that a task of this partition has ended; everything before source offset `position` stands on the
        target.
        """
        cuts = self._left.get(at)
        while cuts and position >= cuts[0].end:
            cuts.popleft()
        if not cuts:
            self.drop(at)
            return
        if not cuts[0].empty:
            self._unclaimed.discard(at)
        cuts[0] = cuts[0]._replace(start=max(cuts[0].start, position))
        self._wait(at)

    def drop(self, at: Partition) -> None:
        """Copy nothing more of this partition."""
        self._unclaimed.discard(at)
        self._waiting.discard(at)
        self._urgent.discard(at)
        self._left.pop(at, None)

    def _offsets(self, at: Partition) -> int:
        cuts = self._left[at]
        return cuts[-1].end - cuts[0].start

    def _wait(self, at: Partition) -> None:
        self._waiting.add(at)
        heapq.heappush(self._order, self._key(at))

    def _key(self, at: Partition) -> tuple[bool, bool, int, Partition]:
        return at not in self._unclaimed, at not in self._urgent, -self._offsets(at), at

    def _top(self) -> Partition | None:
        while self._order:
            at = self._order[0][-1]
            if at in self._waiting and self._order[0] == self._key(at):
                return at
            heapq.heappop(self._order)
        return None
