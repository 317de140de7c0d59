"""Kafka's own programs, in transaction version 2, on the embedded broker. On Kafka they prove nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness import clients, java
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_container import need_kafka
from integration_tests.harness.transacting import transaction_client

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COPIED_S_MAX = 240.0

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    need_kafka()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(tmp_path_factory.mktemp("java"))
    made.start()
    yield made
    made.stop()


def committed(bootstrap: str, topic: str, partitions: int = 1) -> Counter[bytes | None]:
    return Counter(
        value for number in range(partitions) for value in clients.values(clients.read(bootstrap, topic, number))
    )


def test_consume_transform_produce_with_random_aborts(broker: EmbeddedBroker) -> None:
    for topic in ("input", "output"):
        clients.create_topic(broker.bootstrap, topic)
    values = [b"%d" % number for number in range(400)]
    clients.put(clients.producer(broker.bootstrap), "input", *values)
    java.run(
        COPIER, "--broker-list", broker.bootstrap, "--input-topic", "input", "--input-partition", "0",
        "--output-topic", "output", "--transactional-id", "copier", "--consumer-group", "copiers",
        "--transaction-size", "20", "--max-messages", "400", "--enable-random-aborts", "--use-group-metadata",
    )  # fmt: skip
    assert committed(broker.bootstrap, "output") == Counter(values)


def test_operators_look_at_transactions_and_end_one(broker: EmbeddedBroker) -> None:
    with transaction_client(broker.bootstrap, "held", "holder", "holders") as client:
        producer = client.fresh(timeout_ms=600_000)
        assert client.produce(producer, 0, version=12)[1] == 0
        tool = (TRANSACTIONS, "--bootstrap-server", broker.bootstrap)
        assert "Ongoing" in java.run(*tool, "describe", "--transactional-id", "holder")
        assert "holder" in java.run(*tool, "list", "--duration-filter", "0")
        assert clients.read(broker.bootstrap, "held") == []
        java.run(*tool, "abort", "--topic", "held", "--partition", "0", "--start-offset", "0")
        clients.put(clients.producer(broker.bootstrap), "held", b"after")
        assert clients.values(clients.read(broker.bootstrap, "held")) == [b"after"]


@pytest.mark.tier("long")
def test_mirror_maker_copies_exactly_once_from_one_to_another(tmp_path: Path) -> None:
    source, target = EmbeddedBroker(tmp_path / "source"), EmbeddedBroker(tmp_path / "target")
    for each in (source, target):
        each.start()
    try:
        clients.create_topic(source.bootstrap, "t", 2)
        with java.MirrorMaker(tmp_path, source.bootstrap, target.bootstrap, "t") as mirror:
            expected = write(source.bootstrap, range(4))
            copied(mirror, target.bootstrap, expected)
            target.kill()
            target.restart()
            expected += write(source.bootstrap, range(4, 8))
            mirror.kill()
            mirror.restart()
            expected += write(source.bootstrap, range(8, 12))
            copied(mirror, target.bootstrap, expected)
    finally:
        for each in (source, target):
            each.stop()


def write(bootstrap: str, rounds: range) -> Counter[bytes | None]:
    """Transactions of 50 records, every fourth aborted; what was committed."""
    writer = clients.transactional(bootstrap, "writer")
    kept: Counter[bytes | None] = Counter()
    for round_ in rounds:
        writer.begin_transaction()
        values = [b"%d-%d" % (round_, number) for number in range(50)]
        clients.put(writer, "t", *values, partition=round_ % 2)
        if round_ % 4 == 3:
            writer.abort_transaction(clients.TIMEOUT_S)
        else:
            writer.commit_transaction(clients.TIMEOUT_S)
            kept.update(values)
    return kept


def copied(mirror: java.MirrorMaker, bootstrap: str, expected: Counter[bytes | None]) -> None:
    """Wait until the copy holds as many records as were committed, and compare."""
    deadline = time.monotonic() + COPIED_S_MAX
    found: Counter[bytes | None] = Counter()
    while found.total() < expected.total():
        assert time.monotonic() < deadline, f"{found.total()} of {expected.total()}:\n{mirror.log_tail()}"
        time.sleep(0.5)
        if "a.t" in clients.topics(bootstrap):
            found = committed(bootstrap, "a.t", 2)
    assert found == expected
