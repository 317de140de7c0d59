"""How far the searches among the tests go: not far in `make test`, far in `make test-long`."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
LONG = os.environ.get("EOS_TEST_BUDGET") == "long"


def budget(usual: T, long: T) -> T:
    """How many seeds, examples or requests: `long` with EOS_TEST_BUDGET=long, else `usual`."""
    return long if LONG else usual
