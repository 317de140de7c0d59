"""A broker whose disk has failed refuses partitions (KAFKA_STORAGE_ERROR) and goes on as their leader: they wait, which
log and metrics say within seconds, once, and why; and they go on when they are served again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded_broker.testing import KafkaBroker
from integration_tests.harness import clients
from integration_tests.harness.broker import free_port
from integration_tests.harness.copying import Copying
from integration_tests.harness.observed import Observed
from integration_tests.harness.replicator import DEFAULT

pytestmark = pytest.mark.tier("long")

TOLD_S_MAX = 10.0
STORAGE = "KAFKA_STORAGE_ERROR"


class Running:
    """A flow of two partitions that has copied a record of each."""

    def __init__(self, source: KafkaBroker, target: KafkaBroker, directory: Path, engine: str) -> None:
        limits = {"discovery_interval_ms": DEFAULT, "transaction_timeout_ms": DEFAULT, "request_timeout_ms": DEFAULT}
        self.copying = Copying(source, target, directory, partitions=2, engine=engine, limits=limits)
        address = f"127.0.0.1:{free_port()}"
        self.copying.file.listen(address)
        self.metrics, self.worker = Observed(address), self.copying.running()
        self.copy(b"before")

    def put(self, value: bytes) -> None:
        """Write to both partitions of the source."""
        for number in range(2):
            clients.put(clients.producer(self.copying.source), self.copying.topic, value, partition=number)

    def copy(self, value: bytes) -> None:
        """Write to both, and see it at the target."""
        self.put(value)
        self.wait_copied(value)

    def wait_copied(self, value: bytes) -> None:
        """See it at the target."""
        for number in range(2):
            clients.wait_value(self.copying.target, self.copying.copy, number, value)

    def assert_said(self, mark: int, began_s: float) -> None:
        """Both partitions wait, as log and metrics say."""
        name, topic = self.copying.name, self.copying.topic
        for number in range(2):
            found = self.worker.wait_event("waiting", after=mark, partition=number, topic=topic)
            assert found["reason"] == "no_answer", found
            assert "refuse" in found["detail"] or "doesn't serve" in found["detail"] or STORAGE in found["detail"], (
                found
            )
        took_s = time.monotonic() - began_s
        print(f"said after {took_s:.1f} s")
        assert took_s < TOLD_S_MAX
        self.metrics.wait("metrics", lambda it: it.value("eos_flow_partitions", flow=name, state="waiting") == 2)

    def assert_over(self, mark: int) -> None:
        """It goes on, and was told of once."""
        for number in range(2):
            self.worker.wait_event("copying", after=mark, partition=number)
            assert len(self.worker.seen("waiting", after=mark, partition=number)) == 1, "once"
            read = clients.values(clients.read(self.copying.target, self.copying.copy, number))
            assert read == [b"before", b"more", b"again"]
        assert self.worker.stop() == 0, self.worker.tail()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    """A source and a target that fail when they are told to."""
    with KafkaBroker(tmp_path / "source") as source, KafkaBroker(tmp_path / "target") as target:
        yield source, target


@pytest.mark.parametrize("engine", ["records", "batches"])
@pytest.mark.parametrize(("side", "api"), [(0, "Fetch"), (1, "Produce")])
def test_what_is_refused_waits_and_goes_on(
    brokers: tuple[KafkaBroker, KafkaBroker], tmp_path: Path, side: int, api: str, engine: str
) -> None:
    running = Running(*brokers, tmp_path, engine)
    try:
        mark = running.worker.mark()
        with brokers[side].faults.fail(api, STORAGE, times=None):
            running.put(b"more")
            running.assert_said(mark, time.monotonic())
        running.wait_copied(b"more")
        running.copy(b"again")
        running.assert_over(mark)
    finally:
        running.copying.close()
