"""A limit on the bytes that all connections hold together; `Server` has one for requests and one for responses.

Invariants
- A reservation is granted before the bytes are there, and only if they fit; so what is reserved never exceeds the
  limit, but for one answer that must be whole however large it is (`whole`): that one waits until nearly all is free.
- Who holds more than `SMALL_BYTES` gets at most three quarters of the limit: the rest is for those who hold little.
- Over the limit whoever holds more than `little_bytes` is paused, and all of them resume when half of it is free again.
  Those that hold little go on: it is not they who fill it, and at twice the limit it ends for all.
- While the limit is exceeded, or a reservation waits, a sixteenth of it must be freed in each `patience_s`, or be read
  of answers that are freed as a whole; else the holder of the most bytes is shed, repeatedly until enough is free, of
  those that have held something all that time: who has just been granted a reservation is not shed for what others have
  done. So the limit is enforced, and no holder can block the others for much longer than that. At twice the limit
  holders are shed without delay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

SMALL_BYTES = 1024 * 1024
GIVEN_BACK_BYTES_MIN = 32 * 1024 * 1024
"""A peak from which on memory is given back to the system when most of it is free again."""


class TooLarge(Exception):
    """A reservation that would never be granted."""


class Holder(Protocol):
    """Holds bytes of a budget: a connection."""

    def granted(self, more_bytes: int) -> None:
        """Hold so many bytes more from now on: a reservation is granted."""

    def shed(self, what: str) -> None:
        """Release all bytes before this returns. `what` is the reason, in words."""


H = TypeVar("H", bound=Holder)


@dataclass(slots=True, eq=False)
class _Waiting(Generic[H]):
    """A reservation that doesn't fit yet."""

    holder: H
    bytes: int
    whole: bool
    done: asyncio.Future[None]


class Budget(Generic[H]):
    """One limit for the sum of all holders."""

    def __init__(
        self,
        what: str,
        bytes_max: int,
        changed: Callable[[bool], None],
        patience_s: float = 1.0,
        emptied: Callable[[], None] = lambda: None,
        has_shed: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            what: names what is held.
            bytes_max: the limit.
            changed: is called when it is full (True) and when half is free again (False).
            patience_s: how long a holder may block the others.
            emptied: is called when most of much is free again.
            has_shed: is called when holders may have been shed, before others use what they have held.
        """
        self._what, self._bytes_max, self._changed, self._patience_s = what, bytes_max, changed, patience_s
        self._emptied, self._has_shed = emptied, has_shed
        self._held: dict[H, int] = {}
        self._waiting: deque[_Waiting[H]] = deque()
        self.total_bytes = 0
        self.full = False
        self._timer: asyncio.TimerHandle | None = None
        self._freed_bytes = 0  # since the timer was set
        self._held_before: tuple[H, ...] = ()  # who has held something when it was
        self._peak_bytes = 0  # since `emptied` was called

    @property
    def little_bytes(self) -> int:
        """See the invariants; a mebibyte of a limit of 128."""
        return self._bytes_max // 128

    def pauses(self, holder: H) -> bool:
        """Return whether `holder` must wait with more until others have freed something."""
        return self.full and self._held.get(holder, 0) > self.little_bytes

    def held(self, holder: H, now_bytes: int, read_bytes: int = 0) -> None:
        """Set the bytes that `holder` holds now; 0 removes it.

        Args:
            holder: of the bytes.
            now_bytes: that it holds.
            read_bytes: that it has got rid of and still holds, since they are freed together with others.
        """
        self._freed_bytes += read_bytes
        before = self._held.get(holder, 0)
        if now_bytes == before:
            return
        self._held.pop(holder, None)  # the latest change stands last
        if now_bytes:
            self._held[holder] = now_bytes
        self.total_bytes += now_bytes - before
        if now_bytes > before:
            self._more()
        elif now_bytes < before:
            self._freed_bytes += before - now_bytes
            self._less()

    def _more(self) -> None:
        self._peak_bytes = max(self._peak_bytes, self.total_bytes)
        if not self.full and self.total_bytes > self._bytes_max:
            self.full = True
            self._watch()
            self._changed(True)
        if self.total_bytes > 2 * self._bytes_max:
            self._shed(self._held)

    def _less(self) -> None:
        if self.full and self.total_bytes <= self._bytes_max // 2:
            self.full = False
            self._changed(False)
        if self._waiting:
            self._grant()
        if self._timer is not None and not self._is_pressed:
            self._timer.cancel()
            self._timer = None
        if self._peak_bytes >= GIVEN_BACK_BYTES_MIN and self.total_bytes <= self._peak_bytes // 4:
            self._peak_bytes = self.total_bytes
            self._emptied()

    async def reserve(self, holder: H, more_bytes: int, whole: bool = False) -> None:
        """Return when `holder` may have so many bytes more; it is `granted` them before that.

        Args:
            holder: of the bytes.
            more_bytes: besides those that it holds.
            whole: they can't be less, so that they are granted even if they are more than the limit.

        Raises TooLarge.
        """
        if not whole and self._held.get(holder, 0) + more_bytes > self._bytes_max:
            raise TooLarge(f"more than {self._bytes_max} bytes of {self._what}")
        if self.fits(holder, more_bytes, whole):
            holder.granted(more_bytes)
            return
        waiting = _Waiting(holder, more_bytes, whole, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._watch()
        try:
            await waiting.done
        finally:
            if waiting in self._waiting:  # its client has left
                self._waiting.remove(waiting)

    def fits(self, holder: H, more_bytes: int, whole: bool = False) -> bool:
        """Return whether `reserve` would return at once."""
        own_bytes = self._held.get(holder, 0)
        if own_bytes + more_bytes > self._bytes_max and not whole:
            return False
        is_small = own_bytes + more_bytes <= SMALL_BYTES
        if self.total_bytes + more_bytes <= (self._bytes_max if is_small else self._bytes_max * 3 // 4):
            return True
        is_large = own_bytes + more_bytes > self._bytes_max * 3 // 4
        return (is_large or whole) and self.total_bytes - own_bytes <= self._bytes_max // 4

    def _grant(self) -> None:
        """Grant memory to those that wait, in their order; what doesn't fit doesn't keep others waiting."""
        for each in list(self._waiting):
            if each.done.done():
                self._waiting.remove(each)
            elif self.fits(each.holder, each.bytes, each.whole):
                self._waiting.remove(each)
                each.holder.granted(each.bytes)
                each.done.set_result(None)

    @property
    def _is_pressed(self) -> bool:
        """Whether somebody waits for others to free something."""
        return self.full or bool(self._waiting)

    def _watch(self) -> None:
        if self._timer is None:
            self._freed_bytes, self._held_before = 0, tuple(self._held)
            self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._relieve)

    def _relieve(self) -> None:
        """Shed the largest holders until nobody is kept waiting, unless enough was freed meanwhile."""
        self._timer = None
        try:
            if self._freed_bytes < max(self._bytes_max // 16, 1):
                self._shed(self._held_before)
                self._has_shed()
        finally:  # whatever happens, the limit is enforced later
            if self._is_pressed:
                self._watch()

    def _shed(self, some: Iterable[H]) -> None:
        """Close the largest of these until the rest fits."""
        for largest in sorted((each for each in some if each in self._held), key=self._held.__getitem__, reverse=True):
            if not self._is_pressed:
                return
            largest.shed(f"too many {self._what}, and {self._held[largest]} bytes are its own")
            assert largest not in self._held, "shed, but still holding"
