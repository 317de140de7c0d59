"""Share groups (KIP-932) go on at the target where they were at the source: Kafka's own consumers and tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import ASK_S, EVERY
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.group_reading import deleted
from integration_tests.harness.kafka_tools import KafkaTools
from integration_tests.harness.processes import wait_until
from replicator.config import Cluster, Properties
from replicator.group_sync.hold_topics import NamedHoldTopics
from replicator.group_sync.sync import GroupSync
from replicator.groups.decision import GroupVerdict, OffsetToCommit
from replicator.groups.ownership import GroupOffset
from replicator.model.errors import Unsupported
from replicator.model.partition import Partition
from replicator.wire.group_questions import GroupQuestions
from replicator.wire.share_groups import ShareValues
from tests.replicator.group_sync.fakes import FakeNotes, copy_of
from tests.replicator.group_sync.test_sync import A, Rig

ON_KAFKA = [pytest.param("kafka", marks=pytest.mark.kafka)]
RECORDS, READ = 40, 13


@pytest.fixture
def source_tools(source: BrokerHandle) -> Iterator[KafkaTools]:
    """Kafka's command-line tools, for the source."""
    started = KafkaTools(source.bootstrap)
    started.start()
    yield started
    started.stop()


def questions_of(bootstrap: str) -> GroupQuestions:
    return GroupQuestions(Cluster(name="any", properties=Properties({"bootstrap.servers": bootstrap})), "test")


def consumed(tools: KafkaTools, group: str, topic: str, most: int) -> list[int]:
    """What consumers of a share group get next, and acknowledge."""
    said = tools.run(
        "kafka-console-share-consumer.sh", "--topic", topic, "--group", group, "--max-messages", str(most),
        "--timeout-ms", "20000",
    )  # fmt: skip
    return [int(line) for line in said.splitlines() if line.isdigit()]


def reset(tools: KafkaTools, group: str, topic: str, to: str) -> None:
    options = ("--reset-offsets", "--group", group, "--topic", topic, to, "--execute")
    tools.run("kafka-share-groups.sh", *options)


def begun(copying: Copying, tools: KafkaTools, *groups: str) -> None:
    """Share groups that have read some records of the source."""
    producer = clients.producer(copying.source)
    for number in range(RECORDS):
        producer.produce(copying.topic, str(number).encode(), partition=0)
    assert producer.flush(clients.TIMEOUT_S) == 0
    for group in groups:
        reset(tools, group, copying.topic, "--to-earliest")
        assert sorted(consumed(tools, group, copying.topic, READ)) == list(range(READ))


def said(copying: Copying, group: str) -> dict[str, Any]:
    """What `groups` says of a group's only partition, and of the group."""
    (flow,) = copying.said("groups")[1]["flows"]
    found: dict[str, Any] = next((it for it in flow["groups"] if it["group"] == group), {"partitions": []})
    return {**found, **(found["partitions"][0] if found["partitions"] else {})}


def wait_said(copying: Copying, group: str, **fields: Any) -> dict[str, Any]:
    last: dict[str, Any] = {}

    def reached() -> bool:
        last.clear()
        last.update(said(copying, group))
        return fields.items() <= last.items()

    wait_until(reached, f"{group}: {fields}", lambda: str(last))
    return dict(last)


