"""Writes log lines to a stream in a thread of its own: whoever writes one never waits for it and never fails.

`Server` has one for its connections, the command `broker` another for `logging`. A pipe that nobody reads, or a full
disk, costs lines and nothing else: LINES_MAX wait at most, further ones are dropped, and their number is logged when
there is room again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections import deque
from threading import Condition, Thread
from typing import TextIO

LINES_MAX = 1_000
LINE_CHARS_MAX = 2_000
CLOSE_S_MAX = 0.5


class LogWriter:
    """One stream. The thread starts with the first line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """`stream`: stderr by default, as it is when the first line is written."""
        self._stream = stream
        self._lines: deque[str] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False
        self._told = 0
        self.dropped = 0
        """Lines that were not written."""

    def write(self, line: str) -> None:
        """Write one line, or drop it. From any thread."""
        with self._changed:
            if len(self._lines) >= LINES_MAX or self._closed:
                self.dropped += 1
                return
            self._lines.append(line[:LINE_CHARS_MAX])
            if self._thread is None:
                thread = Thread(target=self._run, args=(self._stream or sys.stderr,), name="log", daemon=True)
                with contextlib.suppress(RuntimeError):  # the system has no thread: the next line tries again
                    thread.start()
                    self._thread = thread
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, but don't wait for long."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_S_MAX)

    def _run(self, stream: TextIO) -> None:
        # A descriptor of its own, without Python's buffer and its lock: the stream may be closed while a line is being
        # written, and a process must be able to end although this thread is stuck.
        try:
            fd = os.dup(stream.fileno())
        except (OSError, ValueError, AttributeError):
            fd = -1
        try:
            while (line := self._next()) is not None:
                try:
                    data = f"{line}\n"
                    if fd < 0:
                        stream.write(data)
                        stream.flush()
                    else:
                        _write_all(fd, data.encode(errors="backslashreplace"))
                except (OSError, ValueError):  # a full disk, a closed pipe
                    with self._changed:
                        self.dropped += 1
        finally:
            if fd >= 0:
                os.close(fd)

    def _next(self) -> str | None:
        """Return the next line, or how many were dropped before it; None at the end."""
        with self._changed:
            while not self._lines and not self._closed:
                self._changed.wait()
            if self.dropped > self._told and self._lines:
                missing, self._told = self.dropped - self._told, self.dropped
                return f"{missing} lines of this log could not be written"
            return self._lines.popleft() if self._lines else None


class LogHandler(logging.Handler):
    """Gives what is logged to a LogWriter."""

    def __init__(self, writer: LogWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self._writer.write(self.format(record))

    def close(self) -> None:
        """See logging.Handler."""
        self._writer.close()
        super().close()


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
