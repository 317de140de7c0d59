"""Patterns that clients send, in RE2's syntax, as in Kafka: of topic names (KIP-848), of transactional ids (KIP-1152).

RE2's time is in proportion to the name's length times the pattern's size, whatever the pattern; Python's own `re` may
take for ever on some.
"""

from __future__ import annotations

PROGRAM_MAX = 500
"""Instructions that a pattern may become. RE2 allows patterns whose match of one name takes 20 ms."""
LENGTH_MAX = 4_000
MEMORY_BYTES_MAX = 256 * 1024
"""Of a compiled pattern and what RE2 remembers of its matches."""


class BadPattern(ValueError):
    """Not a pattern, or one that is too large; the text says why."""


class NamePattern:
    """A compiled pattern; it must match a whole name."""

    def __init__(self, text: str) -> None:
        """Raises BadPattern if `text` is no pattern, or one that is too large."""
        if len(text) > LENGTH_MAX:
            raise BadPattern(f"a pattern of {len(text)} characters, at most {LENGTH_MAX} are allowed")
        import re2  # 3 MiB and 3 ms of a start, and few clients ever send a pattern

        options = re2.Options()
        options.log_errors = False
        options.never_capture = True  # what its groups match is of no interest
        options.max_mem = MEMORY_BYTES_MAX
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            raise BadPattern(_text(error)) from error
        self.size = int(self._compiled.programsize)
        """In instructions: what a match costs for each character of the name."""
        if self.size > PROGRAM_MAX:
            raise BadPattern(f"a pattern of {self.size} instructions, at most {PROGRAM_MAX} are allowed")

    def matches(self, name: str) -> bool:
        """Return whether the whole of a name matches."""
        return self._compiled.fullmatch(name) is not None


def _text(error: Exception) -> str:
    """Return what RE2 says, which comes as bytes."""
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
