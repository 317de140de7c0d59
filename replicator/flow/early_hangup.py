"""SIGHUP while the process starts: it is noted, and the flow file is read again once the daemon listens.

Without a terminal SIGHUP means that alone. Until a handler is there it would end the process, and between its start
and the daemon's lie the imports, the flow file and the listening: whoever writes a file and reloads right after a
restart, as tools that set up a machine do, would end what was just started. Used by `cli.main` and `daemon`.
"""

from __future__ import annotations

import signal
from types import FrameType

from replicator.flow.terminal import has_terminal

_noted: list[int] = []


def listen() -> None:
    """Note SIGHUP from now on, unless the process has a terminal or was told to ignore it. In the main thread only."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL and not has_terminal():
        signal.signal(signal.SIGHUP, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(number)


def taken() -> bool:
    """Return whether one has come since this was asked last."""
    came = bool(_noted)
    _noted.clear()
    return came
