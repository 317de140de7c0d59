"""Faster imports for the start of the broker and of the daemon, which spend most of their time on importing modules."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

TESTING, METADATA = "hypothesis", "importlib.metadata"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Make imports inside the block faster.

    The garbage collector finds nothing to free among modules, so it is off and the modules are frozen afterwards. kio
    imports hypothesis where it is installed, to register its types there, which takes as long as all the rest: that
    import is made to fail, unless the process has imported hypothesis already.
    """
    hidden = TESTING not in sys.modules
    if hidden:
        sys.modules[TESTING] = None  # type: ignore[assignment] # "importing it fails", says the import system's reference
    gc.disable()
    try:
        _import_crc32c()
        yield
    finally:
        gc.freeze()
        gc.enable()
        if hidden:
            del sys.modules[TESTING]


def _import_crc32c() -> None:
    """Import crc32c without its version: for that alone it imports how packages are described, and 40 modules more."""
    if METADATA in sys.modules:
        return
    stand_in = ModuleType(METADATA)
    stand_in.version = lambda _: ""  # type: ignore[attr-defined]
    sys.modules[METADATA] = stand_in
    try:
        import crc32c  # noqa: F401
    finally:
        del sys.modules[METADATA]
