"""Signals are heard by a thread, whatever the main thread waits for."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import queue, signal, threading
from replicator.flow.signals import heard

told, over = queue.SimpleQueue(), threading.Event()
other = threading.Thread(target=over.wait)
other.start()
signal.signal(signal.SIGTERM, lambda *_: None)
with heard(told.put):
    for _ in range(2):
        signal.pthread_kill(other.ident, signal.SIGTERM)
        print(told.get(), flush=True)
over.set()
print(signal.set_wakeup_fd(-1))
"""


def test_one_that_another_thread_is_sent_wakes_the_main_thread() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(int(signal.SIGTERM)), str(int(signal.SIGTERM)), "-1"]
