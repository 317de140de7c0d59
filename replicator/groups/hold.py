"""When what groups have committed at the source may be committed at the target. Pure.

An application that reads one topic and writes another has written, when it commits, all that follows from what it has
read. So a group that goes on at the target from that offset must find there what it has written: the offsets of a round
are held back until the topics that groups write to are copied up to where they ended *after* the offsets were read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic, NamedTuple, TypeVar

from replicator.model.partition import Partition

T = TypeVar("T")


class _Waiting(NamedTuple, Generic[T]):
    offsets: T
    ends: Mapping[Partition, int]


class Hold(Generic[T]):
    """Of one flow. What waits is never replaced by what was read later: under load that would never be released."""

    def __init__(self) -> None:
        self._waiting: _Waiting[T] | None = None
        self._gone: frozenset[Partition] = frozenset()  # that are waited for, and weren't there at the last look
        self._unknown: Mapping[Partition, str] = {}

    def take(self, offsets: T, ends: Mapping[Partition, int], unknown: Mapping[Partition, str] | None = None) -> None:
        """Take what was read now, unless something waits. Topics that were deleted are waited for no longer.

        Args:
            ends: high watermarks of all partitions that groups write to, by source partition, asked for after `offsets`
                were read: what belongs to a transaction that is open counts, too.
            unknown: partitions that groups write to of which that isn't known, and why: while there are some, nothing
                is taken.
        """
        self._unknown = unknown or {}
        if self._waiting is None:
            if self._unknown:
                return
            self._waiting = _Waiting(offsets, ends)
        gone = self._waiting.ends.keys() - ends.keys() - self._unknown.keys()
        if gone & self._gone:  # twice: a broker that has just started may not know of a topic yet
            left = {at: end for at, end in self._waiting.ends.items() if at not in gone & self._gone}
            self._waiting = self._waiting._replace(ends=left)
        self._gone = frozenset(gone)

    def released(self, positions: Mapping[Partition, int]) -> T | None:
        """Return what may be committed now; None: it waits still. `positions`: up to where each is copied."""
        if self._waiting is None or self.behind(positions):
            return None
        offsets, self._waiting = self._waiting.offsets, None
        return offsets

    def why(
        self, positions: Mapping[Partition, int], stable: Callable[[Collection[Partition]], Mapping[Partition, int]]
    ) -> str:
        """Say what is waited for, see `waits_for`."""
        ends = self._waiting.ends if self._waiting is not None else {}
        return waits_for(ends, positions, stable) or not_known(self._unknown)

    def behind(self, positions: Mapping[Partition, int]) -> list[Partition]:
        """Return the partitions that are waited for."""
        return behind(self._waiting.ends if self._waiting is not None else {}, positions)


def behind(ends: Mapping[Partition, int], positions: Mapping[Partition, int]) -> list[Partition]:
    """Return the partitions that aren't copied up to these ends."""
    return [at for at, end in ends.items() if end > positions.get(at, 0)]


def not_known(unknown: Mapping[Partition, str]) -> str:
    """Say of which partition it isn't known where it ends, and why; empty where there is none."""
    return f"where {min(unknown)} ends at the source isn't known: {unknown[min(unknown)]}" if unknown else ""


def waits_for(
    ends: Mapping[Partition, int],
    positions: Mapping[Partition, int],
    stable: Callable[[Collection[Partition]], Mapping[Partition, int]],
) -> str:
    """Say what is waited for; empty where nothing is. What an open transaction holds up is named first.

    Args:
        stable: asks for the source's last stable offsets.
    """
    waiting = behind(ends, positions)
    if not waiting:
        return ""
    stable_ends = stable(waiting)
    if held := [at for at in waiting if stable_ends.get(at, ends[at]) < ends[at]]:
        return f"a transaction at the source that hasn't ended holds up {min(held)}: it is not copied to where it ended"
    return f"{min(waiting)} is not copied yet to where it ended"
