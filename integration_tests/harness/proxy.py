"""A TCP proxy that understands Kafka's framing and loses exactly the message that a test names.

It stands in front of one broker. Clients stay behind it, because addresses in Metadata, FindCoordinator and
DescribeCluster replies become the proxy's own. Rules are added while it runs:

    lost = proxy.rule("EndTxn", Side.REPLY, Action.DROP)
    ...
    lost.wait_hit()

The proxy runs in a thread with an event loop of its own; its methods are for other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any, NamedTuple

from integration_tests.harness import addresses, frames

HIT_S_MAX = 90.0
LINE_PIECE_BYTES = 4_096  # what connections take turns with on a slow line
FRAME_BYTES_MAX = 256 * 1024 * 1024


class Side(Enum):
    """Which way a message goes."""

    REQUEST = auto()
    REPLY = auto()


class Action(Enum):
    """What happens to a message that a rule names."""

    DROP = auto()  # it is swallowed, the connection stays
    CUT = auto()  # it is swallowed, the connection is reset on both sides
    DELAY = auto()  # it and all behind it on the connection wait for `delay_s`
    HOLD = auto()  # it and all behind it wait for `Rule.release`


@dataclass(slots=True)
class Rule:
    """The `nth` message (from the moment the rule was added) of one API, and the `times - 1` after it."""

    api: int
    side: Side
    action: Action
    nth: int = 1
    times: int = 1
    delay_s: float = 0.0
    client: str = ""
    _seen: int = 0
    _hit: threading.Event = field(default_factory=threading.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    def wait_hit(self, timeout_s: float = HIT_S_MAX) -> None:
        """Return once a message was caught. Raises AssertionError when none is in time."""
        assert self._hit.wait(timeout_s), f"no {frames.api_name(self.api)} {self.side.name} within {timeout_s} s"

    @property
    def hit(self) -> bool:
        """Whether a message was caught."""
        return self._hit.is_set()

    def release(self) -> None:
        """Let the held message go on its way."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._released.set)

    def _catches(self, side: Side, request: frames.Request) -> bool:
        if side is not self.side or request.api != self.api or self.client not in request.client:
            return False
        self._seen += 1
        caught = self.nth <= self._seen < self.nth + self.times
        if caught:
            self._hit.set()
        return caught


