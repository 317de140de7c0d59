"""Runs a module so that it never outlives the demo: `python -m cli.demo.tether MODULE ARGUMENT…`.

Standard input is the tether. The demo holds the other end of the pipe and never writes; whatever way it ends, the
system closes that end, and this process kills itself. Works wherever there are pipes, and leaves no moment in which
the parent could go unnoticed.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

STDIN = 0


def _hold(tether: int) -> None:
    while os.read(tether, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Run the module `arguments[0]` as `__main__` with the other arguments."""
    threading.Thread(target=_hold, args=(STDIN,), name="tether", daemon=True).start()
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
