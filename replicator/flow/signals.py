"""Hears signals, whichever thread of the process they are delivered to. Used by `daemon` and by the commands that copy.

Python runs a handler in the main thread, once that executes Python code again. A main thread that waits for a lock or a
queue is only woken by a signal that was delivered to itself, and not even by that in the moment before it begins to
wait; the system may deliver a signal to any thread that doesn't block it. So whatever must be heard is read from the
descriptor that Python's handler in C writes to (`signal.set_wakeup_fd`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_READ_BYTES = 64


@contextmanager
def heard(take: Callable[[int], object]) -> Iterator[None]:
    """Call `take`, while the block runs, in a thread with the number of each signal that has a handler in Python.

    In the main thread only. `take` should return soon: the next signal waits for it.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=_read, args=(reader, take), name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        thread.join()


def _read(reader: int, take: Callable[[int], object]) -> None:
    with open(reader, "rb", buffering=0) as numbers:
        while read := numbers.read(_READ_BYTES):
            for number in read:
                take(number)
