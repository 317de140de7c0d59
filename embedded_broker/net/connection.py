"""One client connection: decodes frames, dispatches requests in order and writes responses in order.

`Server` creates one for every accepted socket.

Invariants
- A request is taken when its predecessor's handler has returned, so what a connection pipelines is appended in order.
  After a handler that returns `Later`, the next request is handled during the fsync.
- Answers leave in the order of the requests.
- At most `requests_pending_max` requests are held; then the socket is not read. No request is taken while answers of
  `ConnectionHost.unsent_bytes_max` wait for the client to read, or any at all while those of all clients are over their
  limit.
- Until the client has logged in, its frames are small, its requests few, and it must be done within a deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable
from typing import Any, cast

from embedded_broker.config.listeners import Endpoint
from embedded_broker.net.coding import ITEM_BYTES
from embedded_broker.net.deadline import Deadline
from embedded_broker.net.host import ConnectionHost
from embedded_broker.net.login_phase import LoginPhase
from embedded_broker.net.unread_answers import CHUNK_BYTES, UnreadAnswers
from embedded_broker.runtime.fair_share import Share
from embedded_broker.security.session import ClientSession
from embedded_broker.wire.framing import PREFIX, PRODUCE, BadFrame, Framer
from embedded_broker.wire.responses import Encoded, size_of
from embedded_broker.wire.schema import Frame

FRAMES_AT_ONCE_MAX = 256  # cut in one step: there may be 75,000 in one read
REQUESTS_IN_A_ROW_MAX = 8
"""Of one connection, before others have their turn: many handlers wait for nothing, so that a pipeline would be handled
in one step. As many as a producer has in flight share an fsync."""
REQUEST_BYTES = 200
"""What a request costs beside its bytes: thousands fit into one read."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection. `client_id` is that of the request being handled."""

    session: ClientSession

    def __init__(self, host: ConnectionHost[Connection], endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        """`context`: TLS is spoken here."""
        self._host, self._endpoint = host, endpoint
        config = host.config
        self._login = LoginPhase(config, context)
        self._framer = Framer(config.login_frame_bytes_max)
        self._framer.without_records = host.without_records
        self._deadline_s = config.frame_deadline_ms / 1000
        self._transport: asyncio.Transport
        self._frames: deque[Frame] = deque()
        self._frames_bytes = 0  # of `_frames`
        self._taken_bytes = 0  # of the request being handled
        self._go = asyncio.Event()  # something has changed that the next request may have waited for
        self._answers: asyncio.Queue[Awaitable[Encoded | None] | Encoded | None]
        self._unread = UnreadAnswers(
            self._login.tls,
            lambda now_bytes, taken_bytes: host.answers.held(self, now_bytes, taken_bytes),
            self._go,
            host.fair_share.next_turn,
        )
        self._frame_deadline = Deadline("a frame took too long")
        self._end_deadline = Deadline("by the client")
        self._tasks: list[asyncio.Task[None]] = []
        self._later: set[asyncio.Task[Encoded | None]] = set()
        self._paused = False
        self._taken_api = -1  # of the request being handled
        self._why_closed = ""
        self.active_s = asyncio.get_running_loop().time()
        """When something was last read or written."""
        self.closed = False

    @property
    def client_id(self) -> str:
        """The client id of the request being handled."""
        return self.session.client_id

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self.session.client_host

    @property
    def advertised(self) -> tuple[str, int]:
        """(host, port) that this client knows the broker by."""
        return self._endpoint.advertised

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self._unread.begin(self._transport)
        host, port = (self._transport.get_extra_info("peername") or ("", 0))[:2]
        self.session = ClientSession(self._endpoint, host, port, self._host.config.connections_reauth_ms_max)
        turn = self._host.admit(self)
        if turn.refusal and not turn.wait_s:
            self.closed = True
            self._transport.abort()
        elif turn.wait_s:
            # asyncio of Python 3.11.2 (Debian 12) begins to read after this call, whether it was told to pause or not.
            asyncio.get_running_loop().call_soon(self.pause)
            self._login.await_turn(turn.wait_s, lambda _: self.refuse(turn.refusal) if turn.refusal else self._begin())
        else:
            self._begin()

    def _begin(self) -> None:
        """Begin, since it is this connection's turn."""
        self._login.begin(self.session, self.refuse)
        self._set_limits()
        self.resume()

    def _set_limits(self) -> None:
        """Set limits, small ones until it is known who is there."""
        self._framer.bytes_max = self._login.frame_bytes_max
        if self._login.is_over:
            self._host.known(self)

    def _begin_handling(self) -> None:
        """Begin to handle requests with the first one: whoever sends none has cost little."""
        self._answers = asyncio.Queue(self._host.config.requests_pending_max)
        self._tasks = [
            asyncio.create_task(self._handle_all(), name=f"handle {self.session}"),
            asyncio.create_task(self._answer_all(), name=f"answer {self.session}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_done)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol. All connections share one: it is read before anything else is."""
        return self._host.inbox

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self.data_received(self._host.inbox[:nbytes])

    def data_received(self, data: memoryview) -> None:
        """Take bytes from the socket, which are only there during this call."""
        if self.closed:
            return
        self.active_s = asyncio.get_running_loop().time()
        before = len(self._frames)
        try:
            plain = data if self._login.tls is None else self._login.decrypt(data, self._transport.write)
            if not self._login.is_over and self._login.is_done(self.refuse):
                self._set_limits()
            for frame in self._framer.feed(plain, FRAMES_AT_ONCE_MAX):
                self._frames.append(frame)
                self._frames_bytes += len(frame) + REQUEST_BYTES
            if len(self._frames) - before >= FRAMES_AT_ONCE_MAX and self._framer.holds_whole:
                self._pause()
                asyncio.get_running_loop().call_soon(self._cut_more)
        except BadFrame as error:
            self.refuse(str(error))
            return
        except (ssl.SSLError, ValueError) as error:
            self._transport.write(self._login.tls.take() if self._login.tls else b"")  # the alert
            self.refuse(f"TLS: {error}", flush=True)
            return
        if self._frames and not self._tasks:
            self._login.request_came()
            self._begin_handling()
        self._account()
        self._go.set()
        self._watch_frame(begun=len(self._frames) > before)
        if self._host.requests.full and self._host.requests.pauses(self):
            self._pause()
        if len(self._frames) >= self._login.requests_pending_max:
            self._pause()
            self._frame_deadline.cancel()  # it is not the client that keeps the rest of a frame waiting

    def _cut_more(self) -> None:
        """Go on with what was read before."""
        self.data_received(memoryview(b""))
        self.resume()

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol. The client sends no more; what it has sent is handled, as by Kafka's Selector.

        It may have been told nothing of it: produces with acks=0, and those behind which it left.
        """
        if self.closed or not self._is_at_work():
            return None
        self._end_deadline.begin(self._deadline_s, self.refuse)
        return True

    def _is_at_work(self) -> bool:
        """Return whether requests are left that the client may have sent without waiting for answers."""
        return self._taken_api == PRODUCE or bool(self._frames) or self._framer.holds_whole

    def expect_tokens(self) -> None:
        """Take tokens, which may be short, if the session says so, else requests: a login has begun or ended."""
        is_token = self.session.takes_tokens
        self._framer.bytes_min = 0 if is_token else PREFIX.size
        self._framer.bytes_max = self._host.config.login_frame_bytes_max if is_token else self._login.frame_bytes_max

    def _watch_frame(self, begun: bool) -> None:
        """Let a deadline run while a frame is incomplete; `begun`: it is another frame than before."""
        incomplete = self._framer.partial_bytes > 0
        if begun or not incomplete:
            self._frame_deadline.cancel()
        if incomplete:
            self._frame_deadline.begin(self._deadline_s, self.refuse)

    def _account(self) -> None:
        """Tell the host how many bytes this connection holds."""
        if self.closed:
            return
        self._host.requests.held(self, self._framer.partial_bytes + self._taken_bytes + self._frames_bytes)

    def share(self) -> Share:
        """See `ports.Client`."""
        return self._host.fair_share.request(self)

    def has_room(self, more_bytes: int) -> bool:
        """See `fair_share.Account`."""
        return self._host.answers.fits(self, more_bytes)

    async def reserve(self, more_bytes: int, whole: bool = False) -> None:
        """See `fair_share.Account`."""
        await self._host.answers.reserve(self, more_bytes, whole)

    def granted(self, more_bytes: int) -> None:
        """See `budget.Holder`."""
        self._unread.reserved_bytes += more_bytes
        self._unread.account()

    def decoded(self, items: int) -> None:
        """Note that the request being handled has become so many objects more than its bytes."""
        self._taken_bytes += items * ITEM_BYTES
        self._account()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def pause(self) -> None:
        """Read no more until `resume`: the server holds too much."""
        if not self.closed:
            self._pause()

    def resume(self) -> None:
        """Read again, unless too many requests are pending, here or of all."""
        if self.closed or self._login.awaits_turn or self._host.requests.pauses(self):
            return
        if self._paused and len(self._frames) < self._login.requests_pending_max:
            self._paused = False
            self._transport.resume_reading()
            self._watch_frame(begun=False)

    def look_again(self) -> None:
        """Note that all connections' answers are below their limit again."""
        self._go.set()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._unread.pause()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self.active_s = asyncio.get_running_loop().time()
        self._unread.resume()

    async def _handle_all(self) -> None:
        in_a_row = 0
        while True:
            # The frame isn't kept here: the next one may be long in coming.
            answer = await self._host.dispatch(self, await self._next_frame())
            self._taken_bytes = 0
            self._account()
            if self._paused:
                self.resume()
            size_bytes = size_of(answer) if isinstance(answer, bytes | tuple) else 0
            if size_bytes or self._unread.reserved_bytes:
                self._unread.reserved_bytes = 0  # what takes its place is known now
                self._unread.account(size_bytes)
            if isinstance(answer, asyncio.Task):
                self._later.add(answer)
                answer.add_done_callback(self._later.discard)
            await self._answers.put(answer)
            del answer  # it may be large, and the next request may be long in coming
            in_a_row = in_a_row + 1 if self._frames else 0
            if in_a_row == REQUESTS_IN_A_ROW_MAX:
                in_a_row = 0
                await asyncio.sleep(0)
            if not self._login.is_over and self._login.is_done(self.refuse):
                self._set_limits()
            if self.session.failure:
                await self._answers.join()
                self.refuse(f"login failed: {self.session.failure}", flush=True)
                return

    @property
    def _leaves_too_much(self) -> bool:
        """Whether its client must read before it gets further answers."""
        unsent_bytes = self._unread.unsent_bytes
        return bool(unsent_bytes) and unsent_bytes > self._host.unsent_bytes_max()

    async def _next_frame(self) -> Frame:
        """Wait for a request, and until its answer can be queued."""
        self._taken_api = -1
        unread = self._unread
        while not self._frames or unread.rests or self._leaves_too_much:
            if self._end_deadline.runs and not self._is_at_work():  # the client has closed its side
                await self._answers.join()
                self.refuse("by the client", flush=True)
            self._go.clear()
            await self._go.wait()
        frame = self._frames.popleft()
        self._taken_api = int.from_bytes(frame[:2], "big")
        self._taken_bytes = len(frame) + REQUEST_BYTES  # all together are as many as before
        self._frames_bytes -= self._taken_bytes
        if self._paused:
            self.resume()
        return frame

    async def _answer_all(self) -> None:
        while True:
            answer = await self._answers.get()
            if answer is not None:
                data = answer if isinstance(answer, bytes | tuple) else await answer
                at_once = isinstance(data, bytes) and len(data) <= CHUNK_BYTES and self._unread.writable.is_set()
                if data is not None and data is not answer and not at_once:
                    self._unread.account(size_of(data))
                is_counted = data is answer or not at_once
                writing = self._unread.write(data or (), is_counted)
                del answer, data  # they may be large, and the next ones may be long in coming
                await writing
            self._answers.task_done()

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self.closed:
            self._host.connection_failed(self, error)

    def refuse(self, reason: str, flush: bool = False) -> None:
        """Close because of what the client did; `flush`: send what is in the socket's buffer before."""
        if not self.closed:
            self._why_closed = self._why_closed or reason
            self._release()
            if flush:
                self._transport.close()
            else:
                self._transport.abort()

    def shed(self, what: str) -> None:
        """See `budget.Holder`."""
        self.refuse(what)

    def expire(self, now_s: float, idle_s: float) -> None:
        """Close it when nothing was read or written for `idle_s`."""
        if now_s - self.active_s > idle_s:
            self._why_closed = self._why_closed or "idle for too long"
            self._release()
            self._transport.abort()

    def close(self) -> None:
        """Close; answers not yet written are lost."""
        self._why_closed = self._why_closed or "the broker stops"
        self._transport.abort()

    def _release(self) -> None:
        """Hold nothing any more, and do nothing any more. Durable steps go on (`Background.finish`)."""
        self.closed = True
        self._login.cancel()
        self._frame_deadline.cancel()
        self._end_deadline.cancel()
        current = asyncio.current_task()
        for task in self._tasks:  # and not `_later`: what was appended must become visible
            if task is not current:
                task.cancel()
        self._frames.clear()
        self._frames_bytes = 0
        self._framer = Framer(8)
        self._host.requests.held(self, 0)
        while self._tasks and not self._answers.empty():
            self._answers.get_nowait()
        self._unread.release()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol. Whatever waits for this client ends."""
        if exc is not None and not self._why_closed:
            self._why_closed = f"{exc}"
        self._release()
        # Their tracebacks hold this connection, and would be a cycle of megabytes until a full collection of garbage.
        self._tasks.clear()
        self._host.gone(self, self._why_closed or "by the client")
