"""Kafka's own command-line tools, and its Java clients in them, in front of the embedded broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_container import need_kafka
from integration_tests.harness.kafka_tools import KafkaTools

pytestmark = pytest.mark.kafka

RECORDS = "".join(f"k{number}:v{number}\n" for number in range(12))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    need_kafka()
    directory: Path = tmp_path_factory.mktemp("tools")
    broker = EmbeddedBroker(directory)
    broker.start()
    started = KafkaTools(broker.bootstrap)
    try:
        started.start()
        started.run("kafka-topics.sh", "--create", "--topic", "t", "--partitions", "3", "--config", "retention.ms=-1")
        keys = ("--property", "parse.key=true", "--property", "key.separator=:")
        started.run("kafka-console-producer.sh", "--topic", "t", *keys, lines=RECORDS)
        yield started
    finally:
        started.stop()
        broker.stop()


def consume(tools: KafkaTools, group: str, *options: str) -> list[str]:
    return sorted(
        line
        for line in tools.run(
            "kafka-console-consumer.sh", "--topic", "t", "--group", group, "--from-beginning", "--max-messages", "12",
            "--timeout-ms", "20000", *options,
        ).splitlines()
        if line.startswith("v")
    )  # fmt: skip


@pytest.mark.tier("full")
def test_consumers_of_both_protocols_and_their_groups(tools: KafkaTools) -> None:
    values = sorted(f"v{number}" for number in range(12))
    assert consume(tools, "new", "--consumer-property", "group.protocol=consumer") == values
    assert consume(tools, "old", "--consumer-property", "group.protocol=classic") == values
    groups = "kafka-consumer-groups.sh"
    listed = [line.split() for line in tools.run(groups, "--list", "--state", "--type").splitlines()]
    assert ["new", "Consumer", "Empty"] in listed
    assert ["old", "Classic", "Empty"] in listed
    described = tools.run(groups, "--describe", "--all-groups")
    for group in ("new", "old"):
        rows = [line.split() for line in described.splitlines() if line.startswith(group)]
        assert sum(int(row[3]) for row in rows) == 12
        assert all(row[3:6] == [row[4], row[4], "0"] for row in rows), described
    reset = tools.run(groups, "--group", "new", "--reset-offsets", "--to-earliest", "--topic", "t", "--execute")
    assert sorted(line.split()[2:] for line in reset.splitlines() if line.startswith("new")) == [
        ["0", "0"], ["1", "0"], ["2", "0"]
    ]  # fmt: skip
    deleted = tools.run(groups, "--group", "old", "--delete-offsets", "--topic", "t")
    assert deleted.count("Successful") == 3
    assert "was successful" in tools.run(groups, "--group", "new", "--delete")


@pytest.mark.tier(kafka="full")
def test_topics_and_their_configs(tools: KafkaTools) -> None:
    entity = ("--entity-type", "topics", "--entity-name", "t")
    changes = ("--add-config", "cleanup.policy=[compact,delete]", "--delete-config", "retention.ms")
    tools.run("kafka-configs.sh", "--alter", *entity, *changes)
    described = tools.run("kafka-configs.sh", "--describe", *entity)
    assert "cleanup.policy=compact,delete" in described
    assert "retention.ms" not in described
    broker = tools.run("kafka-configs.sh", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert "offsets.retention.minutes=10080" in broker
    tools.run("kafka-topics.sh", "--create", "--topic", "u")
    tools.run("kafka-topics.sh", "--alter", "--topic", "u", "--partitions", "5")
    described = tools.run("kafka-topics.sh", "--describe", "--exclude-internal")
    counts = [line.split("\t")[0::2][:2] for line in described.splitlines() if line.startswith("Topic:")]
    assert counts == [["Topic: t", "PartitionCount: 3"], ["Topic: u", "PartitionCount: 5"]]
    tools.run("kafka-topics.sh", "--delete", "--topic", "u")
    assert tools.run("kafka-topics.sh", "--list").split() == ["__consumer_offsets", "__transaction_state", "t"]


@pytest.mark.tier(kafka="full")
def test_brokers_and_quotas(tools: KafkaTools) -> None:
    everyone = ("--entity-type", "brokers", "--entity-default")
    tools.run("kafka-configs.sh", "--alter", *everyone, "--add-config", "log.retention.ms=86400000")
    assert "log.retention.ms=86400000" in tools.run("kafka-configs.sh", "--describe", *everyone)
    tools.run("kafka-configs.sh", "--alter", *everyone, "--delete-config", "log.retention.ms")
    client = ("--entity-type", "clients", "--entity-name", "loader")
    tools.run("kafka-configs.sh", "--alter", *client, "--add-config", "producer_byte_rate=1048576")
    described = tools.run("kafka-configs.sh", "--describe", *client)
    assert "Quota configs for client-id 'loader' are producer_byte_rate=1048576.0" in described
    tools.run("kafka-configs.sh", "--alter", *client, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in tools.run("kafka-configs.sh", "--describe", *client)


def test_features_and_quorum(tools: KafkaTools) -> None:
    features = tools.run("kafka-features.sh", "describe")
    levels = [line.split() for line in features.splitlines() if "transaction.version" in line]
    assert levels[0][1:6] == ["transaction.version", "SupportedMinVersion:", "0", "SupportedMaxVersion:", "2"]
    status = tools.run("kafka-metadata-quorum.sh", "describe", "--status")
    assert [line.split() for line in status.splitlines() if line.startswith("LeaderId")] == [["LeaderId:", "1"]]
    replicas = tools.run("kafka-metadata-quorum.sh", "describe", "--replication").splitlines()
    assert replicas[1].split()[0] == "1"
    assert "Leader" in replicas[1]


@pytest.mark.tier("full")
def test_offsets_and_logs(tools: KafkaTools) -> None:
    offsets = tools.run("kafka-get-offsets.sh", "--topic", "t").splitlines()
    ends = {int(line.split(":")[1]): int(line.split(":")[2]) for line in offsets}
    assert sum(ends.values()) == 12
    full = max(ends, key=lambda partition: ends[partition])
    wanted = {"partitions": [{"topic": "t", "partition": full, "offset": 1}], "version": 1}
    tools.write("/tmp/records.json", json.dumps(wanted))
    deleted = tools.run("kafka-delete-records.sh", "--offset-json-file", "/tmp/records.json")
    assert f"partition: t-{full}\tlow_watermark: 1" in deleted
    earliest = tools.run("kafka-get-offsets.sh", "--topic-partitions", f"t:{full}", "--time", "earliest").strip()
    assert earliest == f"t:{full}:1"
    logs = tools.run("kafka-log-dirs.sh", "--describe", "--topic-list", "t")
    (directory,) = json.loads(logs.splitlines()[-1])["brokers"][0]["logDirs"]
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert sizes.keys() == {"t-0", "t-1", "t-2"}
    assert sum(sizes.values()) > 12


@pytest.mark.tier("full")
def test_what_one_broker_cannot_do_is_said(tools: KafkaTools) -> None:
    election = tools.run("kafka-leader-election.sh", "--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert "Valid replica already elected" in election
    moves = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}
    tools.write("/tmp/moves.json", json.dumps(moves))
    moved = tools.run("kafka-reassign-partitions.sh", "--reassignment-json-file", "/tmp/moves.json", "--execute")
    assert "Successfully started partition reassignment" in moved
    assert "No partition reassignments found" in tools.run("kafka-reassign-partitions.sh", "--list")
