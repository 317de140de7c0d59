"""Standard output and standard error of the process.

Invariants
- Descriptors 0 to 2 are never those of a file or connection that is opened later: a library written in C writes its
  lines to descriptor 2, whatever that is.
- That nobody can read what goes to standard error changes nothing: what a command does has begun, and goes on.
- A result that can't be written to standard output is said, and is an exit code of its own. So is that a reader of it
  has left, of which nothing is said: no exit code of a command may claim that the command was not done.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

import click

STREAM_FAILED = 120
"""Python's exit code when what was written can't be flushed."""


class OutputFailed(click.ClickException):
    """The result can't be written to standard output: its disk is full, or it was closed."""

    exit_code = STREAM_FAILED

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output can't be written: {error.strerror or error}")


class ReaderLeft(click.exceptions.Exit):
    """Who read standard output has left, such as `head`: the command ends without a word."""

    def __init__(self) -> None:
        super().__init__(STREAM_FAILED)


class _StandardError(io.TextIOWrapper):
    """Drops what can't be written."""

    def write(self, text: str, /) -> int:
        """See TextIOBase."""
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        """See TextIOBase."""
        with suppress(OSError):
            super().flush()


class _StandardOutput(io.TextIOWrapper):
    """Raises OutputFailed, ReaderLeft."""

    def write(self, text: str, /) -> int:
        """See TextIOBase."""
        try:
            return super().write(text)
        except OSError as error:
            raise _told(error) from error

    def flush(self) -> None:
        """See TextIOBase."""
        try:
            super().flush()
        except OSError as error:
            raise _told(error) from error


def prepare() -> None:
    """Make both streams of the process behave as above. To be called first of all."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # it was closed; of standard output it stays true that it can't be written
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)  # gets the lowest number that is free
    sys.stdout = _wrapped(_StandardOutput, sys.stdout, 1)
    sys.stderr = _wrapped(_StandardError, sys.stderr, 2)


def _told(error: OSError) -> Exception:
    return ReaderLeft() if error.errno == errno.EPIPE else OutputFailed(error)


def _wrapped(kind: type[io.TextIOWrapper], stream: TextIO | None, number: int) -> io.TextIOWrapper:
    """Return the same stream as another class. `stream` is None where Python found the descriptor closed."""
    if not isinstance(stream, io.TextIOWrapper):
        stream = open(number, "w", closefd=False)  # noqa: SIM115 - it lives as long as the process
    encoding, errors, by_line, through = stream.encoding, stream.errors, stream.line_buffering, stream.write_through
    return kind(stream.detach(), encoding=encoding, errors=errors, line_buffering=by_line, write_through=through)
