"""Gives memory back to the system after large work."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Let the C library return what it holds and doesn't use, which is a millisecond or two; others run meanwhile.

    Of its own accord glibc returns only the end of each heap, and every thread has a heap: one large request leaves
    tens of megabytes in each of them. Other C libraries aren't asked.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    import ctypes  # takes time to load, and is needed late

    return getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
