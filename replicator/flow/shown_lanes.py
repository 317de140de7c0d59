"""Which lanes of a worker others can see that it runs: what it has proved stands in the group's offsets. Pure.

A lane that was opened early runs without a proof. It is proved once the group has assigned it, for `workers` to show.
Owned by `flow.group_worker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from replicator.workers.proofs import ProofAnswer, ProofResult, result_of

_FIRST = 1 << 40
"""Numbers of proofs that let no lane initialise its id: above all that `workers.membership` gives."""


class ShownLanes:
    """Of one worker under one generation."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._asked: set[int] = set()
        self._next = _FIRST

    def started(self, lane: int) -> None:
        """Note that a lane has begun anew: what stands there of it is older."""
        self._seen.discard(lane)
        self._asked.discard(lane)

    def answered(self, answer: ProofAnswer) -> None:
        """Take the answer to any proof."""
        if result_of(answer) is ProofResult.PROVED:
            self._seen.add(answer.lane)

    def try_again(self) -> None:
        """Ask again for what was refused: there is another assignment."""
        self._asked.clear()

    def to_show(self, running: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the lanes to be proved now, each with the number of its proof. `running`: those that are assigned."""
        for lane in running:
            if lane not in self._seen and lane not in self._asked:
                self._asked.add(lane)
                self._next += 1
                yield lane, self._next
