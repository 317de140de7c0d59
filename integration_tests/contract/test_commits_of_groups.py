"""What group sync rests on: who may commit for a group from outside, and reading many groups with one question."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode as E

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.kafka_tools import KafkaTools
from replicator.config import Cluster, Properties
from replicator.groups.decision import OffsetToCommit
from replicator.groups.ownership import GroupOffset
from replicator.model.partition import Partition
from replicator.wire import offset_commit
from replicator.wire import offset_fetch_groups as fetch
from replicator.wire.access import access
from replicator.wire.any_broker import body_at
from replicator.wire.connection import Connection, address_of
from replicator.wire.protocol import Exchange, made

LATER = frozenset({E.not_coordinator, E.coordinator_not_available, E.coordinator_load_in_progress})
GROUPS = 50
SOON_S = 60.0


@pytest.fixture
def connection(target: BrokerHandle) -> Iterator[Connection]:
    """To the only broker, which coordinates all groups."""
    cluster = access(Cluster(name="west", properties=Properties({"bootstrap.servers": target.bootstrap})))
    made = Connection(
        address_of(target.bootstrap), cluster, "test", deadline_s=time.monotonic() + SOON_S, response_bytes_max=2**24
    )
    with closing(made):
        yield made


@pytest.fixture
def at(target: BrokerHandle, unique: Callable[[str], str]) -> Partition:
    name = unique("synced")
    clients.create_topic(target.bootstrap, name)
    clients.put(clients.producer(target.bootstrap), name, *(b"%d" % number for number in range(10)))
    return Partition(name, 0)


def commit(connection: Connection, group: str, at: Partition, value: OffsetToCommit) -> int:
    """Commit as somebody who is no member; the code."""
    deadline_s = time.monotonic() + SOON_S
    while True:
        request = offset_commit.request("test", group, {at.topic: {at.partition: value}})
        answer = connection.receive(connection.send(request, deadline_s), deadline_s)
        assert answer is not None
        codes = offset_commit.read(answer, body_at(answer))
        assert codes.keys() == {at.topic}
        (code,) = codes[at.topic].values()
        if code not in LATER or time.monotonic() > deadline_s:
            return code


def value_of(connection: Connection, group: str, at: Partition) -> tuple[int, str, int]:
    """What the group has committed there, stable: offset, metadata and leader epoch."""

    def fields(exchange: Exchange) -> dict[str, Any]:
        types = exchange.types
        topic = made(types.OffsetFetchRequestTopics, name=at.topic, partition_indexes=(at.partition,))
        of_group = made(types.OffsetFetchRequestGroup, group_id=group, topics=(topic,))
        return {"groups": (of_group,), "require_stable": True}

    answer = connection.ask(fetch.API, fields, time.monotonic() + SOON_S)
    (found,) = answer.groups
    (value,) = found.topics[0].partitions
    assert (found.error_code, value.error_code) == (E.none, E.none)
    return value.committed_offset, value.metadata, value.committed_leader_epoch


def joined(bootstrap: str, group: str, topic: str, protocol: str) -> Consumer:
    """A member that holds the partition."""
    given = {"session_timeout_ms": 6_000} if protocol == "classic" else {}
    member = clients.consumer(bootstrap, group_id=group, group_protocol=protocol, **given)
    member.subscribe([topic])
    deadline = time.monotonic() + SOON_S
    while not member.assignment():
        assert time.monotonic() < deadline, "no assignment"
        member.poll(0.1)
    return member


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_moved_from_outside_before_and_after_it_has_members_and_never_while(
    target: BrokerHandle, connection: Connection, at: Partition, unique: Callable[[str], str], protocol: str
) -> None:
    group = unique("group")
    assert commit(connection, group, at, OffsetToCommit(4, "é and \0 verbatim")) == E.none
    assert value_of(connection, group, at) == (4, "é and \0 verbatim", -1)
    member = joined(target.bootstrap, group, at.topic, protocol)
    assert commit(connection, group, at, OffsetToCommit(7, "")) == E.unknown_member_id
    assert value_of(connection, group, at)[0] == 4
    member.commit(offsets=[TopicPartition(*at, 5)], asynchronous=False)
    member.close()
    assert value_of(connection, group, at)[0] == 5
    assert commit(connection, group, at, OffsetToCommit(2, "")) == E.none  # back, too
    assert value_of(connection, group, at) == (2, "", -1)


def test_offsets_of_many_groups_come_with_one_question(
    connection: Connection, at: Partition, unique: Callable[[str], str]
) -> None:
    groups = [unique(f"group-{number}") for number in range(GROUPS)]
    for number, group in enumerate(groups[:-1]):
        assert commit(connection, group, at, OffsetToCommit(number, f"m{number}")) == E.none
    wanted: fetch.Wanted
    for wanted in ({at.topic: [at.partition]}, None):
        deadline_s = time.monotonic() + SOON_S
        request = fetch.request("test", dict.fromkeys(groups, wanted), stable=True)
        answer = connection.receive(connection.send(request, deadline_s), deadline_s)
        assert answer is not None
        found = fetch.read(answer, body_at(answer))
        assert list(found) == groups
        assert {it.code for it in found.values()} == {E.none}
        for number, group in enumerate(groups[:-1]):
            assert found[group].topics() == {at.topic: {at.partition: GroupOffset(number, f"m{number}")}}
        nothing: dict[str, Any] = {at.topic: {at.partition: None}} if wanted else {}
        assert found[groups[-1]].topics() == nothing


@pytest.mark.tier(kafka="full")
@pytest.mark.parametrize("kind", [pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True, scope="session")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_consumer_goes_on_only_without_the_leader_epoch_of_another_cluster(
    connection: Connection, at: Partition, target_tools: KafkaTools, unique: Callable[[str], str], protocol: str
) -> None:
    """The source's is usually higher: one for each restart of a broker there."""
    value = OffsetToCommit(3, "")
    read = {}
    for name, each in (("without", value), ("with", value._replace(leader_epoch=50))):
        group = unique(name)
        assert commit(connection, group, at, each) == E.none
        said = target_tools.run(
            "kafka-console-consumer.sh", "--topic", at.topic, "--group", group, "--max-messages", "7",
            "--timeout-ms", "10000", "--consumer-property", f"group.protocol={protocol}",
        )  # fmt: skip
        read[name] = [line for line in said.splitlines() if line.isdigit()]
    assert read == {"without": [str(number) for number in range(3, 10)], "with": []}
