"""Requests from frames, and frames from answers: small ones on the event loop, others in a thread, one at a time.

An item of an array is decoded in a few microseconds, and so is one of an answer encoded; a request may have 22,000.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from embedded_broker.storage.memory import give_back
from embedded_broker.storage.workers import OneByOne, Threads, Workers
from embedded_broker.wire.framing import read_header
from embedded_broker.wire.responses import Same

T = TypeVar("T")
THREAD = "coding"


class Coding:
    """Decodes requests and encodes answers; the broker has one."""

    def __init__(self, items_at_once_max: int, workers: Callable[[int, str], Workers] = Threads) -> None:
        """
        Args:
            items_at_once_max: items of arrays, over all arrays of a request or an answer, that the event loop codes.
            workers: makes a pool of threads, given their number and a name.
        """
        self._items_at_once_max = items_at_once_max
        self._thread = OneByOne(workers, THREAD)
        self._same: dict[Same, list[bytes]] = {}
        """Encoded without their headers."""

    async def decode(self, name: str, version: int, frame: bytes) -> tuple[str, Any]:
        """(client id, request) of the frame of a request of API `name` (snake case), without names that it repeats.

        Raises BadRequest, kio's SerialError, ValueError, struct.error, EOFError, OverflowError: it isn't one.
        """
        from embedded_broker.wire.request_limits import ITEMS_MAX, TooManyItems

        try:
            return _decoded(name, version, frame, self._items_at_once_max)
        except TooManyItems:
            return await self._beside(partial(_decoded, name, version, frame, ITEMS_MAX))

    async def encode(self, codec: Any, correlation_id: int, answer: Mapping[str, Any]) -> bytes:
        """A whole response frame, by the codec of `wire.schema`. Nothing may change `answer` meanwhile."""
        if type(answer) is Same:
            if answer not in self._same:
                self._same[answer] = [b"".join(_body(codec, answer))]
            return _frame(codec, correlation_id, self._same[answer])
        if _items_left(answer, self._items_at_once_max) >= 0:
            return encode(codec, correlation_id, answer)
        return await self._beside(partial(encode, codec, correlation_id, answer))

    async def _beside(self, work: Callable[[], T]) -> T:
        return await self._thread.run(partial(_large, work))

    def stop(self) -> None:
        """End the thread."""
        self._thread.stop()


def _large(work: Callable[[], T]) -> T:
    try:
        return work()
    finally:
        give_back()  # of this and of what came before


def _decoded(name: str, version: int, frame: bytes, items_max: int) -> tuple[str, Any]:
    from embedded_broker.api import repeated
    from embedded_broker.wire import request_limits, schema

    client_id, at = read_header(frame, schema.request_header_version(name, version) == 2)
    frame = request_limits.check_request(name, version, frame, at, items_max)
    return client_id, repeated.merged(name, schema.load(name, version).read(frame, at))


def _items_left(fields: Mapping[str, Any], left: int) -> int:
    """`left` minus the items of all arrays in `fields`; below 0 as soon as there are more. Types are compared, since
    every answer is looked at."""
    for each in fields.values():
        if type(each) is list or type(each) is tuple:
            left -= len(each)
            if left < 0:
                return left
            for item in each:
                if type(item) is dict:
                    left = _items_left(item, left)
        elif type(each) is dict:
            left = _items_left(each, left)
    return left


class _Pieces:
    """Takes what is written as it is: a megabyte of records is copied once, into the frame."""

    def __init__(self) -> None:
        self.all: list[bytes] = []
        self.write = self.all.append


def encode(codec: Any, correlation_id: int, answer: Mapping[str, Any]) -> bytes:
    """A whole response frame."""
    return _frame(codec, correlation_id, _body(codec, answer))


def _body(codec: Any, answer: Mapping[str, Any]) -> list[bytes]:
    out = _Pieces()
    codec.write(out, codec.build(answer))
    return out.all


def _frame(codec: Any, correlation_id: int, body: list[bytes]) -> bytes:
    header = codec.write_header(correlation_id)
    size = len(header) + sum(map(len, body))
    return b"".join((size.to_bytes(4, "big"), header, *body))
