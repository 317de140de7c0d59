"""Which known name was probably meant by one that isn't known. Imports nothing heavy: `--help` waits for it."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def nearest(name: str, known: Collection[str], cutoff: float = 0.5) -> str | None:
    """Return the known name that was probably meant. `cutoff`: how near it must be, from 0 to 1 (see difflib)."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), None)
