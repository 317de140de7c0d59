"""Settings on top of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` on top, section by section."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result
