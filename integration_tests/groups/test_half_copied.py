"""Transactions of the source that are half copied when it dies are named by the failover, and no others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaException

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import PARTITIONS, Copying
from integration_tests.harness.failing_over import command, failover
from integration_tests.harness.guarded import USER, guard, login
from integration_tests.harness.processes import wait_until
from integration_tests.harness.secured import Secured
from integration_tests.harness.two_topics import TwoTopics, assert_told
from replicator.model.partition import Partition

pytestmark = pytest.mark.tier("long", kafka="long")
TIMEOUT_MS = 10_000


@dataclass
class Written:
    """One transaction as its producer knows it. `committed`: None where the source has died meanwhile."""

    transactional_id: str
    number: int
    begun_ms: int
    committed: bool | None = None
    ended_ms: int = 0
    at: dict[Partition, list[int]] = field(default_factory=dict)

    @property
    def value(self) -> bytes:
        return f"{self.transactional_id} {self.number}".encode()


class Writers:
    """Transactional producers, each in a thread, that write to partitions of both topics."""

    def __init__(self, flow: TwoTopics, unique: Callable[[str], str], number: int, seed: int) -> None:
        self.flow, self._seed = flow, seed
        self.all: list[Written] = []
        self._ids = [unique(f"writer-{it}") for it in range(number)]
        self._over, self._lock = threading.Event(), threading.Lock()
        self._threads: list[threading.Thread] = []
        self.failed: list[BaseException] = []

    def start(self) -> None:
        self._over.clear()
        self._seed += 1
        self._threads = [threading.Thread(target=self._run, args=(it,)) for it in self._ids]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    def _run(self, name: str) -> None:
        try:
            self._write(name, Random(f"{name} {self._seed}"))
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self.failed.append(error)

    def _write(self, name: str, draw: Random) -> None:
        flow = self.flow
        client = clients.transactional(flow.source, name, transaction_timeout_ms=TIMEOUT_MS)
        places = [*(Partition(flow.first, it) for it in range(PARTITIONS)), Partition(flow.second, 0)]
        while not self._over.wait(draw.uniform(0.0, 0.05)):
            with self._lock:
                it = Written(name, len(self.all), time.time_ns() // 1_000_000)
                self.all.append(it)
            try:
                client.begin_transaction()
                for at in draw.sample(places, draw.randint(1, 3)):
                    for _ in range(draw.randint(1, 3)):
                        client.produce(at.topic, it.value, partition=at.partition)
                if draw.random() < 0.2:
                    client.flush(clients.TIMEOUT_S)
                    client.abort_transaction(clients.TIMEOUT_S)
                    it.committed = False
                else:
                    client.commit_transaction(clients.TIMEOUT_S)
                    it.committed = True
                it.ended_ms = time.time_ns() // 1_000_000
            except KafkaException:
                if not self._over.is_set():
                    raise
                return

    def dies(self) -> None:
        """What fails from now on is no failure."""
        self._over.set()

    def find(self) -> dict[bytes, Written]:
        """Learn from the source where the records of those stand that are committed."""
        by_value = {it.value: it for it in self.all}
        for topic, numbers in ((self.flow.first, range(PARTITIONS)), (self.flow.second, range(1))):
            for number in numbers:
                for message in clients.read(self.flow.source, topic, number):
                    it = by_value[message.value() or b""]
                    assert it.committed is not False
                    it.at.setdefault(Partition(topic, number), []).append(message.offset() or 0)
        return by_value


def torn(it: Written, positions: dict[Partition, int]) -> bool:
    """Whether some of its records are copied, and some aren't."""
    return len({offset < positions[at] for at, offsets in it.at.items() for offset in offsets}) == 2


def matched(row: dict[str, Any], written: list[Written]) -> Written:
    """Which transaction a row of the verdict means: one after the other has the id."""
    mine = [it for it in written if it.transactional_id == row["transactional_id"]]
    (found,) = [it for it in mine if it.begun_ms <= row["started_ms"] <= (it.ended_ms or 2**62)]
    return found


