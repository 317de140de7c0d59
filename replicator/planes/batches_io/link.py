"""One connection to one broker that blocks nobody: requests go out one behind the other, answers come in their order.

Connecting, TLS and login block, and so does looking up a host's name: they are done by `wire.connection` in a thread of
their own, which hands the socket over. From then on all is done by the thread that owns the lane. Used by `loop`.

Invariant: each request has exactly one end: `answered`, or `lost` when the connection ends, is closed, or its time is
up. After the first one that is lost, nothing more of the connection counts.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple

from replicator.model.errors import ReplicatorError, Unreachable, Unsupported
from replicator.wire import protocol
from replicator.wire.connection import Address, ConnectionLost, HandedOver
from replicator.wire.response_limits import BadResponse

Pieces = Sequence[bytes | bytearray | memoryview]
WriteBatches = Callable[["BrokerLink", int], Pieces]
"""Writes a request, its size first, for a connection that is ready, whose versions it asks for, with this number."""
Answered = Callable[["BrokerLink", bytes | bytearray], None]
"""Takes a response, behind its correlation id. Raises BadResponse, which ends the connection, and nothing else: what it
means is noted, and acted upon by whoever turns the loop."""
Lost = Callable[[ReplicatorError], None]
_HEAD = Struct(">ii")
_READ_BYTES, _GROWN_BYTES = 64 * 1024, 1024 * 1024
_SENT_PIECES_MAX = 64
_AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class AnswerTooLarge(Unsupported):
    """A response is larger than is taken."""


class _Asked(NamedTuple):
    number: int
    until_s: float
    answered: Answered
    lost: Lost


class _Wanted(NamedTuple):
    write: WriteBatches
    until_s: float
    answered: Answered
    lost: Lost


class AnswerLate(ConnectionLost):
    """A request was given up because its answer took too long, and the connection with it."""


class BrokerLink:
    """A connection to the broker at `address`. `error` says why it ended; then another one has to be made."""

    def __init__(self, address: Address, where: str, response_bytes_max: int) -> None:
        """`where` names the broker in messages; larger responses than `response_bytes_max` end the connection."""
        self.address, self.where, self._response_bytes_max = address, where, response_bytes_max
        self.error: ReplicatorError | None = None
        self.features: Mapping[str, int] = {}
        self.quiet_until_s = 0.0  # the broker has asked for so much patience (KIP-219)
        self._socket: socket.socket | None = None
        self._tls = False
        self._offered: Mapping[int, tuple[int, int]] = {}
        self._expires_s = float("inf")
        self._number = 0
        self._wanted: deque[_Wanted] = deque()  # before it is ready
        self._asked: deque[_Asked] = deque()
        self._out: deque[memoryview] = deque()
        self._head = bytearray(_READ_BYTES)
        self._have = 0
        self._body: bytearray | None = None
        self._body_have = self._body_size = self._body_number = 0
        self._longest_bytes = 0  # of the answers so far
        self.ended_requests = 0  # answered ones

    @property
    def ready(self) -> bool:
        """Whether requests go out at once."""
        return self._socket is not None and self.error is None

    @property
    def waiting(self) -> int:
        """How many requests have no end yet."""
        return len(self._asked) + len(self._wanted)

    @property
    def socket(self) -> socket.socket | None:
        """The socket, once it is connected."""
        return self._socket

    @property
    def sends(self) -> bool:
        """Whether bytes wait until the socket takes them."""
        return bool(self._out)

    def expired(self, now_s: float) -> bool:
        """Tell whether the login should be renewed, which another connection does (KIP-368): nothing more is asked here
        then, and once all is answered, the next one is made."""
        return now_s >= self._expires_s

    @property
    def until_s(self) -> float:
        """When the first of its requests is given up."""
        first = self._asked[0].until_s if self._asked else float("inf")
        return min(first, self._wanted[0].until_s if self._wanted else float("inf"))

    def version(self, api: str, highest: int | None = None) -> int:
        """Return the version of `api` that both sides speak, `highest` at most. Raises Unsupported."""
        return protocol.common_version(api, self._offered, self.where, highest)

    def connected(self, given: HandedOver) -> None:
        """Take the socket, and send what has waited for it. An error ends the link, and is told as of each request."""
        given.socket.setblocking(False)
        self._socket, self._tls = given.socket, isinstance(given.socket, ssl.SSLSocket)
        self._offered, self.features, self._number = given.offered, given.features, given.requests
        self._expires_s = given.expires_s
        while self._wanted and self.error is None:
            wanted = self._wanted.popleft()
            self._ask(wanted)
        self.send()

    def ask(self, write: WriteBatches, answered: Answered, lost: Lost, until_s: float) -> None:
        """Send a request, now or as soon as the connection is ready.

        `until_s`: without an answer by then, monotonic, the connection ends. `lost` may be called before this returns.
        """
        wanted = _Wanted(write, until_s, answered, lost)
        if self.error is not None:
            lost(self.error)
        elif self._socket is None:
            self._wanted.append(wanted)
        else:
            self._ask(wanted)
            self.send()

    def _ask(self, wanted: _Wanted) -> None:
        self._number += 1
        try:
            pieces = wanted.write(self, self._number)
        except Unsupported as error:
            self.lose(error)
            wanted.lost(error)
            return
        self._asked.append(_Asked(self._number, wanted.until_s, wanted.answered, wanted.lost))
        self._out.extend(memoryview(piece) for piece in pieces if len(piece))

    def send(self) -> None:
        """Send what the socket takes."""
        if self._socket is None or self.error is not None:
            return
        try:
            while self._out:
                if self._tls:
                    sent = self._socket.send(self._out[0])
                else:
                    sent = self._socket.sendmsg(list(islice(self._out, _SENT_PIECES_MAX)))
                while sent:
                    first = self._out[0]
                    if len(first) > sent:
                        self._out[0] = first[sent:]
                        break
                    sent -= len(self._out.popleft())
        except _AGAIN:
            return
        except OSError as error:
            self.lose(self._lost(f"cannot send: {_text(error)}"))

    def receive(self) -> None:
        """Take what has come, and have complete answers taken."""
        try:
            while self.error is None:
                if self._body is None:
                    got = self._receive_into(memoryview(self._head)[self._have :])
                    self._have += got
                    self._cut()
                else:
                    self._receive_body()
        except _AGAIN:
            return
        except OSError as error:
            self.lose(self._lost(_text(error)))
        except Unsupported as error:
            self.lose(error)
        except BadResponse as error:
            self.lose(Unreachable(f"{self.where}: answers with {error}"))

    def _receive_into(self, view: memoryview) -> int:
        assert self._socket is not None
        got = self._socket.recv_into(view)
        if not got:
            raise ConnectionResetError("the broker closed the connection")
        return got

    def _receive_body(self) -> None:
        """Go on with a long response. Its memory grows with what has come, now or before, not with what it claims."""
        body = self._body
        assert body is not None
        if self._body_have == len(body):
            wanted = max(len(body) + max(len(body), _GROWN_BYTES), self._longest_bytes)
            grown = bytearray(min(wanted, self._body_size))
            grown[: len(body)] = body
            self._body = body = grown
        view = memoryview(body)[self._body_have :]
        try:
            self._body_have += self._receive_into(view)
        finally:
            view.release()
        if self._body_have == self._body_size:
            number, self._body = self._body_number, None
            self._longest_bytes = max(self._longest_bytes, self._body_size)
            self._answer(number, body)

    def _cut(self) -> None:
        """Take the responses that are complete, and begin with one that is longer than what is read at a time."""
        at = 0
        while self.error is None and self._have - at >= _HEAD.size:
            size, number = _HEAD.unpack_from(self._head, at)
            if size < 4:
                raise BadResponse(f"a frame of {size} bytes")
            if size > self._response_bytes_max:
                raise AnswerTooLarge(
                    f"{self.where}: answers with {size} bytes; limits.record_bytes_max allows "
                    f"{self._response_bytes_max}"
                )
            begin, end = at + _HEAD.size, at + 4 + size
            if end <= self._have:
                body = bytes(self._head[begin:end])
                at = end
                self._answer(number, body)
            elif end - at > _READ_BYTES:
                self._body = bytearray(self._head[begin : self._have])
                self._body_number, self._body_size, self._body_have = number, size - 4, self._have - begin
                at = self._have
                break
            else:
                break
        self._head[: self._have - at] = self._head[at : self._have]
        self._have -= at

    def _answer(self, number: int, body: bytes | bytearray) -> None:
        if not self._asked or self._asked[0].number != number:
            raise BadResponse(f"an answer to request {number}, which isn't the next one")
        asked = self._asked[0]
        asked.answered(self, body)
        if self.error is None:
            self._asked.popleft()
            self.ended_requests += 1

    def throttle(self, throttled_s: float, now_s: float) -> None:
        """Note that the broker wants quiet for so long; what has been asked is given that time besides."""
        if throttled_s > 0:
            self.quiet_until_s = max(self.quiet_until_s, now_s + throttled_s)
            self._asked = deque(each._replace(until_s=each.until_s + throttled_s) for each in self._asked)

    def lose(self, error: ReplicatorError) -> None:
        """End the connection: all that was asked is lost."""
        if self.error is not None:
            return
        self.error = error
        if self._socket is not None:
            self._socket.close()
        self._out.clear()
        ended: list[Lost] = [each.lost for each in self._asked] + [each.lost for each in self._wanted]
        self._asked, self._wanted = deque(), deque()
        for lost in ended:
            lost(error)

    def _lost(self, why: str) -> ConnectionLost:
        return ConnectionLost(f"{self.where}: {why}")

    def late(self) -> None:
        """Take note that the time of a request is up."""
        self.lose(AnswerLate(f"{self.where}: no answer in time"))


def framed(request: bytes, number: int) -> Pieces:
    """Return a request as `Connection.send` takes it, with its size and its number."""
    return (len(request).to_bytes(4, "big"), request[:4], number.to_bytes(4, "big"), request[8:])


def _text(error: OSError) -> str:
    return str(error) or type(error).__name__
