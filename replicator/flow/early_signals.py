"""Signals while the process of `run` starts: they are noted, and taken once somebody listens.

Until handlers are there SIGHUP and SIGTERM would end the process as killed, and ^C with a traceback; between its start
and the daemon's lie the imports, the flow file and the listening. A service that is stopped right after its start ends
as one that was stopped later. Without a terminal SIGHUP means that the flow file is read again: whoever writes a file
and reloads right after a restart, as tools that set up a machine do, would end what was just started. Used by
`cli.main`, `daemon` and `cli.stopping`.
"""

from __future__ import annotations

import signal
from types import FrameType

from replicator.flow.terminal import has_terminal

_STOPS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""What asks for a stop, and the handler that there is at the start, unless the process was told to ignore it."""
_noted: list[int] = []


def listen() -> None:
    """Note signals from now on, unless the process was told to ignore them; SIGHUP not where it has a terminal. In the
    main thread only."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL and not has_terminal():
        signal.signal(signal.SIGHUP, _note)
    for number, default in _STOPS.items():
        if signal.getsignal(number) == default:
            signal.signal(number, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(number)


def taken() -> list[int]:
    """Return those that have come since this was asked last: of each kind the first, those that ask for a stop last."""
    came = list(dict.fromkeys(_noted))
    _noted.clear()
    return sorted(came, key=lambda number: number in _STOPS)


def stop_asked() -> bool:
    """Return whether a stop was asked for, of a job that has just begun to listen: it has no file to read again."""
    return any(number in _STOPS for number in taken())
