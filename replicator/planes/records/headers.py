"""A record's headers as confluent-kafka returns them, or the error that it raises. Called wherever they are read.

`message.headers()` is not to be called by itself. For a header key that isn't UTF-8 the library returns a value and
leaves an exception set. CPython finds that where a call is checked, and doesn't check those that it has specialised,
which it does once a line has run some times (3.11 and later): then the exception comes up at another place, or never,
and with it goes what the headers were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller

from replicator.planes.records.message import Record

headers_of: Callable[[Record], list[tuple[str, bytes | None]] | None] = methodcaller("headers")
"""Returns a message's headers; None if it has none. It calls by way of C, where every result is checked.

Raises SystemError or UnicodeDecodeError where the library can't return them.
"""


def headers_of_each(messages: Sequence[Record]) -> Iterator[list[tuple[str, bytes | None]] | None]:
    """Return what `headers_of` does of each message, for the price of the call alone. All are of one class.

    Raises as `headers_of`, in the place of the first message whose headers can't be returned.
    """
    return map(type(messages[0]).headers, messages)
