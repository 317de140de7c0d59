"""Runs a module in a process that ends with its parent: `python -m cli.demo.die_with_parent MODULE ARGUMENT…`.

Started by `cli.demo.processes.Child`. Standard input is a pipe whose other end the parent holds and never writes to.
However the parent ends, the system closes its end; this process then reads end of file and kills itself.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

STDIN = 0


def _kill_at_end_of_file(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Run the module `arguments[0]` as `__main__` with the other arguments."""
    threading.Thread(target=_kill_at_end_of_file, args=(STDIN,), name="die-with-parent", daemon=True).start()
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
