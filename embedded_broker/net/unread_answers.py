"""The answers of one connection that its client hasn't read yet: how they are written, and the memory that they hold.

Each `Connection` has one `UnreadAnswers`.

Invariants
- What is in memory counts: of an answer that is partly written all of it until what was written is freed, and what the
  transport has taken without being rid of it. Else clients that read nothing hold several times the limit, since the
  socket alone takes megabytes of each answer.
- Between two turns of others it writes `STEP_BYTES` at most, which takes the system a few milliseconds.
- What was written of a large answer is freed with its last byte, or when the client lets the rest wait and that is the
  smaller half, and no more than `COPIED_BYTES_MAX`: then it is copied. So no answer is copied while its client reads,
  a slow client's once in all, and little is in memory twice.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from embedded_broker.wire.responses import Encoded

if TYPE_CHECKING:
    from embedded_broker.security.tls import TlsStream

CHUNK_BYTES, STEP_BYTES, COPIED_BYTES_MAX = 256 * 1024, 1024 * 1024, 2 * 1024 * 1024
KEEPS_VIEWS = sys.version_info >= (3, 12)
"""Whether a transport keeps the object that it is given, and with it what that is a part of, and not a copy."""
NOTHING = memoryview(b"")


class UnreadAnswers:
    """Of one connection."""

    __slots__ = ("_go", "_hold", "_in_transport_bytes", "_next_turn", "_parts", "_tls", "_transport", "_view",
                 "_written_bytes", "reserved_bytes", "rests", "unsent_bytes", "writable")  # fmt: skip

    def __init__(
        self,
        tls: TlsStream | None,
        hold: Callable[[int, int], None],
        go: asyncio.Event,
        next_turn: Callable[[], Awaitable[None]],
    ) -> None:
        """
        Args:
            tls: encrypts, if there is one.
            hold: is called with the bytes that are held now, and how many of them the transport has just taken.
            go: is set when there are fewer.
            next_turn: lets others go on, see `runtime.fair_share`.
        """
        self._tls, self._hold, self._go, self._next_turn = tls, hold, go, next_turn
        self._transport: asyncio.Transport
        self.unsent_bytes = 0
        """Not yet given to the transport."""
        self.reserved_bytes = 0
        """For the answer to the request being handled."""
        self._parts: list[bytes] = []  # what is left of the answer being written, the last first
        self._view = NOTHING  # of that
        self._written_bytes = 0  # of that
        self._in_transport_bytes = 0
        self.rests = False
        """Whether others have their turn before it writes on; what was written isn't freed for that."""
        self.writable = asyncio.Event()
        """Whether the transport takes more."""
        self.writable.set()

    def begin(self, transport: asyncio.Transport) -> None:
        """Write to this transport."""
        self._transport = transport

    def account(self, change_bytes: int = 0, taken_bytes: int = 0) -> None:
        """Tell how much is held, with a change of the unsent bytes; `taken_bytes`: what of it was just written."""
        self.unsent_bytes += change_bytes
        held_bytes = self.unsent_bytes + self.reserved_bytes + self._written_bytes + self._in_transport_bytes
        self._hold(held_bytes, taken_bytes)

    def pause(self) -> None:
        """Write no more: the transport has more than it gets rid of."""
        self.writable.clear()
        self._in_transport_bytes = self._transport.get_write_buffer_size()
        self.account()

    def resume(self) -> None:
        """Write again: the transport takes more."""
        self._in_transport_bytes = 0
        self.account()
        self.writable.set()

    async def write(self, answer: Encoded, is_counted: bool) -> None:
        """Write in pieces, so that little is copied for the socket while the client doesn't read.

        Args:
            answer: whole; the caller keeps no reference to it.
            is_counted: whether it is among the unsent bytes.
        """
        self._parts = [answer] if isinstance(answer, bytes) else list(reversed(answer))
        del answer
        step_bytes = 0
        while self._parts:
            self._view, at = memoryview(self._parts.pop()), 0
            while at < len(self._view):
                if not self.writable.is_set():
                    at = self._free_written(at)
                    await self.writable.wait()
                    step_bytes = 0
                elif step_bytes >= STEP_BYTES:
                    self.rests = True
                    await self._next_turn()
                    self.rests, step_bytes = False, 0
                    self._go.set()
                    continue  # it may not be writable any more
                written_bytes = self._write_piece(at, is_counted)
                at, step_bytes = at + written_bytes, step_bytes + written_bytes
            self._view = NOTHING

    def _free_written(self, at: int) -> int:
        """Forget what comes before `at` if it is more than the rest; where the rest begins now."""
        if not 2 * at >= len(self._view) > CHUNK_BYTES or len(self._view) - at > COPIED_BYTES_MAX:
            return at
        self._view = memoryview(bytes(self._view[at:]))
        self._written_bytes = 0
        self.account()
        return 0

    def _write_piece(self, at: int, is_counted: bool) -> int:
        """Give a chunk to the transport; its size. Nothing refers to the part by it when this returns."""
        piece = self._view[at : at + CHUNK_BYTES]
        size = len(piece)
        if self._tls is not None:
            self._transport.write(self._tls.send(piece))
        else:
            self._transport.write(bytes(piece) if KEEPS_VIEWS and len(self._view) > CHUNK_BYTES else piece)
        if is_counted:
            is_last = at + size == len(self._view)
            self._written_bytes = 0 if is_last else self._written_bytes + size
            self.account(-size, 0 if is_last else size)
            self._go.set()
        return size

    def release(self) -> None:
        """Hold nothing any more: at once, and not only when whoever writes has been cancelled."""
        self._parts.clear()
        self._view = NOTHING
        self.unsent_bytes = self.reserved_bytes = self._written_bytes = self._in_transport_bytes = 0
        hold, self._hold = self._hold, _hold_no_more
        hold(0, 0)


def _hold_no_more(now_bytes: int, taken_bytes: int) -> None:
    """Do nothing, for a connection that has ended, which the other function would keep in a cycle."""
