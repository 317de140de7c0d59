"""Reads which lanes the group of a flow's workers has given to a member, as the coordinator describes it."""

from __future__ import annotations

from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment
from kio.serial import entity_reader
from kio.serial.errors import SerialError

_VERSION_BYTES = 2
_read = entity_reader(ConsumerProtocolAssignment)


def assigned_lanes(raw: bytes, topic: str) -> frozenset[int]:
    """Return the partitions of the lanes topic in a member's assignment (ConsumerProtocolAssignment of KIP-429; later
    versions only add to the first).

    A member without one, in the middle of a rebalance or of another program, has none.
    """
    if len(raw) <= _VERSION_BYTES:
        return frozenset()
    try:
        assignment, _ = _read(raw, _VERSION_BYTES)
    except (SerialError, ValueError):
        return frozenset()
    found = (each for each in assignment.assigned_partitions if each.topic == topic)
    return frozenset(int(number) for each in found for number in each.partitions)