@pytest.mark.tier("long")
@pytest.mark.parametrize("kind", ON_KAFKA, indirect=True, scope="session")
def test_it_goes_on_where_it_was_and_is_left_alone_once_it_does(
    make_copying: MakeCopying, source_tools: KafkaTools, target_tools: KafkaTools, unique: Callable[[str], str]
) -> None:
    """An operator's reset at the target stays as well, until the offset there is deleted.

    Kafka's coordinator may still tell the start offset that the flow has set when all is acknowledged (4.3).
    """
    group, other = unique("share"), unique("reset")
    copying = make_copying(partitions=1, groups=EVERY)
    begun(copying, source_tools, group, other)
    worker = copying.running()
    for name in (group, other):
        found = wait_said(copying, name, kind="share", verdict="in_sync", source_offset=READ)
        assert (found["exact"], found["again"]) == (True, 0)
    assert sorted(consumed(target_tools, group, copying.copy, RECORDS - READ)) == list(range(READ, RECORDS))
    reset(target_tools, other, copying.copy, "--to-earliest")
    for name in (group, other):
        reset(source_tools, name, copying.topic, "--to-latest")
    for name in (group, other):
        wait_said(copying, name, verdict="not_ours", source_offset=RECORDS)
    assert said(copying, other)["target_offset"] == 0
    assert READ <= said(copying, group)["target_offset"] <= RECORDS + 2
    assert sorted(consumed(target_tools, other, copying.copy, RECORDS)) == list(range(RECORDS))
    assert worker.stop() == 0, worker.tail()
    assert {it["group"] for it in worker.seen("group_left_alone")} >= {group, other}
    target_tools.run("kafka-share-groups.sh", "--delete-offsets", "--group", other, "--topic", copying.copy)
    worker = copying.running()
    wait_said(copying, other, verdict="in_sync", source_offset=RECORDS)
    assert said(copying, group)["verdict"] == "not_ours"
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long")
@pytest.mark.parametrize("kind", ON_KAFKA, indirect=True, scope="session")
def test_it_follows_the_source_and_is_gone_with_it(
    make_copying: MakeCopying, source_tools: KafkaTools, unique: Callable[[str], str]
) -> None:
    group = unique("share")
    copying = make_copying(partitions=1, groups={**EVERY, "deleted": "delete"})
    begun(copying, source_tools, group)
    worker = copying.running()
    wait_said(copying, group, verdict="in_sync", source_offset=READ)
    consumed(source_tools, group, copying.topic, 5)
    wait_said(copying, group, verdict="in_sync", source_offset=READ + 5)
    reset(source_tools, group, copying.topic, "--to-earliest")
    wait_said(copying, group, verdict="in_sync", source_offset=0)
    with closing(questions_of(copying.target)) as target:
        assert group in target.listing(ASK_S).groups
        deleted(copying.source, group)
        wait_until(lambda: bool(worker.seen("group_deleted")), "the deletion", worker.tail)
        found = target.offsets({group: None}, ASK_S, stable=True)[group]
        assert isinstance(found, ShareValues)
        assert not any(it for of_topic in found.topics().values() for it in of_topic.values())
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long")
@pytest.mark.parametrize("kind", ["embedded"], indirect=True, scope="session")
def test_a_target_without_share_groups_holds_up_no_other_group(target: BrokerHandle) -> None:
    """The embedded broker has none, so the source is in memory."""
    rig = Rig()
    rig.source.kinds["s"] = "share"
    rig.source.values["s", A] = GroupOffset(10)
    rig.at_source(20, group="other")
    for topic in ("a", "out"):
        clients.create_topic(target.bootstrap, copy_of(Partition(topic, 0)).topic, 2)
    with closing(questions_of(target.bootstrap)) as there:
        notes = FakeNotes(rig.topic)
        sync = GroupSync(rig.flow, rig.source, there, rig.map, notes, NamedHoldTopics(()), rig.clock)

        def synced() -> bool:
            sync.round()
            rig.clock.s += 5
            return next(it for it in sync.shown() if it.group == "other").in_sync == 1

        wait_until(synced, "the other group", lambda: str(sync.shown()))
        (share,) = [it for it in sync.shown() if it.group == "s"]
    assert share.counts[GroupVerdict.REFUSED] == 2
    assert {"no share groups there" in row.detail for row in share.rows} == {True}


@pytest.mark.tier("long")
@pytest.mark.parametrize("kind", ["embedded"], indirect=True, scope="session")
def test_the_embedded_broker_says_that_it_has_no_share_groups(target: BrokerHandle) -> None:
    with closing(questions_of(target.bootstrap)) as questions:
        questions.share(frozenset({"g"}))
        (found,) = questions.offsets({"g": None}, ASK_S, stable=True).values()
        (set_,) = questions.send_commits({"g": {"t": {0: OffsetToCommit(0, "")}}}, ASK_S)().values()
    for error in (found, set_):
        assert isinstance(error, Unsupported)
        assert "no share groups there" in str(error)
