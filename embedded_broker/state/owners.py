"""Whom memory counts for that outlives a connection: see `producer_quota`, and the coordinators' `memory_quota`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class Owner(NamedTuple):
    """The connection by which something came."""

    address: str
    connection: Hashable
    """Tells it from others of that address."""


SOMEBODY = Owner("", 0)
"""A client whose connection isn't known: what it has brought was there at the start."""
