"""Transactional producers of a source, each in a thread, and what they know of their transactions: which of them are
copied in part follows from that, from what stands at the source, and from the positions."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from integration_tests.harness import clients
from replicator.model.partition import Partition

TIMEOUT_MS = 10_000
LEFT_OPEN_MS = 120_000
"""Longer than a test: what is left open ends when the test ends it."""


class SourceRecord(NamedTuple):
    """One committed record of the source."""

    offset: int
    key: bytes
    value: bytes


Logs = Mapping[Partition, Sequence[SourceRecord]]


def read_all(bootstrap: str, ats: Iterable[Partition]) -> dict[Partition, list[SourceRecord]]:
    """All committed records of these partitions."""
    return {
        at: [
            SourceRecord(it.offset() or 0, bytes(it.key() or b""), bytes(it.value() or b""))
            for it in clients.read(bootstrap, at.topic, at.partition)
        ]
        for at in ats
    }


@dataclass
class Written:
    """One transaction as its producer knows it, times in ms since 1970 UTC. `committed`: None where the source has died
    meanwhile. `deciding_ms`: just before it was asked to end."""

    transactional_id: str
    number: int
    begun_ms: int
    committed: bool | None = None
    deciding_ms: int = 0
    ended_ms: int = 0
    at: dict[Partition, list[int]] = field(default_factory=dict)

    @property
    def value(self) -> bytes:
        """What each of its records has."""
        return f"{self.transactional_id} {self.number}".encode()

    def torn(self, positions: Mapping[Partition, int]) -> bool:
        """Whether some of its records are copied, and some aren't."""
        return len({offset < positions[at] for at, offsets in self.at.items() for offset in offsets}) == 2


def matched(row: Mapping[str, Any], written: Iterable[Written]) -> Written:
    """Find which transaction a row of a verdict means: one after the other has the id."""
    mine = [it for it in written if it.transactional_id == row["transactional_id"]]
    return max(
        (it for it in mine if it.begun_ms <= row["started_ms"] <= (it.ended_ms or 2**62)),
        key=lambda it: it.begun_ms,
    )


class Writers:
    """Transactional producers, each in a thread, that write to these partitions of the source."""

    def __init__(
        self, bootstrap: str, places: Sequence[Partition], ids: Sequence[str], seed: int, pause_s: float = 0.05
    ) -> None:
        """`pause_s`: between two transactions of one of them at most."""
        self._bootstrap, self._places, self._ids, self._seed = bootstrap, places, ids, seed
        self._pause_s = pause_s
        self.all: list[Written] = []
        self._over, self._may_fail, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._threads: list[threading.Thread] = []
        self._left_open: list[tuple[Written, Producer]] = []
        self.failed: list[BaseException] = []

    def start(self) -> None:
        """Begin, or begin again."""
        self._over.clear()
        self._seed += 1
        self._threads = [threading.Thread(target=self._run, args=(it,)) for it in self._ids]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End once each has ended its transaction; raises what one has failed with."""
        self._over.set()
        self.join()
        if self.failed:
            raise self.failed[0]

    def join(self) -> None:
        """Wait until each has ended."""
        for thread in self._threads:
            thread.join()

    def dies(self) -> None:
        """Have them end; what fails from now on is no failure."""
        self.may_die()
        self._over.set()

    def may_die(self) -> None:
        """The source dies for a while: of what fails then it isn't known whether it was committed."""
        self._may_fail.set()

    def leave_open(self, name: str, places: Sequence[Partition]) -> None:
        """Write to these partitions in a transaction that stays open until `end_left_open`."""
        client = clients.transactional(self._bootstrap, name, transaction_timeout_ms=LEFT_OPEN_MS)
        it = self._begun(name)
        client.begin_transaction()
        for at in places:
            client.produce(at.topic, it.value, f"{at} {it.number}".encode(), partition=at.partition)
        client.flush(clients.TIMEOUT_S)
        self._left_open.append((it, client))

    def end_left_open(self, draw: Random) -> None:
        """Commit or abort what was left open."""
        for it, client in self._left_open:
            try:
                self._decide(it, client, commit=draw.random() < 0.5)
            except KafkaException:
                if not self._may_fail.is_set():
                    raise
                it.ended_ms = now_ms()
                clients.transactional(self._bootstrap, it.transactional_id)  # so that it ends
        self._left_open.clear()

    def _begun(self, name: str) -> Written:
        with self._lock:
            self.all.append(Written(name, len(self.all), now_ms()))
            return self.all[-1]

    def _run(self, name: str) -> None:
        try:
            draw = Random(f"{name} {self._seed}")
            while not self._over.is_set():
                self._write(name, draw)
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self.failed.append(error)

    def _write(self, name: str, draw: Random) -> None:
        """Write until it is over, or the source has died."""
        client = clients.transactional(self._bootstrap, name, transaction_timeout_ms=TIMEOUT_MS)
        while not self._over.wait(draw.uniform(0.0, self._pause_s)):
            it = self._begun(name)
            try:
                client.begin_transaction()
                numbers = itertools.count()
                for at in draw.sample(self._places, draw.randint(1, min(3, len(self._places)))):
                    for _ in range(draw.randint(1, 3)):
                        key = b"%d %d" % (it.number, next(numbers))
                        client.produce(at.topic, it.value, key, partition=at.partition)
                self._decide(it, client, commit=draw.random() >= 0.2)
            except KafkaException:
                it.ended_ms = now_ms()
                if not self._may_fail.is_set():
                    raise
                return

    @staticmethod
    def _decide(it: Written, client: Producer, *, commit: bool) -> None:
        if not commit:
            client.flush(clients.TIMEOUT_S)
        it.deciding_ms = now_ms()
        if commit:
            client.commit_transaction(clients.TIMEOUT_S)
        else:
            client.abort_transaction(clients.TIMEOUT_S)
        it.committed, it.ended_ms = commit, now_ms()

    def find(self, logs: Logs) -> None:
        """Learn where the records of those stand that are committed."""
        by_value = {it.value: it for it in self.all}
        for at, records in logs.items():
            for record in records:
                it = by_value.get(record.value)
                if it is not None:
                    assert it.committed is not False, it
                    it.at.setdefault(at, []).append(record.offset)


def now_ms() -> int:
    """Of this machine, on which the brokers run, too."""
    return time.time_ns() // 1_000_000
