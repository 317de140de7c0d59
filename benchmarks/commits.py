"""Transactions of ten records on one partition, one after the other, by librdkafka, and the fsyncs they take."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.load import RECORD_BYTES

RECORDS = 10
CALLS = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+.*(?:fsync|fdatasync)$", re.MULTILINE)


class Committer:
    """A transactional producer."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"bench-{topic}", "linger.ms": 0}
        self._producer, self._topic = Producer({**settings, "log_level": 0}), topic
        self._producer.init_transactions(60)

    def commit(self) -> None:
        """One transaction."""
        self._producer.begin_transaction()
        for number in range(RECORDS):
            self._producer.produce(self._topic, b"x" * RECORD_BYTES, b"%d" % number, 0)
        self._producer.commit_transaction(60)

    def rate(self, seconds: float) -> float:
        """Commits a second, over `seconds` after a second that isn't counted."""
        self._for(1.0)
        began = time.monotonic()
        done = self._for(seconds)
        return done / (time.monotonic() - began)

    def _for(self, seconds: float) -> int:
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            self.commit()
            done += 1
        return done


def fsyncs_each(committer: Committer, pid: int, commits: int, directory: Path) -> float:
    """How many fsync and fdatasync calls of a process there are for a transaction, as strace counts them."""
    counted = directory / "strace.txt"
    tracer = subprocess.Popen(
        ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(counted), "-p", str(pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    tracer.stderr.readline()  # "attached"
    for _ in range(commits):
        committer.commit()
    tracer.terminate()
    tracer.wait()
    return sum(int(calls) for calls in CALLS.findall(counted.read_text())) / commits
