"""Requests from frames, and frames from answers: small ones on the event loop, others in a thread, one at a time.

An item of an array is decoded in a few microseconds, and so is one of an answer encoded; a request may have 22,000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from embedded_broker.api import repeated
from embedded_broker.runtime.workers import OneByOne, Threads, Workers
from embedded_broker.storage.memory import give_back
from embedded_broker.wire import schema
from embedded_broker.wire.framing import read_header
from embedded_broker.wire.request_limits import ITEMS_MAX, TooManyItems, check_request
from embedded_broker.wire.responses import Encoded, Same, size_of
from embedded_broker.wire.schema import Frame

T = TypeVar("T")
THREAD = "coding"
GIVE_BACK_BYTES = 16 * 1024 * 1024
"""After so much work memory is given back: others can't allocate any meanwhile, and most work is small."""
ITEM_BYTES = 2_000
"""What an item of an array costs beside its bytes, once it is decoded, with its part of the answer."""
ENCODED_FACTOR = 100
"""An answer is made of so many times the bytes that it has when it is encoded, if it has many items."""
PIECE_BYTES_MIN, PIECE_BYTES_MAX = 64 * 1024, 512 * 1024
"""Of a large response. What is shorter is put together; what is as long or longer is not copied."""


class Decoded(NamedTuple):
    """A request from its frame."""

    client_id: str
    request: Any
    items: int
    """Of all its arrays."""


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
        self.gives_back = True
        """Whether the system gets back what large work has left of memory. Simulated brokers do nothing else."""
        self._used_bytes = 0  # of memory since some was given back; of the thread
        self._same: dict[Same, list[bytes]] = {}
        """Encoded without their headers."""

    async def decode(self, name: str, version: int, frame: Frame) -> Decoded:
        """Decode the request of API `name` (snake case) in a frame, without names that it repeats.

        Raises BadRequest, kio's SerialError, ValueError, struct.error, EOFError, OverflowError: it isn't one.
        """
        try:
            return _decoded(name, version, frame, self._items_at_once_max)
        except TooManyItems:
            return await self._beside(
                partial(_decoded, name, version, frame, ITEMS_MAX),
                lambda decoded: len(frame) + decoded.items * ITEM_BYTES,
            )

    async def encode(self, codec: Any, correlation_id: int, answer: Mapping[str, Any]) -> Encoded:
        """Encode a whole response frame, by the codec of `wire.schema`. Nothing may change `answer` meanwhile."""
        if type(answer) is Same:
            if answer not in self._same:
                self._same[answer] = [b"".join(_body(codec, answer))]
            return _frame(codec, correlation_id, self._same[answer])
        if _items_left(answer, self._items_at_once_max) >= 0:
            return encode(codec, correlation_id, answer)
        return await self._beside(
            partial(_encode_large, codec, correlation_id, answer), lambda encoded: size_of(encoded) * ENCODED_FACTOR
        )

    async def give_back(self) -> None:
        """Let the system have memory that is free again."""
        await self._thread.run(give_back)

    def give_back_now(self) -> None:
        """Give back as `give_back` does, at once: what is used next would else not fit into what is free, and be as
        much again."""
        if self.gives_back:
            give_back()

    async def _beside(self, work: Callable[[], T], uses_bytes: Callable[[T], int]) -> T:
        return await self._thread.run(partial(self._large, work, uses_bytes) if self.gives_back else work)

    def _large(self, work: Callable[[], T], uses_bytes: Callable[[T], int]) -> T:
        more_bytes = GIVE_BACK_BYTES  # of work that fails
        try:
            done = work()
            more_bytes = uses_bytes(done)
            return done
        finally:
            self._used_bytes += more_bytes
            if self._used_bytes >= GIVE_BACK_BYTES:
                self._used_bytes = 0
                give_back()

    def stop(self) -> None:
        """End the thread."""
        self._thread.stop()


def _decoded(name: str, version: int, frame: Frame, items_max: int) -> Decoded:
    client_id, at = read_header(frame, schema.request_header_version(name, version) == 2)
    records: list[memoryview | None] | None = [] if isinstance(frame, bytearray) else None
    frame, items = check_request(name, version, frame, at, items_max, records)
    # The codec reads nothing that could be changed; there are requests without any records, too.
    source = memoryview(frame).toreadonly() if isinstance(frame, bytearray) else frame
    request = schema.load(name, version).read(source, at)
    if records:
        request = _with_records(request, iter(records))
    return Decoded(client_id, repeated.merged(name, request), items)


def _with_records(request: Any, records: Iterator[memoryview | None]) -> Any:
    """Return a Produce request with the records that were taken out of it before it was decoded: the codec would copy
    them.
    """
    topics = (
        replace(topic, partition_data=tuple(replace(each, records=next(records)) for each in topic.partition_data))
        for topic in request.topic_data
    )
    return replace(request, topic_data=tuple(topics))


def _items_left(fields: Mapping[str, Any], left: int) -> int:
    """Return `left` minus the items of all arrays in `fields`; below 0 as soon as there are more. Types are compared,
    since every answer is looked at."""
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
    """Takes what is written as it is."""

    def __init__(self) -> None:
        self.all: list[bytes] = []
        self.write = self.all.append


class _LargePieces:
    """Puts together what is short: a hundred thousand fields would be as many objects."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._short = bytearray()

    def write(self, data: bytes) -> None:
        """See io.BytesIO."""
        if len(data) >= PIECE_BYTES_MIN:
            self._put_together()
            self._pieces.append(data)
            return
        self._short += data
        if len(self._short) >= PIECE_BYTES_MAX:
            self._put_together()

    def _put_together(self) -> None:
        if self._short:
            self._pieces.append(bytes(self._short))
            self._short.clear()

    @property
    def all(self) -> list[bytes]:
        """What was written."""
        self._put_together()
        return self._pieces


def encode(codec: Any, correlation_id: int, answer: Mapping[str, Any]) -> Encoded:
    """Encode a whole response frame."""
    return _frame(codec, correlation_id, _body(codec, answer))


def _encode_large(codec: Any, correlation_id: int, answer: Mapping[str, Any]) -> Encoded:
    """Encode as `encode` does, of a large answer."""
    out = _LargePieces()
    codec.write(out, codec.build(answer))
    return _frame(codec, correlation_id, out.all)


def _body(codec: Any, answer: Mapping[str, Any]) -> list[bytes]:
    out = _Pieces()
    codec.write(out, codec.build(answer))
    return out.all


def _frame(codec: Any, correlation_id: int, body: list[bytes]) -> Encoded:
    header = codec.write_header(correlation_id)
    size = len(header) + sum(map(len, body))
    first = size.to_bytes(4, "big") + header
    if size < PIECE_BYTES_MAX:
        return b"".join((first, *body))
    pieces, short = list[bytes](), [first]
    for each in body:
        if len(each) < PIECE_BYTES_MIN:
            short.append(each)
            continue
        pieces += (b"".join(short), each) if short else (each,)
        short = []
    return (*pieces, b"".join(short)) if short else tuple(pieces)
