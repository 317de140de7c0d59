"""Shares the event loop out: a request whose work is large lets others go on while it is being done.

Handlers ask the broker for a `Share`, one for each request, and tell it what they do. Costs are counted, not measured,
so that simulated runs are deterministic.

Invariants
- Between two turns a request does `slice_steps` of work, or one indivisible step more.
- Of all requests with more than that, one has a turn in `REST_ITERATIONS` iterations of the event loop; they have it
  in the order in which they ask. However many there are, all others wait for one slice. A small request takes several
  iterations (socket, handler, fsync, answer, socket), and would else meet a slice in each of them.
"""

from __future__ import annotations

import asyncio

REST_ITERATIONS = 4


class FairShare:
    """Of one event loop."""

    def __init__(self, slice_steps: int) -> None:
        self.slice_steps = slice_steps
        self._turn = asyncio.Lock()
        self.turns = 0
        """How often requests have waited for others."""

    def request(self) -> Share:
        """For one request."""
        return Share(self)

    async def next_turn(self) -> None:
        """Let all others go on that can."""
        async with self._turn:
            self.turns += 1
            for _ in range(REST_ITERATIONS):
                await asyncio.sleep(0)


class Share:
    """One request's use of the event loop."""

    __slots__ = ("_fair", "_steps")

    def __init__(self, fair: FairShare) -> None:
        self._fair, self._steps = fair, 0

    async def spent(self, steps: int) -> None:
        """Note work that has been done; may return later, after that of others."""
        self._steps += steps
        if self._steps >= self._fair.slice_steps:
            self._steps = 0
            await self._fair.next_turn()
