"""Durations in words."""

from __future__ import annotations


def time_text(seconds: float) -> str:
    """Write a duration in its two largest units."""
    whole = round(seconds)
    for unit, length, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {smaller}"
    return f"{whole} s"