class _Pair(NamedTuple):
    """The two connections that the proxy stands between."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter

    def abort(self) -> None:
        """Reset both: what is still buffered is lost."""
        self.client.transport.abort()
        self.broker.transport.abort()


class Proxy:
    """Stands in front of `upstream` (HOST:PORT) while it is entered; clients use `bootstrap`."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = host, int(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._lock = threading.Lock()  # guards _rules and _counts: tests add, the loop reads
        self._rules: list[Rule] = []
        self._counts: Counter[tuple[int, Side]] = Counter()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._accepted_count = 0
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._line_bytes_per_s: dict[Side, float | None] = dict.fromkeys(Side)
        self._line_free_s = dict.fromkeys(Side, 0.0)  # until when the slow line is taken, by the loop's clock
        self._reply_bytes_max = FRAME_BYTES_MAX

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self._port}"

    def rule(
        self,
        api: str,
        side: Side,
        action: Action,
        *,
        nth: int = 1,
        times: int = 1,
        delay_s: float = 0.0,
        client: str = "",
    ) -> Rule:
        """Add a rule: `api` by its name in Kafka's protocol, only clients whose client.id contains `client`."""
        made = Rule(frames.api_key(api), side, action, nth, times, delay_s, client, _loop=self._loop)
        with self._lock:
            self._rules.append(made)
        return made

    def clear(self) -> None:
        """Forget all rules; held messages are released."""
        with self._lock:
            gone, self._rules = self._rules, []
        for rule in gone:
            rule.release()

    def count(self, api: str, side: Side = Side.REQUEST) -> int:
        """How many messages of an API have come by."""
        with self._lock:
            return self._counts[frames.api_key(api), side]

    def asked(self) -> Counter[tuple[str, str]]:
        """How many requests have come by, by client.id and the name of the API."""
        with self._lock:
            return self._asked.copy()

    def accepted(self) -> int:
        """How many connections clients have made, also those that were ended at once because the broker is down."""
        with self._lock:
            return self._accepted_count

    def slow_down(self, bytes_per_s: float | None, side: Side = Side.REQUEST) -> None:
        """All requests together, or all replies, pass at this rate from now on; None: as fast as they come. Connections
        take turns, as on a line that they share; what is on its way already keeps the rate that it began with."""
        self._line_bytes_per_s[side] = bytes_per_s

    def break_at(self, reply_bytes: int) -> None:
        """Reset each connection whose next reply is larger than that."""
        self._reply_bytes_max = reply_bytes

    def cut_all(self) -> None:
        """Reset all connections that are open now."""
        self._call(self._cut_all())

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut_all(self) -> None:
        for pair in self._pairs:
            pair.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._lock:
            self._accepted_count += 1
        try:
            from_broker, to_broker = await asyncio.open_connection(*self._upstream)
        except OSError:  # the broker is down: so is the proxy, as far as this client can tell
            writer.transport.abort()
            return
        pair, waiting = _Pair(writer, to_broker), dict[int, frames.Request]()
        self._pairs.add(pair)
        pumps = [
            asyncio.ensure_future(self._requests(reader, pair, waiting)),
            asyncio.ensure_future(self._replies(from_broker, pair, waiting)),
        ]
        self._tasks.update(pumps)
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pair.abort()
            for pump in pumps:
                pump.cancel()
            results = await asyncio.gather(*pumps, return_exceptions=True)
            self._tasks.difference_update(pumps)
            self._pairs.discard(pair)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _requests(self, reader: asyncio.StreamReader, pair: _Pair, waiting: dict[int, frames.Request]) -> None:
        while (frame := await _frame(reader)) is not None:
            request = frames.request(frame)
            waiting[request.correlation] = request
            with self._lock:
                self._asked[request.client, frames.api_name(request.api)] += 1
            if await self._passes(Side.REQUEST, request, pair):
                await self._take_line(Side.REQUEST, len(frame))
                await _send(pair.broker, frame)

    async def _take_line(self, side: Side, size: int) -> None:
        """Wait until so many bytes have passed the slow line, if it is one."""
        rate, loop = self._line_bytes_per_s[side], asyncio.get_running_loop()
        for begin in range(0, size if rate is not None else 0, LINE_PIECE_BYTES):
            assert rate is not None
            piece = min(LINE_PIECE_BYTES, size - begin)
            self._line_free_s[side] = max(loop.time(), self._line_free_s[side]) + piece / rate
            await asyncio.sleep(self._line_free_s[side] - loop.time())

    async def _replies(self, reader: asyncio.StreamReader, pair: _Pair, waiting: dict[int, frames.Request]) -> None:
        while (frame := await _frame(reader)) is not None:
            request = waiting.pop(frames.correlation(frame))
            if len(frame) > self._reply_bytes_max:
                pair.abort()
            if await self._passes(Side.REPLY, request, pair):
                await self._take_line(Side.REPLY, len(frame))
                await _send(pair.client, addresses.rewrite(request, frame, "127.0.0.1", self._port))

    async def _passes(self, side: Side, request: frames.Request, pair: _Pair) -> bool:
        """Apply the first rule that catches the message; whether it goes on."""
        with self._lock:
            self._counts[request.api, side] += 1
            rule = next((rule for rule in self._rules if rule._catches(side, request)), None)
        if rule is None:
            return True
        if rule.action is Action.DELAY:
            await asyncio.sleep(rule.delay_s)
        elif rule.action is Action.HOLD:
            await rule._released.wait()
        elif rule.action is Action.CUT:
            pair.abort()
        return rule.action in (Action.DELAY, Action.HOLD)


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame without its length; None at the end of the connection, however it ended."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        size = int.from_bytes(await reader.readexactly(4), "big")
        if 0 < size <= FRAME_BYTES_MAX:
            return await reader.readexactly(size)
    return None


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    """Write a frame; a connection that is gone is noticed by its reader."""
    with contextlib.suppress(ConnectionError):
        writer.write(len(frame).to_bytes(4, "big") + frame)
        await writer.drain()
