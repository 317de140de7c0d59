"""Calls that may never return don't hold up their caller."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref

import pytest

from replicator.kafka.own_thread import OwnThread

SOON_S = 5.0


def test_answers_and_errors_come_back() -> None:
    own = OwnThread("test")
    assert own.call(lambda: threading.current_thread().name, SOON_S) == "test"
    with pytest.raises(ZeroDivisionError):
        own.call(lambda: 1 // 0, SOON_S)
    assert own.call(lambda: 3, SOON_S) == 3
    own.close()


def test_one_that_does_not_return_is_given_up_and_its_thread_ends_with_it() -> None:
    own, over, thread = OwnThread("test"), threading.Event(), list[threading.Thread]()

    def stuck() -> None:
        thread.append(threading.current_thread())
        over.wait(60)

    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        own.call(stuck, 0.05)
    assert time.monotonic() - began_s < SOON_S
    own.close()
    over.set()
    thread[0].join(SOON_S)
    assert not thread[0].is_alive()


def test_nothing_of_a_call_is_kept_once_it_is_over() -> None:
    """What was called is a producer, which must be gone when it is let go of."""

    class Called:
        def call(self) -> int:
            return 1

    own, called, kept_s = OwnThread("test"), Called(), time.monotonic() + SOON_S
    gone = weakref.ref(called)
    assert own.call(called.call, SOON_S) == 1
    del called
    while gone() is not None and time.monotonic() < kept_s:
        time.sleep(0.001)  # the thread may be about to let go of it
    assert gone() is None
    own.close()


def test_the_process_does_not_wait_for_it() -> None:
    program = (
        "import time\n"
        "from replicator.kafka.own_thread import OwnThread\n"
        "try:\n    OwnThread('t').call(lambda: time.sleep(600), 0.05)\nexcept TimeoutError:\n    print('given up')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "given up\n"
