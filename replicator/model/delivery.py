"""The three delivery modes of a flow."""

from __future__ import annotations

from enum import StrEnum


class Delivery(StrEnum):
    """What a crash may cost."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
