"""DescribeTransactions: reads its response for one id. Pure. Used by `open_transactions`.

Written by hand, because kio refuses the start time -1 of an id without a transaction. Version 0, as
org.apache.kafka.common.message has it, behind the header:

    throttle i32 | states [error i16, id, state, timeout i32, start i64, producer id i64, epoch i16, topics [...]]

Strings and arrays are preceded by an unsigned varint of their length + 1; behind each structure stand tagged fields.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from replicator.model.transactions import ProducerState
from replicator.wire.compact import count, string
from replicator.wire.response_limits import BadResponse

_INT16, _NUMBERS = Struct(">h"), Struct(">iqqh")  # timeout, start, producer id, epoch


def read(data: bytes, at: int) -> tuple[int, ProducerState]:
    """The error of the first id, and what is known of it; `at`: behind the throttle time. Raises BadResponse."""
    try:
        described, at = count(data, at)
        if described != 1:
            raise BadResponse(f"a DescribeTransactionsResponse of {described} ids")
        (error,) = _INT16.unpack_from(data, at)
        _, at = string(data, at + _INT16.size)
        state, at = string(data, at)
        _, _, producer_id, epoch = _NUMBERS.unpack_from(data, at)
    except (IndexError, StructError, UnicodeDecodeError) as wrong:
        raise BadResponse(f"no DescribeTransactionsResponse: {type(wrong).__name__}: {wrong}") from wrong
    return error, ProducerState(state, producer_id, epoch)
