"""Modules loaded with nothing beside: a broker's start is mostly the loading of its modules."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TESTING = "hypothesis"


@contextmanager
def quick_imports() -> Iterator[None]:
    """What is imported inside is loaded faster.

    The collector finds nothing among modules, so it rests, and never looks at them again. kio loads hypothesis where it
    is installed, to tell it of its types, which takes as long as all the rest: it gets to see none, unless the process
    has it already.
    """
    hidden = TESTING not in sys.modules
    if hidden:
        sys.modules[TESTING] = None  # type: ignore[assignment] # "importing it fails", says the import system's reference
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if hidden:
            del sys.modules[TESTING]
