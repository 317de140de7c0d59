"""What happened in a run, in order: a digest of everything, and the last of it in words."""

from __future__ import annotations

import hashlib
from collections import deque

LINES_MAX = 400


class Trace:
    """Invariant: two runs of one seed note the same things at the same times, in every process."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.events = 0
        self.lines: deque[str] = deque(maxlen=LINES_MAX)
        """The latest events."""

    def note(self, now_s: float, event: str, data: bytes = b"") -> None:
        """Note one event. `data` is what it carried; only its digest is kept."""
        line = f"{now_s:.6f} {event}"
        self.events += 1
        self._digest.update(line.encode())
        self._digest.update(data)
        self.lines.append(line)

    @property
    def digest(self) -> str:
        """Of all events so far."""
        return self._digest.hexdigest()