def wait_looked(copying: Copying) -> None:
    """Until a look was taken that has begun after now."""
    now_ms = time.time_ns() // 1_000_000

    def seen_ms() -> int:
        rows = failover(copying, "--rehearse")[1]["transactions_seen"]
        return int(rows[0]["looked_ms"] or 0) if rows else 0

    wait_until(lambda: seen_ms() > now_ms, "a look at the source's transactions", lambda: str(seen_ms()))


def test_without_the_right_it_is_said_and_with_it_looks_begin(
    secured: Secured, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    copying = Copying(secured, target, tmp_path, source_via=login(secured), partitions=1, groups=EVERY)
    with closing(copying):
        guarded = guard(secured, copying, "source")
        clients.transactional(copying.source, unique("any"))  # so that there is a log
        worker = guarded.two.running(10)
        told = worker.wait_event("source_transactions_unknown")
        assert_told({**told, "detail": told["reason"]}, "__transaction_state", guarded.cluster)
        rows: list[dict[str, Any]] = []

        def noted() -> bool:
            rows[:] = failover(copying, "--rehearse")[1]["transactions_seen"]
            return bool(rows)

        wait_until(noted, "it is noted", lambda: str(rows))
        assert rows[0]["looked_ms"] is None
        assert "Describe on topic '__transaction_state'" in rows[0]["problem"]
        secured.allow(USER, "TOPIC", "__transaction_state", "DESCRIBE", "READ")
        worker.wait_event("source_transactions_known_again")
        wait_looked(copying)


def test_torn_transactions_are_named_after_the_source_was_killed_under_load(
    make_copying: MakeCopying, source: BrokerHandle, unique: Callable[[str], str]
) -> None:
    copying = make_copying(groups=EVERY)
    flow = TwoTopics(copying)
    worker = copying.running()
    writers = Writers(flow, unique, 2, seed=1)
    writers.start()
    wait_until(lambda: len(writers.all) > 20, "transactions are written", lambda: str(len(writers.all)))
    command(copying, "pause", "--flow", copying.name, "--topics", flow.second)
    time.sleep(3)  # what is under way of it is committed
    wait_looked(copying)
    held = len(writers.all)
    wait_until(lambda: len(writers.all) > held + 40, "more are written", lambda: str(len(writers.all)))
    writers.stop()
    known = list(writers.all)
    wait_looked(copying)
    for number in range(PARTITIONS):
        flow.wait_position(flow.first, clients.stable_end(flow.source, flow.first, number), number)
    writers.start()
    wait_until(lambda: len(writers.all) > len(known) + 20, "and more", lambda: str(len(writers.all)))
    writers.dies()
    source.kill()
    worker.kill()
    copying.file.write(limits={"connect_timeout_ms": 2_000})
    code, verdict = failover(copying)
    source.restart()
    writers.stop()
    positions = {
        Partition(row["source_topic"], row["partition"]): row["position"]
        for row in verdict["partitions"]
    }  # fmt: skip
    writers.find()
    certain = {matched(row, writers.all).number for row in verdict["transactions"] if row["half_copied"]}
    named = {matched(row, writers.all).number for row in verdict["transactions"]}
    truth = {it.number for it in writers.all if torn(it, positions)}
    must = truth & {it.number for it in known[held:]}
    print(f"{len(writers.all)} transactions, {len(truth)} torn, {len(certain)} named, {len(named - certain)} unclear")
    assert len(must) > 5
    assert must <= certain, "none that ended before the last look is missed"
    assert certain <= truth, "none is invented"
    assert truth & {it.number for it in known} <= named
    assert (code, verdict["transactions_half_copied"], verdict["complete"]) == (1, len(certain), False)
    for row in verdict["transactions"]:
        it = matched(row, writers.all)
        for part in row["partitions"]:
            at = Partition(part["source_topic"], part["partition"])
            offsets = it.at.get(at, [])
            first, end, position = part["first_offset_at_least"], part["end_offset_at_most"], part["position"]
            assert position == positions[at]
            assert all((first or 0) <= offset < (end or 2**62) for offset in offsets)
            assert part["copied"] is None or all((offset < position) == part["copied"] for offset in offsets)
    assert failover(copying, "--show")[1]["transactions"] == verdict["transactions"]
