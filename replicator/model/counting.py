"""Numbers with their noun, for people."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 record`, `2,000 records`. `plural` is `noun` with an s unless it is given."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"
