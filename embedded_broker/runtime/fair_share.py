"""Shares out the event loop, and the memory for answers: a request whose work is large lets others go on meanwhile.

Handlers ask their client for a `Share`, one for each request, and tell it what they do and what they put into the
answer. Costs are counted, not measured, so that simulated runs are deterministic.

Invariants
- Between two turns a request does `slice_steps` of work, or one indivisible step more.
- Of all requests with more than that, one has a turn in `REST_ITERATIONS` iterations of the event loop; they have it
  in the order in which they ask. However many there are, all others wait for one slice. A small request takes several
  iterations (socket, handler, fsync, answer, socket), and would else meet a slice in each of them.
- At most `UNPAID_BYTES` of an answer are built before they are paid for.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

REST_ITERATIONS = 16
UNPAID_BYTES = 64 * 1024


class Account(Protocol):
    """Who pays for the memory of an answer: a connection."""

    def has_room(self, more_bytes: int) -> bool:
        """Return whether `reserve` would return at once."""

    async def reserve(self, more_bytes: int, whole: bool = False) -> None:
        """Return when there is memory for so many bytes more. `whole`: they can't be less, however many they are.

        Raises net.budget.TooLarge.
        """


class NoAccount:
    """Memory that nobody pays for, as in tests of single handlers."""

    def has_room(self, more_bytes: int) -> bool:
        """See Account."""
        return True

    async def reserve(self, more_bytes: int, whole: bool = False) -> None:
        """See Account."""


class FairShare:
    """Of one event loop."""

    def __init__(self, slice_steps: int) -> None:
        self.slice_steps = slice_steps
        self._turn = asyncio.Lock()
        self.turns = 0
        """How often requests have waited for others."""

    def request(self, account: Account | None = None) -> Share:
        """Make the share of one request; `account` pays for its answer."""
        return Share(self, account or NoAccount())

    async def next_turn(self) -> None:
        """Let all others go on that can."""
        async with self._turn:
            self.turns += 1
            for _ in range(REST_ITERATIONS):
                await asyncio.sleep(0)


class Share:
    """One request's use of the event loop, and of memory for its answer."""

    __slots__ = ("_fair", "_steps", "_unpaid_bytes", "account")

    def __init__(self, fair: FairShare, account: Account) -> None:
        self._fair, self.account = fair, account
        self._steps = self._unpaid_bytes = 0

    async def spent(self, steps: int, answer_bytes: int = 0) -> None:
        """Note work that has been done; may return later, after that of others.

        Args:
            steps: see `Thresholds.slice_steps`.
            answer_bytes: what the answer has become larger by, in memory.

        Raises net.budget.TooLarge.
        """
        self._steps += steps
        if answer_bytes:
            self._unpaid_bytes += answer_bytes
            if self._unpaid_bytes >= UNPAID_BYTES:
                unpaid_bytes, self._unpaid_bytes = self._unpaid_bytes, 0
                await self.account.reserve(unpaid_bytes)
        if self._steps >= self._fair.slice_steps:
            self._steps = 0
            await self._fair.next_turn()
