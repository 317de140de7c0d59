"""Memory that large work has left is given back to the system."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Thread

import pytest

from embedded_broker.storage.memory import give_back

MIB = 1024 * 1024
PIECE_BYTES = 100_000  # below what glibc maps by itself


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MIB


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' C libraries aren't asked")
def test_what_a_thread_has_used_is_given_back() -> None:
    before_mib = rss_mib()
    kept: list[bytearray] = []

    def work() -> None:
        pieces = [bytearray(PIECE_BYTES) for _ in range(600)]
        kept.append(pieces.pop())  # the end of the thread's heap stays in use

    thread = Thread(target=work)
    thread.start()
    thread.join()
    give_back()
    assert rss_mib() < before_mib + 20
