"""What a Fetch request asks of a broker, and what it answers: plain values, which the codec in `wire` and the batches
plane share. Topics go by id (KIP-516, Fetch 13 and later): an id never comes back, so what is read is of one topic."""

from __future__ import annotations

from typing import NamedTuple

FetchKey = tuple[bytes, int]
"""A topic's id, 16 bytes, and a partition of it."""


class FetchFrom(NamedTuple):
    """From where a partition is read. `leader_epoch`: as the client knows it (-1: not at all); a broker that knows
    another one says so (KIP-320)."""

    offset: int
    leader_epoch: int
    bytes_max: int


class FetchAsk(NamedTuple):
    """A request in a fetch session (KIP-227): partitions that are new to it or are read from elsewhere now, and those
    that are no longer read."""

    session_id: int
    session_epoch: int
    parts: tuple[tuple[FetchKey, FetchFrom], ...] = ()
    forgotten: tuple[FetchKey, ...] = ()


class FetchedPart(NamedTuple):
    """What a broker says of one partition.

    `last_stable` -1: not known. `preferred`: a replica that is nearer (KIP-392), -1: none. `leader`, `leader_epoch`:
    told with an error by brokers that know a newer one (KIP-951), else -1. `aborted`: producer id and first offset of
    each aborted transaction in `records`, which are bytes of the response itself.
    """

    key: FetchKey
    code: int
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    preferred: int = -1
    leader: int = -1
    leader_epoch: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    records: memoryview = memoryview(b"")


class FetchAnswer(NamedTuple):
    """A response: an error of its own, or what is new of partitions."""

    code: int
    session_id: int = 0
    parts: tuple[FetchedPart, ...] = ()
    throttled_s: float = 0.0


class EpochQuestion(NamedTuple):
    """Where does a leader epoch end (OffsetForLeaderEpoch)? `epoch` is that of the last record that was read."""

    leader_epoch: int
    epoch: int


class EpochEnd(NamedTuple):
    """The largest epoch of the log that isn't above the one asked for, and the offset behind its last record; -1: there
    is none."""

    code: int
    epoch: int = -1
    end: int = -1
