"""Counters in which nothing that is 0 stands: who has nothing any more is forgotten. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def add(counter: Counter[Key], key: Key, more: int) -> None:
    """Add to one count, which may be less than 0."""
    counter[key] += more
    if not counter[key]:
        del counter[key]


def add_in(counters: dict[str, Counter[Key]], name: str, key: Key, more: int) -> None:
    """Add to one count of the counter with this name; an empty one is forgotten, too."""
    counter = counters[name]
    add(counter, key, more)
    if not counter:
        del counters[name]
