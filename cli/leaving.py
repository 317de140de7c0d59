"""How the process ends once its exit code is known.

The handlers of `atexit` run, streams are flushed, and then the process ends without Python taking its modules down:
threads of libraries written in C may still run then, and have crashed in that state, which would replace the exit code.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from typing import NoReturn

from cli.streams import STREAM_FAILED, OutputFailed, ReaderLeft

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Leaving:
    """`leaving = Leaving(); …; leaving.exit(code)`. In the main thread only."""

    def __init__(self) -> None:
        """To be made before what else registers with `atexit`, so that the process ends after all handlers."""
        self._code: int | None = None
        atexit.register(self._end)

    def exit(self, code: int) -> NoReturn:
        """End with `code`. A signal from now on ends the process at once, with the same code."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, lambda *_: os._exit(code))
        self._code = code if _flushed() else code or STREAM_FAILED
        sys.exit(self._code)

    def _end(self) -> None:
        if self._code is None:  # an exception that nothing expected ends the process: Python shows it
            return
        logging.shutdown()
        os._exit(self._code if _flushed() else self._code or STREAM_FAILED)


def _flushed() -> bool:
    """Return whether what was written has left the process."""
    done = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, OutputFailed, ReaderLeft):
            done = False
    return done
