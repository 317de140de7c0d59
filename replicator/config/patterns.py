"""Names and patterns of a flow file, and names with placeholders: of topics and of consumer groups. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of them is this name, or a regular expression, which starts with ^, that matches all of it."""
    for pattern in patterns:
        if pattern.startswith("^"):
            if _compiled(pattern).fullmatch(name):
                return True
        elif pattern == name:
            return True
    return False


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders, such as {topic}, replaced. Each has a value."""
    return re.sub(r"\{(\w+)\}", lambda match: values[match.group(1)], text)
