"""Stands for the log of a partition that can't be opened: nothing is read, written or changed on disk."""

from __future__ import annotations

import errno
from pathlib import Path

from embedded_broker.storage.log.fs import FileSystem
from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.storage.log.recovery import Recovered
from embedded_broker.wire.checked_batch import CheckedBatch


class StoppedLog(PartitionLog):
    """The log of a partition that can't be opened. The partition can still be deleted."""

    def __init__(self, fs: FileSystem, directory: Path, why: str) -> None:
        super().__init__(fs, directory, 0, Recovered([], 0, 0, 0, 0, -1, 0), open_first=False)
        self._why = why

    @property
    def log_end(self) -> int:
        """See PartitionLog."""
        return 0

    def append(self, batch: CheckedBatch) -> None:
        """Raise OSError: the partition is stopped."""
        raise OSError(errno.EIO, self._why)

    def delete_before(self, offset: int) -> None:
        """Raise OSError: the partition is stopped."""
        raise OSError(errno.EIO, self._why)

    def flush(self) -> int:
        """Do nothing: there is nothing to write."""
        return 0

    def close(self) -> None:
        """Do nothing: nothing is open."""
