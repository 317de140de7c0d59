"""Requests that name one thing more than once: what counts, and what is answered."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from integration_tests.harness import clients, raw
from kafka_records.records import encode

NONE, INVALID, UNKNOWN = ErrorCode.none, ErrorCode.invalid_request, ErrorCode.unknown_topic_or_partition
NO_ID = uuid.UUID(int=0)
WAIT_MS = 30_000
Codes = list[tuple[str, list[tuple[int, ErrorCode]]]]


@pytest.fixture(scope="module")
def bootstrap(brokers: Any) -> str:
    return str(brokers.target.bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"repeated-{uuid.uuid4().hex[:8]}"
    clients.create_topic(bootstrap, name, 3)
    return name


def codes(topics: Any, partitions: str = "partitions", index: str = "partition_index") -> Codes:
    return [
        (topic.name, [(getattr(each, index), ErrorCode(each.error_code)) for each in getattr(topic, partitions)])
        for topic in topics
    ]


def test_produce_takes_the_last_batch_of_a_partition(bootstrap: str, topic: str) -> None:
    def named(partition: int, *values: bytes) -> dict[str, Any]:
        return {"index": partition, "records": bytes(encode([(None, value) for value in values], 1_700_000_000_000))}

    for number, topics in enumerate(
        (
            [{"name": topic, "partition_data": [named(0, b"1"), named(0, b"2", b"3"), named(1, b"4")]}],
            [
                {"name": topic, "partition_data": [named(0, b"1"), named(1, b"4")]},
                {"name": topic, "partition_data": [named(0, b"2", b"3")]},
            ],
        )
    ):
        answer = raw.call(bootstrap, "produce", 9, acks=-1, timeout=WAIT_MS, topic_data=topics)
        ((name, answered),) = codes(answer.responses, "partition_responses", "index")
        assert (name, sorted(answered)) == (topic, [(0, NONE), (1, NONE)])
        ends = {each.index: each.base_offset for each in answer.responses[0].partition_responses}
        assert ends == {0: 2 * number, 1: number}
    assert clients.values(clients.read(bootstrap, topic, 0)) == [b"2", b"3"] * 2


def test_list_offsets_refuses_a_partition(bootstrap: str, topic: str) -> None:
    def at(partition: int, timestamp: int) -> dict[str, int]:
        return {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}

    for topics in (
        [{"name": topic, "partitions": [at(0, -1), at(0, -2), at(1, -1), at(9, -1), at(9, -1)]}],
        [
            {"name": topic, "partitions": [at(0, -1), at(9, -1)]},
            {"name": topic, "partitions": [at(0, -1), at(1, 5), at(9, -1)]},
        ],
    ):
        ((name, answered),) = codes(raw.call(bootstrap, "list_offsets", 7, replica_id=-1, topics=topics).topics)
        assert (name, sorted(answered)) == (topic, [(0, INVALID), (1, NONE), (9, INVALID)])


def test_offset_commit_answers_each_and_keeps_the_last(bootstrap: str, topic: str) -> None:
    group = f"repeated-{uuid.uuid4().hex[:8]}"

    def at(partition: int, offset: int) -> dict[str, Any]:
        return {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}

    clients.committed(bootstrap, group, topic)  # the coordinator is there
    topics = [
        {"name": topic, "partitions": [at(0, 1), at(0, 2), at(1, 9)]},
        {"name": topic, "partitions": [at(0, 3)]},
    ]
    answer = raw.call(
        bootstrap, "offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    assert codes(answer.topics) == [(topic, [(0, NONE), (0, NONE), (1, NONE)]), (topic, [(0, NONE)])]
    wanted = [{"name": topic, "partition_indexes": [0, 1]}]
    fetched = raw.call(bootstrap, "offset_fetch", 7, group_id=group, topics=wanted, require_stable=True)
    offsets = {each.partition_index: each.committed_offset for each in fetched.topics[0].partitions}
    assert offsets == {0: 3, 1: 9}


def test_delete_records_takes_the_last_offset(bootstrap: str, topic: str) -> None:
    clients.put(clients.producer(bootstrap), topic, b"1", b"2", b"3", partition=1)
    topics = [
        {"name": topic, "partitions": [{"partition_index": 1, "offset": -1}, {"partition_index": 9, "offset": 0}]},
        {"name": topic, "partitions": [{"partition_index": 1, "offset": 1}, {"partition_index": 9, "offset": 0}]},
    ]
    answer = raw.call(bootstrap, "delete_records", 2, timeout_ms=WAIT_MS, timeout=WAIT_MS, topics=topics)
    ((name, answered),) = codes(answer.topics)
    assert (name, sorted(answered)) == (topic, [(1, NONE), (9, UNKNOWN)])
    assert {each.low_watermark for each in answer.topics[0].partitions} == {1, -1}


def test_delete_topics_deletes_nothing_that_is_named_twice(bootstrap: str, topic: str) -> None:
    found = clients.topic_id(bootstrap, topic)
    for topics, message in (
        ([(topic, NO_ID), (topic, NO_ID)], "Duplicate topic name."),
        ([(None, found), (None, found)], "Duplicate topic id."),
        ([(None, found), (topic, NO_ID)], "The provided topic name maps to an ID that was already supplied."),
        ([(topic, NO_ID), (None, found)], "The provided topic name maps to an ID that was already supplied."),
    ):
        named = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
        (answer,) = raw.call(bootstrap, "delete_topics", 6, topics=named, timeout=WAIT_MS).responses
        assert (answer.error_code, answer.error_message) == (INVALID, message)
        assert clients.topic_id(bootstrap, topic) == found
    (answer,) = raw.call(bootstrap, "delete_topics", 5, topic_names=[topic] * 2, timeout=WAIT_MS).responses
    assert (answer.name, answer.error_code) == (topic, INVALID)
    assert topic in clients.topics(bootstrap)


def test_other_admin_requests_answer_once(bootstrap: str, topic: str) -> None:
    wanted = [{"name": topic, "count": 5, "assignments": None}] * 2
    (grown,) = raw.call(bootstrap, "create_partitions", 3, topics=wanted, timeout=WAIT_MS, validate_only=True).results
    assert (grown.error_code, grown.error_message) == (INVALID, "Duplicate topic name.")
    (deleted,) = raw.call(bootstrap, "delete_groups", 2, groups_names=["no-such-group"] * 2).results
    assert deleted.error_code == ErrorCode.group_id_not_found
    topics = [{"topic": topic, "partitions": [0, 0]}, {"topic": topic, "partitions": [0]}]
    (described,) = raw.call(bootstrap, "describe_log_dirs", 4, topics=topics).results
    assert [(each.name, [one.partition_index for one in each.partitions]) for each in described.topics] == [
        (topic, [0])
    ]
    answer = raw.call(bootstrap, "list_config_resources", 1, resource_types=[2, 2])
    names = [each.resource_name for each in answer.config_resources]
    assert len(names) == len(set(names))
    assert topic in names
