"""librdkafka's log lines, taken from the client that writes them: by itself it prints them to stderr, between our own.

Used for every client that is polled; all others are silent, because their lines would pile up: what went wrong there
comes with the answer to a question. Whoever takes the lines logs them as `client`, of which `client_lines` lets a few a
minute through. What the library writes for debugging, if the flow file asks for it (`debug`), is logged for debugging
here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_UNTRUE = "allow.auto.create.topics is a consumer property and will be ignored by this producer"
"""What the library says of each producer that has the property, which it then heeds all the same (2.16)."""


class _Lines(logging.Handler):
    """Hands over each line as text."""

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__(logging.DEBUG)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over one line."""
        text = record.getMessage()
        if record.levelno <= logging.DEBUG:
            import structlog  # takes 70 ms, and most commands log nothing

            structlog.get_logger().debug("client", detail=text)
        elif _UNTRUE not in text:
            self._take(text)


def line_logger(take: Callable[[str], None]) -> logging.Logger:
    """Make what a client of confluent-kafka takes as `logger`; `take` gets each line when the client is polled."""
    logger = logging.Logger("librdkafka")
    logger.addHandler(_Lines(take))
    return logger
