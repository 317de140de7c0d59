"""Numbers with their noun, and the first of many, for people."""

from __future__ import annotations

from collections.abc import Sequence

NAMED_MAX = 3


def counted(number: int, noun: str, plural: str = "") -> str:
    """Count in words: `1 record`, `2,000 records`. `plural` is `noun` with an s unless it is given."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def named(things: Sequence[object], between: str = ", ", *, most: int = NAMED_MAX, noun: str = "") -> str:
    """Name them as in `a, b, c`; of many the first, `most` of them, and how many more there are: a line of a log stays
    one that can be read. `noun`: what they are, said with that number.
    """
    shown, more = between.join(map(str, things[:most])), len(things) - most
    if more <= 0:
        return shown
    return f"{shown} and {counted(more, f'more {noun}') if noun else f'{more:,} more'}"
