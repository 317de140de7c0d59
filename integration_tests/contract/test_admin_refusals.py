"""What admin requests are refused, and with which error: the same on both brokers, request by request."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from integration_tests.harness import clients, raw

NONE, INVALID = ErrorCode.none, ErrorCode.invalid_request
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC = 2
STRANGER = uuid.UUID(int=5)
NO_TOPIC = "no-such-topic"

TAKEN = {
    "cleanup.policy": ["", "delete,delete", "compact, delete"],
    "compression.gzip.level": ["-1"],
    "compression.lz4.level": ["17"],
    "compression.type": ["gzip"],
    "compression.zstd.level": ["-131072"],
    "delete.retention.ms": ["0"],
    "flush.messages": ["1"],
    "flush.ms": ["0"],
    "follower.replication.throttled.replicas": ["*", "1:1"],
    "index.interval.bytes": ["0"],
    "leader.replication.throttled.replicas": [""],
    "local.retention.bytes": ["-1"],
    "local.retention.ms": ["-1", "5"],
    "max.compaction.lag.ms": ["1"],
    "max.message.bytes": ["0", " 100 "],
    "message.timestamp.before.max.ms": ["0"],
    "message.timestamp.type": ["LogAppendTime"],
    "min.cleanable.dirty.ratio": ["1"],
    "min.insync.replicas": ["5"],
    "preallocate": ["TRUE", "true"],
    "remote.log.copy.disable": ["true"],
    "remote.log.delete.on.disable": ["true"],
    "remote.storage.enable": ["false"],
    "retention.bytes": ["-2", "-1"],
    "retention.ms": ["-1", "٣"],
    "segment.bytes": ["1048576", "+1048576"],
    "segment.index.bytes": ["4"],
    "segment.ms": ["1"],
    "unclean.leader.election.enable": ["true"],
}
REFUSED = {
    "cleanup.policy": ["none", "Delete"],
    "compression.gzip.level": ["0", "10"],
    "compression.lz4.level": ["0", "18"],
    "compression.type": ["none", "GZIP"],
    "compression.zstd.level": ["23"],
    "delete.retention.ms": ["-1"],
    "errors.deadletterqueue.x": ["1"],
    "file.delete.delay.ms": ["-1"],
    "flush.messages": ["0"],
    "flush.ms": ["-1"],
    "follower.replication.throttled.replicas": ["x"],
    "index.interval.bytes": ["-1"],
    "local.retention.bytes": ["-3"],
    "max.compaction.lag.ms": ["0"],
    "max.message.bytes": ["-1", "x", "2147483648"],
    "message.downconversion.enable": ["true"],
    "message.format.version": ["3.0"],
    "message.timestamp.after.max.ms": ["-1"],
    "message.timestamp.type": ["createTime"],
    "min.cleanable.dirty.ratio": ["1.1", "-0.1", "nan"],
    "min.compaction.lag.ms": ["-1"],
    "min.insync.replicas": ["0"],
    "nonsense": ["1"],
    "preallocate": ["yes"],
    "remote.storage.enable": ["true"],
    "retention.ms": ["-2", "1.5"],
    "segment.bytes": ["13", "1048575", "1_048_576"],
    "segment.index.bytes": ["3"],
    "segment.jitter.ms": ["-1"],
    "segment.ms": ["0"],
}


@pytest.fixture(scope="module")
def bootstrap(brokers: Any) -> str:
    return str(brokers.target.bootstrap)


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    name = f"admin-{uuid.uuid4().hex[:8]}"
    clients.create_topic(bootstrap, name, 4)
    return name


def alter(bootstrap: str, topic: str, *changes: tuple[str, int, str | None], times: int = 1) -> ErrorCode:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    answer = raw.call(bootstrap, "incremental_alter_configs", 1, resources=[resource] * times, validate_only=True)
    codes = {each.error_code for each in answer.responses}
    assert len(codes) == 1
    return ErrorCode(codes.pop())


@pytest.mark.parametrize("name", sorted(TAKEN.keys() | REFUSED.keys()))
def test_values_of_topic_configs(bootstrap: str, topic: str, name: str) -> None:
    for value in TAKEN.get(name, []):
        assert alter(bootstrap, topic, (name, SET, value)) is NONE, value
    for value in REFUSED.get(name, []):
        assert alter(bootstrap, topic, (name, SET, value)) is ErrorCode.invalid_config, value


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ([("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")], ErrorCode.invalid_config),
        ([("retention.ms", SET, "10"), ("retention.ms", SET, "5")], INVALID),
        ([("retention.ms", SET, None)], INVALID),
        ([("retention.ms", DELETE, None)], NONE),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
        ([("nonsense", APPEND, "1")], ErrorCode.invalid_config),
        ([("cleanup.policy", APPEND, "compact")], NONE),
        ([("cleanup.policy", APPEND, "delete")], NONE),
        ([("cleanup.policy", SUBTRACT, "delete")], NONE),
        ([("cleanup.policy", SUBTRACT, "compact")], NONE),
    ],
)
def test_changes_of_topic_configs(
    bootstrap: str, topic: str, changes: list[tuple[str, int, str | None]], error_code: ErrorCode
) -> None:
    assert alter(bootstrap, topic, *changes) is error_code


@pytest.mark.parametrize(
    ("name", "times", "error_code"),
    [
        (NO_TOPIC, 1, ErrorCode.unknown_topic_or_partition),
        ("a b", 1, ErrorCode.invalid_topic_exception),
        ("", 1, INVALID),
        (NO_TOPIC, 2, INVALID),
    ],
)
def test_topics_that_have_no_configs(bootstrap: str, name: str, times: int, error_code: ErrorCode) -> None:
    assert alter(bootstrap, name, ("retention.ms", SET, "1"), times=times) is error_code


@pytest.mark.parametrize(
    ("name", "error_code"),
    [
        (NO_TOPIC, ErrorCode.unknown_topic_or_partition),
        ("a b", ErrorCode.invalid_topic_exception),
        ("", ErrorCode.invalid_topic_exception),
    ],
)
def test_configs_of_no_topic(bootstrap: str, name: str, error_code: ErrorCode) -> None:
    resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    (found,) = raw.call(bootstrap, "describe_configs", 4, resources=[resource]).results
    assert found.error_code is error_code


def assigned(*brokers: list[int]) -> dict[str, Any]:
    assignments = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(brokers)]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({}, NONE),
        ({"num_partitions": -1, "replication_factor": -1}, NONE),
        ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"replication_factor": 0}, ErrorCode.invalid_replication_factor),
        ({"replication_factor": 2}, ErrorCode.invalid_replication_factor),
        ({"name": "a b"}, ErrorCode.invalid_topic_exception),
        ({"name": ""}, ErrorCode.invalid_topic_exception),
        ({"name": "x" * 250}, ErrorCode.invalid_topic_exception),
        ({"name": "__consumer_offsets"}, ErrorCode.topic_already_exists),
        ({"configs": [{"name": "retention.ms", "value": "x"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "retention.ms", "value": None}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "nonsense", "value": "1"}]}, ErrorCode.invalid_config),
        (assigned([1]), NONE),
        (assigned([1]) | {"num_partitions": 1}, INVALID),
        (assigned([1]) | {"replication_factor": 1}, INVALID),
        (assigned([9]), ErrorCode.invalid_replica_assignment),
        (assigned([1, 1]), ErrorCode.invalid_replica_assignment),
        (assigned([]), ErrorCode.invalid_replica_assignment),
    ],
)
def test_topics_that_could_be_made(
    bootstrap: str, unique: Callable[[str], str], changes: dict[str, Any], error_code: ErrorCode
) -> None:
    wanted = {"name": unique("new"), "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    for _ in range(2):
        answer = raw.call(bootstrap, "create_topics", 7, topics=[wanted | changes], timeout=5_000, validate_only=True)
        assert answer.topics[0].error_code is error_code, "and trying doesn't make it"


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({}, NONE),
        ({"count": 4}, ErrorCode.invalid_partitions),
        ({"count": -1}, ErrorCode.invalid_partitions),
        ({"name": NO_TOPIC}, ErrorCode.unknown_topic_or_partition),
        ({"assignments": [{"broker_ids": [1]}]}, NONE),
        ({"assignments": [{"broker_ids": [9]}]}, ErrorCode.invalid_replica_assignment),
        ({"assignments": [{"broker_ids": [1]}] * 2}, ErrorCode.invalid_replica_assignment),
        ({"assignments": []}, ErrorCode.invalid_replica_assignment),
    ],
)
def test_partitions_that_could_be_added(
    bootstrap: str, topic: str, changes: dict[str, Any], error_code: ErrorCode
) -> None:
    wanted = {"name": topic, "count": 5, "assignments": None} | changes
    answer = raw.call(bootstrap, "create_partitions", 3, topics=[wanted], timeout=5_000, validate_only=True)
    assert answer.results[0].error_code is error_code


def test_a_topic_can_be_grown_once_in_a_request(bootstrap: str, topic: str) -> None:
    wanted = [{"name": topic, "count": 5, "assignments": None}] * 2
    answer = raw.call(bootstrap, "create_partitions", 3, topics=wanted, timeout=5_000, validate_only=True)
    assert [each.error_code for each in answer.results] == [INVALID]


@pytest.mark.parametrize(
    ("name", "topic_id", "error_code"),
    [
        (NO_TOPIC, None, ErrorCode.unknown_topic_or_partition),
        (None, STRANGER, ErrorCode.unknown_topic_id),
        (None, None, INVALID),
        ("__consumer_offsets", STRANGER, INVALID),
    ],
)
def test_topics_that_are_not_deleted(
    bootstrap: str, name: str | None, topic_id: uuid.UUID | None, error_code: ErrorCode
) -> None:
    wanted = [{"name": name, "topic_id": topic_id}]
    answer = raw.call(bootstrap, "delete_topics", 6, topics=wanted, timeout=5_000)
    assert [each.error_code for each in answer.responses] == [error_code]


@pytest.mark.parametrize(
    ("partition", "offset", "found"),
    [
        (0, 0, (NONE, 0)),
        (0, -1, (NONE, 0)),
        (0, -2, (ErrorCode.offset_out_of_range, -1)),
        (0, 5, (ErrorCode.offset_out_of_range, -1)),
        (7, 0, (ErrorCode.unknown_topic_or_partition, -1)),
    ],
)
def test_records_of_an_empty_partition(
    bootstrap: str, topic: str, partition: int, offset: int, found: tuple[ErrorCode, int]
) -> None:
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
    answer = raw.call(bootstrap, "delete_records", 2, topics=topics, timeout=5_000).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == found
