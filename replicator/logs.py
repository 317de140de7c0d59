"""Structured logs on stderr: one event a line, as JSON for machines or as text for people."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from replicator.client_lines import ClientLines


class _Stderr:
    """Whatever stderr is when a line is written: a command that was run inside another program had one of its own.

    A line that can't be written is dropped: the terminal was closed, or the disk is full, and a lane that fails for it
    would stop copying where nobody sees why.
    """

    def write(self, text: str) -> int:
        """See TextIO."""
        with suppress(OSError):
            return sys.stderr.write(text)
        return 0

    def flush(self) -> None:
        """See TextIO."""
        with suppress(OSError):
            sys.stderr.flush()


def configure(log_format: str, level: str = "info", file: TextIO | None = None) -> None:
    """Set up structlog for the process. `log_format` is `json` or `text`, `level` a logging level's name.

    `file` takes the lines; stderr without it. At level debug the client library's lines are all written.
    """
    colors = (file or sys.stderr).isatty()
    renderer = (
        structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer(colors=colors)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([] if level == "debug" else [ClientLines()]),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, file or _Stderr())),
        cache_logger_on_first_use=True,
    )
