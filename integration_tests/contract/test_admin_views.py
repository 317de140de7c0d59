"""What admin clients are told about partitions, and of what a single broker can't do."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from integration_tests.harness import clients, raw
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.processes import wait_until

NONE = ErrorCode.none
NO_TOPIC = "no-such-topic"
GROUP, SET, DELETE = 32, 0, 1


@pytest.fixture(scope="module")
def bootstrap(brokers: Any) -> str:
    return str(brokers.target.bootstrap)


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    name = f"views-{uuid.uuid4().hex[:8]}"
    clients.create_topic(bootstrap, name, 4)
    return name


def partitions(bootstrap: str, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    topics = [{"name": name} for name in names]
    answer = raw.call(
        bootstrap, "describe_topic_partitions", 0, topics=topics, response_partition_limit=limit, cursor=at
    )
    following = answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    return [(each.name, each.error_code, len(each.partitions)) for each in answer.topics], following


def test_partitions_are_described_page_by_page(bootstrap: str, topic: str) -> None:
    assert partitions(bootstrap, topic) == ([(topic, NONE, 4)], None)
    assert partitions(bootstrap, topic, limit=3) == ([(topic, NONE, 3)], (topic, 3))
    assert partitions(bootstrap, topic, limit=3, cursor=(topic, 3)) == ([(topic, NONE, 1)], None)
    assert partitions(bootstrap, topic, limit=4) == ([(topic, NONE, 4)], None)
    assert partitions(bootstrap, topic, "zzz", limit=4) == ([(topic, NONE, 4)], ("zzz", 0))
    assert partitions(bootstrap, topic, limit=0) == ([(topic, NONE, 1)], (topic, 1))


def test_all_topics_are_described_without_names(bootstrap: str, topic: str) -> None:
    found, following = partitions(bootstrap)
    while following is not None:  # an answer has 2,000 partitions at most, and other tests leave topics
        more, following = partitions(bootstrap, cursor=following)
        found += more
    assert [name for name, _, _ in found] == sorted(name for name, _, _ in found)
    assert sum(count for name, code, count in found if (name, code) == (topic, NONE)) == 4, "perhaps on two pages"
    assert partitions(bootstrap, cursor=("~", 0)) == ([], None)


def test_what_cannot_be_described(bootstrap: str, topic: str) -> None:
    assert partitions(bootstrap, NO_TOPIC) == ([(NO_TOPIC, ErrorCode.unknown_topic_or_partition, 0)], None)
    assert partitions(bootstrap, "a b") == ([("a b", ErrorCode.invalid_topic_exception, 0)], None)
    for cursor in ((topic, -1), ("zzz", 0)):
        assert partitions(bootstrap, topic, cursor=cursor) == ([(topic, ErrorCode.invalid_request, 0)], None)


def log_dirs(bootstrap: str, topics: Any, version: int = 4) -> Any:
    (directory,) = raw.call(bootstrap, "describe_log_dirs", version, topics=topics).results
    return directory


def test_sizes_of_logs(target: BrokerHandle, bootstrap: str, topic: str) -> None:
    producer = clients.producer(target.bootstrap)
    producer.produce(topic, b"x" * 10_000, partition=1)
    assert producer.flush(clients.TIMEOUT_S) == 0
    directory = log_dirs(bootstrap, [{"topic": topic, "partitions": [0, 1, 9]}, {"topic": NO_TOPIC, "partitions": [0]}])
    assert directory.total_bytes > directory.usable_bytes > 0
    (found,) = directory.topics
    sizes = {each.partition_index: (each.partition_size, each.is_future_key) for each in found.partitions}
    assert sizes.keys() == {0, 1}
    assert sizes[0] == (0, False)
    assert 10_000 < sizes[1][0] < 11_000
    assert topic in {each.name for each in log_dirs(bootstrap, None).topics}
    for version in (1, 2, 3):
        assert log_dirs(bootstrap, None, version).error_code is NONE


def test_the_only_broker_leads_already(bootstrap: str, topic: str) -> None:
    def elect(name: str | None) -> Any:
        wanted = None if name is None else [{"topic": name, "partitions": [0]}]
        answer = raw.call(bootstrap, "elect_leaders", 2, election_type=0, topic_partitions=wanted, timeout=5_000)
        found = answer.replica_election_results
        return answer.error_code, [each.error_code for topic in found for each in topic.partition_result]

    assert elect(topic) == (NONE, [ErrorCode.election_not_needed])
    assert elect(NO_TOPIC) == (NONE, [ErrorCode.unknown_topic_or_partition])
    assert elect(None) == (NONE, [])


def test_there_is_nowhere_to_move_a_partition(bootstrap: str, topic: str) -> None:
    for name, replicas, error_code in (
        (topic, [1], NONE),
        (topic, None, ErrorCode.no_reassignment_in_progress),
        (topic, [9], ErrorCode.invalid_replica_assignment),
        (topic, [], ErrorCode.invalid_replica_assignment),
        (NO_TOPIC, [1], ErrorCode.unknown_topic_or_partition),
    ):
        wanted = [{"name": name, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
        answer = raw.call(bootstrap, "alter_partition_reassignments", 1, timeout=5_000, topics=wanted)
        assert answer.responses[0].partitions[0].error_code is error_code
    listed = raw.call(bootstrap, "list_partition_reassignments", 0, timeout=5_000, topics=None)
    assert (listed.error_code, listed.topics) == (NONE, ())


def test_quotas_and_the_kinds_of_configs(bootstrap: str, topic: str) -> None:
    answer = raw.call(bootstrap, "describe_client_quotas", 1, components=[], strict=False)
    assert (answer.error_code, answer.entries) == (NONE, ())
    listed = raw.call(bootstrap, "list_config_resources", 1, resource_types=[2])
    assert (2, topic) in {(each.resource_type, each.resource_name) for each in listed.config_resources}
    assert raw.call(bootstrap, "list_config_resources", 1, resource_types=[99]).error_code is not NONE


def test_groups_with_configs_of_their_own_are_listed(bootstrap: str) -> None:
    group_id = f"views-{uuid.uuid4().hex[:8]}"

    def listed() -> set[tuple[int, str]]:
        found = raw.call(bootstrap, "list_config_resources", 1, resource_types=[GROUP]).config_resources
        return {(each.resource_type, each.resource_name) for each in found}

    def alter(operation: int, value: str | None) -> None:
        configs = [{"name": "consumer.session.timeout.ms", "config_operation": operation, "value": value}]
        resource = {"resource_type": GROUP, "resource_name": group_id, "configs": configs}
        answer = raw.call(bootstrap, "incremental_alter_configs", 1, resources=[resource], validate_only=False)
        assert answer.responses[0].error_code is NONE

    assert (GROUP, group_id) not in listed()
    alter(SET, "50000")
    wait_until(lambda: (GROUP, group_id) in listed(), "the group is listed", str)
    alter(DELETE, None)
    wait_until(lambda: (GROUP, group_id) not in listed(), "the group is listed no more", str)
