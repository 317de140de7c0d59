"""What an exception means for the broker: only the disk may end it.

After a failed write or fsync the memory is ahead of the files, and only a start finds out what is there. Whatever else
goes wrong concerns a connection, a partition or a task: `Broker.fail` tells and counts it, and the task is tried again.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable

from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.storage.log.open_files import is_out_of_files
from embedded_broker.storage.partition import PartitionStopped

OF_A_REQUEST = (ssl.SSLError, ConnectionError, TimeoutError, NoSpace, PartitionStopped)
"""Kinds of OSError after which no file has changed."""
RETRY_MS = 10_000
"""After which a timer or task that has failed, not because of the disk, is tried again."""


def is_disk_failure(error: BaseException) -> bool:
    """Return whether the broker must stop."""
    return isinstance(error, OSError) and not isinstance(error, OF_A_REQUEST) and not is_out_of_files(error)


def call_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make each of the calls, whatever another one raises. Raises the first failure at the end; rather one that ends
    the broker, if there is such."""
    failures = list[Exception]()
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - it is raised at the end
            failures.append(error)
    if failures:
        raise next(filter(is_disk_failure, failures), failures[0])
