"""Zip archives from which Spark's Python workers import: read once for each worker, not many times for each task.

Spark puts `pyspark.zip` before all else on the path of its workers, and before each task has Python forget what it
knows of directories (`pyspark.worker_util.setup_spark_files`), so that files are found which the task brings along.
Python then reads the directory of an archive once for each package that came from it (`zipimport`): of `pyspark.zip`,
with its 1,200 files, 27 times: 100 tasks that do nothing take 15 s on two cores, and 3 s where an archive is read again
only when it has changed.

What runs in tasks is passed through `of_task` or `of_group`; nothing else in a worker is ours. The first
task of a worker still pays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary
from zipimport import zipimporter

Item = TypeVar("Item")
Made = TypeVar("Made")
_Stamp = tuple[int, int]
_read: WeakKeyDictionary[zipimporter, _Stamp] = WeakKeyDictionary()
"""As which file each importer has read its archive: when it was changed (ns), and its bytes."""
_read_again = zipimporter.invalidate_caches


def of_task(work: Callable[[Item], Made]) -> Callable[[Item], Made]:
    """Return what `mapInArrow`, or `map` of an RDD, is to be given for `work`."""

    def run(item: Item) -> Made:
        read_when_changed()
        return work(item)

    return run


def of_group(work: Callable[[tuple[Any, ...], Item], Made]) -> Callable[[tuple[Any, ...], Item], Made]:
    """Return what `applyInArrow` is to be given for `work`: it counts the arguments."""

    def run(key: tuple[Any, ...], table: Item) -> Made:
        read_when_changed()
        return work(key, table)

    return run


def read_when_changed() -> None:
    """Have archives read again in this process only when their files have changed. What was read before a task is as
    new as the task."""
    if zipimporter.invalidate_caches is _invalidate_caches:
        return
    for found in sys.path_importer_cache.values():
        if isinstance(found, zipimporter):
            _note(found, _stamp(found))
    zipimporter.invalidate_caches = _invalidate_caches  # type: ignore[method-assign]


def _invalidate_caches(self: zipimporter) -> None:
    stamp = _stamp(self)
    if stamp is not None and _read.get(self) == stamp:
        return
    _read_again(self)
    _note(self, stamp)


def _note(read: zipimporter, stamp: _Stamp | None) -> None:
    """Note as which file an importer has read its archive, if it has: Python 3.11 keeps no files where that failed, and
    later versions read when they import."""
    if stamp is None or getattr(read, "_files", None) == {}:
        _read.pop(read, None)
    else:
        _read[read] = stamp


def _stamp(of: zipimporter) -> _Stamp | None:
    """Return what tells one file from another; None where it can't be asked."""
    try:
        found = os.stat(of.archive)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
