"""Names and patterns of a flow file, and names with placeholders: of topics and of consumer groups. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def matches(patterns: Iterable[str], name: str) -> bool:
    """Return whether one of them is this name, or a regular expression, which starts with ^, that matches all of it."""
    for pattern in patterns:
        if pattern.startswith("^"):
            if _compiled(pattern).fullmatch(name):
                return True
        elif pattern == name:
            return True
    return False


def check_pattern(item: str) -> None:
    """Raise ValueError for a regular expression, which starts with ^, that doesn't compile."""
    if item.startswith("^"):
        try:
            re.compile(item)
        except re.error as error:
            raise ValueError(f"{item!r} is not a regular expression: {error}") from None


def name_or_pattern(item: str, of: str) -> str:
    """Return an item that names something, or is a pattern that compiles. Raises ValueError. `of`: what is named."""
    if not item:
        raise ValueError(f"expected the name of a {of}, or a regular expression that starts with ^")
    check_pattern(item)
    return item


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders, such as {topic}, replaced. Each has a value."""
    return re.sub(r"\{(\w+)\}", lambda match: values[match.group(1)], text)
