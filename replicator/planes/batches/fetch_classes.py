"""What an error code means for a partition that is read: one table for Fetch and OffsetForLeaderEpoch. Pure data.

Read from Kafka's handlers (KafkaApis, ReplicaManager) and from its client (FetchCollector, OffsetsForLeaderEpochUtils).
What isn't listed is asked again after the leader was looked up, until the patience of `fetcher` ends: then it is told.
So is what UNKNOWN_LEADER_EPOCH answers: that broker leads, and hasn't heard of it yet; or it did, and won't hear.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kio.schema.errors import ErrorCode


class FetchClass(Enum):
    """What an answer asks for."""

    DONE = "read on"
    AGAIN = "the same again, later"
    LOOK_UP = "look the leader up, and ask it"
    NEARER = "not of this replica: ask the leader"
    OUT_OF_RANGE = "the offset is not in the log"
    CORRUPT = "the broker finds what it has stored corrupt"
    NOT_ALLOWED = "a right is missing"


_CLASSES: Mapping[ErrorCode, FetchClass] = {
    ErrorCode.none: FetchClass.DONE,
    ErrorCode.offset_out_of_range: FetchClass.OUT_OF_RANGE,
    ErrorCode.corrupt_message: FetchClass.CORRUPT,
    ErrorCode.topic_authorization_failed: FetchClass.NOT_ALLOWED,
    ErrorCode.unknown_server_error: FetchClass.AGAIN,
}
MISSING = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id, ErrorCode.invalid_topic_exception}
)
"""Codes of Metadata: there is no such topic. From Fetch they say no more than that this broker doesn't know it."""


def fetch_class(code: int, *, from_leader: bool = True) -> FetchClass:
    """Classify an error code. `from_leader`: else the partition was read from another replica, which may lag."""
    try:
        found = _CLASSES.get(ErrorCode(code), FetchClass.LOOK_UP)
    except ValueError:
        found = FetchClass.LOOK_UP
    if from_leader or found in (FetchClass.DONE, FetchClass.NOT_ALLOWED):
        return found
    return FetchClass.NEARER


def code_name(code: int) -> str:
    """Name an error code as Kafka does."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"
