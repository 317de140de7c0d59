"""Records in which coordinators keep their state: transactions in `__transaction_state`, committed offsets in
`__consumer_offsets`. Pure. Used by `inspect.coupled_topics` and `transaction_log_tail`.

As TransactionLogKey, TransactionLogValue (version 0, and 1 with tagged fields: KIP-890) and OffsetCommitKey of Kafka
have them:

    key: version i16 | transactional id
    value: version i16 | producer id i64 | epoch i16 | timeout i32 | status i8 | topics [topic, partitions [i32]] |
    last update i64 | start i64
    key of an offset: version i16 (0, 1) | group | topic | partition i32
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from replicator.coupling.evidence import SeenTransaction
from replicator.coupling.source_transactions import LoggedState, LoggedTransaction
from replicator.wire.describe_transactions import partitions_by_topic
from replicator.wire.response_limits import BadResponse

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_HEAD = Struct(">hqhib")  # version, producer id, epoch, timeout, status
_TRANSACTION_KEY, _OFFSET_KEYS, _FLEXIBLE = 0, (0, 1), 1


def transaction_of(key: bytes | None, value: bytes | None) -> SeenTransaction | None:
    """Return the transaction that a record of `__transaction_state` tells of; None: it tells of something else, or that
    an id is forgotten. Raises BadResponse."""
    found = logged_of(key, value)
    if found is None:
        return None
    return SeenTransaction(found.transactional_id, found.producer_id, found.partitions, found.updated_ms)


def logged_of(key: bytes | None, value: bytes | None) -> LoggedTransaction | None:
    """Return all that a record says of a transaction; as `transaction_of`."""
    if key is None or value is None:
        return None
    try:
        if _INT16.unpack_from(key)[0] != _TRANSACTION_KEY:
            return None
        transactional_id, _ = _string(key, _INT16.size)
        version, producer_id, epoch, _, status = _HEAD.unpack_from(value)
        if version > _FLEXIBLE:
            raise BadResponse(f"a transaction of {transactional_id!r} in version {version}")
        read = partitions_by_topic if version == _FLEXIBLE else _partitions
        partitions, at = read(value, _HEAD.size)
        (updated_ms,) = _INT64.unpack_from(value, at)
        (start_ms,) = _INT64.unpack_from(value, at + _INT64.size)
        state = LoggedState(status)
    except (IndexError, StructError, UnicodeDecodeError, ValueError) as wrong:
        raise BadResponse(f"no record of a transaction: {type(wrong).__name__}: {wrong}") from wrong
    return LoggedTransaction(transactional_id, producer_id, epoch, state, partitions, start_ms, updated_ms)


def offset_of(key: bytes | None) -> tuple[str, str] | None:
    """Return group and topic of a committed offset in `__consumer_offsets`; None: the record tells of something else.
    Raises BadResponse.
    """
    if key is None:
        return None
    try:
        if _INT16.unpack_from(key)[0] not in _OFFSET_KEYS:
            return None
        group, at = _string(key, _INT16.size)
        topic, _ = _string(key, at)
    except (StructError, UnicodeDecodeError) as wrong:
        raise BadResponse(f"no key of an offset: {type(wrong).__name__}: {wrong}") from wrong
    return group, topic


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, at)
    begin, end = at + _INT16.size, at + _INT16.size + max(0, length)
    if end > len(data):
        raise BadResponse("a string ends behind its record")
    return data[begin:end].decode(), end


def _partitions(data: bytes, at: int) -> tuple[dict[str, tuple[int, ...]], int]:
    """Read as `partitions_by_topic` does, without tagged fields."""
    (topics,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(max(0, topics)):
        topic, at = _string(data, at)
        (partitions,) = _INT32.unpack_from(data, at)
        if not 0 <= partitions <= len(data) // _INT32.size:
            raise BadResponse(f"{partitions} partitions are claimed")
        numbers = Struct(f">{partitions}i")
        found[topic] = numbers.unpack_from(data, at + _INT32.size)
        at += _INT32.size + numbers.size
    return found, at
