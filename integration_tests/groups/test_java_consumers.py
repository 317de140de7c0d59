"""Kafka's own consumer, in both group protocols, goes on at the target where its group was at the source."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY, commit_at_source, wait_exact
from integration_tests.harness import clients
from integration_tests.harness.copying import PARTITIONS
from integration_tests.harness.kafka_tools import KafkaTools
from replicator.groups.decision import OffsetToCommit

RECORDS, READ = 40, 13  # of each partition
SOURCES_EPOCH = 50


@pytest.mark.tier("long")
@pytest.mark.parametrize("kind", [pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True, scope="session")
def test_it_reads_on_whatever_the_sources_leader_epoch_was(
    make_copying: MakeCopying, target_tools: KafkaTools, unique: Callable[[str], str]
) -> None:
    """The source's leaders have changed often, and the consumer there has committed their epoch with its offset."""
    copying = make_copying(groups=EVERY)
    producer = clients.producer(copying.source)
    for number in range(RECORDS * PARTITIONS):
        producer.produce(copying.topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(clients.TIMEOUT_S) == 0
    groups = {protocol: unique(protocol) for protocol in ("classic", "consumer")}
    for group in groups.values():
        commit_at_source(copying, group, OffsetToCommit(READ, "", SOURCES_EPOCH))
    worker = copying.running()
    for group in groups.values():
        wait_exact(copying, group)
    assert worker.stop() == 0, worker.tail()
    left = {str(number) for number in range(READ * PARTITIONS, RECORDS * PARTITIONS)}
    for protocol, group in groups.items():
        said = target_tools.run(
            "kafka-console-consumer.sh", "--topic", copying.copy, "--group", group, "--max-messages", str(len(left)),
            "--timeout-ms", "10000", "--consumer-property", f"group.protocol={protocol}",
        )  # fmt: skip
        read = [line for line in said.splitlines() if line.isdigit()]
        assert (sorted(read), protocol) == (sorted(left), protocol)
