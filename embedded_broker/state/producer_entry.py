"""What a partition remembers of one producer, as small as it can be: there may be a hundred thousand of them."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from embedded_broker.state.owners import SOMEBODY, Owner

NO_SEQUENCE = -1
SEQUENCE_MAX = 2**31 - 1
# A producer may have this many requests in flight; a duplicate older than the window is out of order.
BATCHES_REMEMBERED = 5


class _Batch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int


_PACKED = Struct(">iiqq")
_LAST = -_PACKED.size


class SequenceWindow(bytes):
    """Up to `BATCHES_REMEMBERED` batches, oldest first. Packed, since there may be a hundred thousand windows."""

    __slots__ = ()

    def batches(self) -> list[_Batch]:
        """Return all of them."""
        return [_Batch(*numbers) for numbers in _PACKED.iter_unpack(self)]

    def followed_by(self, *batch: int) -> SequenceWindow:
        """Return the window with one more, and without the oldest if they are too many."""
        return SequenceWindow(self[_LAST * (BATCHES_REMEMBERED - 1) :] + _PACKED.pack(*batch))


NO_BATCHES = SequenceWindow()


@dataclass(slots=True)
class ProducerEntry:
    """One producer's standing in one partition. Batches are of the current epoch only, oldest first."""

    producer_id: int
    epoch: int
    last_timestamp_ms: int
    coordinator_epoch: int = -1
    first_offset_open: int | None = None
    last_end: tuple[int, bool] | None = None
    """Where the marker stands that ended its last transaction here, and whether it committed."""
    window: SequenceWindow = NO_BATCHES
    owner: Owner = SOMEBODY
    """Whom it counts for."""

    @property
    def last_batch(self) -> _Batch | None:
        """The one appended last in this epoch."""
        return _Batch(*_PACKED.unpack_from(self.window, len(self.window) + _LAST)) if self.window else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record appended in this epoch, or -1."""
        return NO_SEQUENCE if (last := self.last_batch) is None else last.last_sequence

    @property
    def last_data_offset(self) -> int | None:
        """Offset of the last record appended in this epoch."""
        last = self.last_batch
        if last is None:
            return None
        return last.base_offset + (last.last_sequence - last.first_sequence) % (SEQUENCE_MAX + 1)

    def enter_epoch(self, epoch: int) -> None:
        """Forget the batches of another epoch: their sequences mean nothing in this one."""
        if epoch != self.epoch:
            self.window = NO_BATCHES
            self.epoch = epoch


def plain(window: object) -> list[_Batch]:
    """Return what stands for a window in JSON. Raises TypeError."""
    if not isinstance(window, SequenceWindow):
        raise TypeError(f"{window!r} isn't JSON")
    return window.batches()
