"""Numbered records that flow while brokers die: how long no record arrives, and what the worker burns meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.replicator import Replicator

PACE_S = 0.05  # between two records of the writer


class Numbers:
    """Writes numbers to the source's partitions, and sees when each arrives at the target."""

    def __init__(self, source: str, target: str, topic: str, copy: str, partitions: int) -> None:
        self._source, self._target, self._topic, self._copy = source, target, topic, copy
        self._partitions = partitions
        self._over = threading.Event()
        self._number = 0  # of the last record: no two are equal
        self._arrived: list[tuple[float, int]] = []  # when, partition
        self._lock = threading.Lock()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """For as long as the block runs."""
        self._over.clear()
        threads = [threading.Thread(target=run) for run in (self._write, self._read)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _write(self) -> None:
        writer = clients.producer(self._source, message_timeout_ms=60_000)
        while not self._over.wait(PACE_S):
            self._number += 1
            for partition in range(self._partitions):
                writer.produce(self._topic, b"%d" % self._number, partition=partition)
            writer.poll(0)
        assert writer.flush(clients.TIMEOUT_S) == 0

    def _read(self) -> None:
        reader = clients.consumer(self._target, isolation_level="read_committed", auto_offset_reset="latest")
        with ExitStack() as closing:
            closing.callback(reader.close)
            ends = [clients.stable_end(self._target, self._copy, number) for number in range(self._partitions)]
            reader.assign([TopicPartition(self._copy, n, end) for n, end in enumerate(ends)])
            while not self._over.is_set():
                message = reader.poll(0.1)
                if message is not None and message.error() is None:
                    with self._lock:
                        self._arrived.append((time.monotonic(), message.partition() or 0))

    def pauses_s(self, since_s: float) -> list[float]:
        """The longest time without a record in each partition until now."""
        with self._lock:
            arrived = list(self._arrived)
        found = []
        for partition in range(self._partitions):
            times = [since_s, *(at for at, of in arrived if of == partition and at > since_s), time.monotonic()]
            found.append(max(after - before for before, after in pairwise(times)))
        return found


def cpu_share(worker: Replicator, for_s: float) -> float:
    """Its share of a core over the next seconds."""
    before, began_s = worker.cpu_s(), time.monotonic()
    time.sleep(for_s)
    return (worker.cpu_s() - before) / (time.monotonic() - began_s)


def led_by(bootstrap: str, *topics: str) -> set[int]:
    """Brokers that lead a partition of these topics."""
    admin = clients.admin(bootstrap)
    listed = admin.list_topics(timeout=clients.TIMEOUT_S).topics
    return {partition.leader for name in topics for partition in listed[name].partitions.values()}


def wait_flowing(numbers: Numbers) -> None:
    """Return once records arrive in each partition."""
    _wait_until(lambda: max(numbers.pauses_s(time.monotonic() - 1.0)) < 0.9)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + clients.TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, "no records arrive"
        time.sleep(0.2)
