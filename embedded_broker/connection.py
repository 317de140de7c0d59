"""One client connection: frames in, requests in their order, answers in their order.

Invariants
- A request is taken when its predecessor's handler has returned, so what a connection pipelines is appended in order.
  A handler that returns `Later` lets the next request begin while its fsync is under way.
- Answers leave in the order of the requests.
- At most `requests_pending_max` requests are held; then the socket is not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from embedded_broker.wire.framing import BadFrame, Framer

if TYPE_CHECKING:
    from embedded_broker.server import Server


class Connection(asyncio.Protocol):
    """See the module. `client_id` is that of the request under way."""

    def __init__(self, server: Server) -> None:
        self._server = server
        config = server.broker.config
        self._framer = Framer(config.frame_bytes_max)
        self._pending_max, self._deadline_s = config.requests_pending_max, config.frame_deadline_ms / 1000
        self._transport: asyncio.Transport
        self._frames: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._answers: asyncio.Queue[Awaitable[bytes | None] | bytes | None] = asyncio.Queue(self._pending_max)
        self._writable = asyncio.Event()
        self._writable.set()
        self._deadline: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._later: set[asyncio.Task[bytes | None]] = set()
        self._paused = False
        self._held_bytes = 0
        self.client_id = ""
        self.client_host = ""
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        peer = self._transport.get_extra_info("peername")
        self.client_host = peer[0] if peer else ""
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._tasks = [
            asyncio.create_task(self._handle_all(), name=f"handle {peer}"),
            asyncio.create_task(self._answer_all(), name=f"answer {peer}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_done)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.closed:
            return
        before = len(self._frames)
        try:
            self._frames.extend(self._framer.feed(data))
        except BadFrame as error:
            self.refuse(str(error))
            return
        self._arrived.set()
        self._account()
        self._watch_frame(begun=len(self._frames) > before)
        if len(self._frames) >= self._pending_max:
            self._pause()

    def _watch_frame(self, begun: bool) -> None:
        """A deadline runs while a frame is incomplete; `begun`: it is another frame than before."""
        incomplete = self._framer.partial_bytes > 0
        if self._deadline is not None and (begun or not incomplete):
            self._deadline.cancel()
            self._deadline = None
        if incomplete and self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._deadline_s, self.refuse, "a frame took too long")

    def _account(self) -> None:
        """Tell the server how many bytes this connection holds."""
        held = self._framer.partial_bytes + sum(map(len, self._frames))
        self._server.held(self, held - self._held_bytes)
        self._held_bytes = held

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def pause(self) -> None:
        """Read no more until `resume`: the server holds too much."""
        if not self.closed:
            self._pause()

    def resume(self) -> None:
        """Read again, unless too many requests are pending here."""
        if self._paused and not self.closed and len(self._frames) < self._pending_max:
            self._paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable.set()

    async def _handle_all(self) -> None:
        while True:
            while not self._frames:
                self._arrived.clear()
                await self._arrived.wait()
            frame = self._frames.popleft()
            self._account()
            if self._paused and not self._server.full:
                self.resume()
            answer = await self._server.dispatch(self, frame)
            if isinstance(answer, asyncio.Task):
                self._later.add(answer)
                answer.add_done_callback(self._later.discard)
            await self._answers.put(answer)

    async def _answer_all(self) -> None:
        while True:
            answer = await self._answers.get()
            data = answer if isinstance(answer, bytes) or answer is None else await answer
            if data is not None:
                await self._writable.wait()
                self._transport.write(data)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self.closed:
            self._server.connection_failed(self, error)

    def refuse(self, reason: str) -> None:
        """Close at once; the client broke the protocol."""
        if not self.closed:
            self._server.log(f"{self.client_host}: {reason}; connection closed")
            self._transport.abort()

    def close(self) -> None:
        """Close; answers not yet written are lost."""
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol. Whatever waits for this client ends; durable steps go on (`Background.finish`)."""
        self.closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        for task in (*self._tasks, *self._later):
            task.cancel()
        self._frames.clear()
        self._framer = Framer(8)
        self._account()
        self._server.gone(self)
