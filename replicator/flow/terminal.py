"""Whether the process has a terminal that could be closed. Used by `flow.daemon`: SIGHUP has two meanings.

A terminal or an ssh connection that is closed sends it, and has gone by then (the system takes it from its session
first, tty_vhangup_session in Linux); an operator who wants the flow file read again leaves the terminal where it was.
"""

from __future__ import annotations

import os


def has_terminal() -> bool:
    """Return whether the process has a controlling terminal now."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
