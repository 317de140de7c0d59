"""Consumer groups go on at the target where they were at the source: none skips a record, none reads one again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import PARTITIONS, Copying
from integration_tests.harness.group_reading import begin, consume, left, offsets
from integration_tests.harness.processes import wait_until
from replicator.config import Cluster, Properties
from replicator.groups.decision import OffsetToCommit
from replicator.wire.group_questions import GroupQuestions

EVERY = {"include": ["^.*"], "interval_ms": 200}
ASK_S = 20.0


def wait_offsets(copying: Copying, group: str, fits: Callable[[list[int]], bool]) -> list[int]:
    """The group's offsets at the target, when they fit."""
    found: list[int] = []

    def reached() -> bool:
        found[:] = offsets(copying.target, group, copying.copy, copying.partitions)
        return fits(found)

    wait_until(reached, f"offsets of {group}", lambda: str(found))
    return list(found)


def all_there(found: list[int]) -> bool:
    return all(offset >= 0 for offset in found)


def wait_exact(copying: Copying, group: str, target_group: str = "") -> None:
    """Until a consumer of the group reads at the target what it would read at the source.

    Before that it has offsets there as well: the last ones that no record is skipped from.
    """
    target_group = target_group or group
    here = left(copying.source, group, copying.topic, copying.partitions)
    assert here is not None

    def reached() -> bool:
        return left(copying.target, target_group, copying.copy, copying.partitions) == here

    wait_until(
        reached,
        f"exact offsets of {group}",
        lambda: str(offsets(copying.target, target_group, copying.copy, copying.partitions)),
    )


def begun(copying: Copying, group: str, most: int | None = None) -> list[bytes]:
    """A group that has read so many records of the source; their keys."""
    begin(copying.source, group, [(copying.topic, number, 0) for number in range(copying.partitions)])
    return consume(copying.source, group, copying.topic, copying.partitions, most)


def commit_at_source(copying: Copying, group: str, value: OffsetToCommit, numbers: Sequence[int] | None = None) -> None:
    """As a consumer does that knows the epoch of the record that it has read; in all partitions, or in these."""
    cluster = Cluster(name="east", properties=Properties({"bootstrap.servers": copying.source}))
    numbers = range(copying.partitions) if numbers is None else numbers
    with closing(GroupQuestions(cluster, "test")) as questions:
        wanted = {group: {copying.topic: dict.fromkeys(numbers, value)}}
        done = {group: {copying.topic: dict.fromkeys(numbers, 0)}}
        wait_until(lambda: questions.commit(wanted, ASK_S) == done, "a commit", lambda: group)


@pytest.mark.tier("default", kafka="full")
def test_a_group_goes_on_at_the_target_where_it_was(make_copying: MakeCopying, unique: Callable[[str], str]) -> None:
    """Its consumers' epochs at the source are above those of the target's leaders, and say nothing there."""
    group = unique("readers")
    copying = make_copying(groups=EVERY)
    copying.load.mixed(900)
    read = begun(copying, group, 300)
    epochs = unique("epochs")
    commit_at_source(copying, epochs, OffsetToCommit(3, "mine, é", 50))
    worker = copying.running()
    copying.wait_copied()
    wait_exact(copying, group)
    wait_offsets(copying, epochs, all_there)
    wait_until(lambda: copying.said("groups")[0] == 0, "all are shown in sync", lambda: str(copying.said("groups")))
    assert worker.stop() == 0, worker.tail()
    with closing(clients.consumer(copying.target, group_id=epochs)) as reader:
        (found,) = reader.committed([TopicPartition(copying.copy, 0)], timeout=clients.TIMEOUT_S)
    assert (found.error, found.metadata, found.leader_epoch) == (None, "mine, é", None)
    there = consume(copying.target, group, copying.copy, PARTITIONS)
    here = consume(copying.source, group, copying.topic, PARTITIONS)
    assert Counter(there) == Counter(here)
    assert len(here) + len(read) == copying.load.committed
    assert worker.seen("groups_not_synced") == []
    assert f"__eos.{copying.name}.groups" in clients.topics(copying.target)


@pytest.mark.tier("long")
def test_it_follows_the_source_forwards_and_back(make_copying: MakeCopying, unique: Callable[[str], str]) -> None:
    group = unique("moves")
    copying = make_copying(groups={**EVERY, "rename": "{flow}/{group}", "exclude": ["left-out"]})
    copying.load.mixed(600)
    begun(copying, group, 200)
    begun(copying, "left-out", 50)
    worker = copying.running()
    copying.wait_copied()
    target = f"{copying.name}/{group}"
    first = wait_offsets(copying, target, all_there)
    consume(copying.source, group, copying.topic, PARTITIONS)
    wait_exact(copying, group, target)
    last = offsets(copying.target, target, copying.copy, PARTITIONS)
    assert all(at >= before for at, before in zip(last, first, strict=True))
    begin(copying.source, group, [(copying.topic, number, 0) for number in range(PARTITIONS)])
    wait_offsets(copying, target, lambda found: found == [0] * PARTITIONS)
    consume(copying.source, group, copying.topic, PARTITIONS)
    wait_exact(copying, group, target)
    assert worker.stop() == 0, worker.tail()
    assert consume(copying.target, target, copying.copy, PARTITIONS) == []
    assert not all_there(offsets(copying.target, f"{copying.name}/left-out", copying.copy, PARTITIONS))
    assert worker.seen("group_left_alone") == []


@pytest.mark.tier("long")
def test_what_somebody_else_has_committed_is_left_alone(
    make_copying: MakeCopying, unique: Callable[[str], str]
) -> None:
    """Also if it was the flow's once, and after a restart of the worker."""
    group, other = unique("reset"), unique("other")
    copying = make_copying(groups=EVERY)
    copying.load.mixed(600)
    begun(copying, group, 100)
    begun(copying, other, 10)
    worker = copying.running()
    copying.wait_copied()
    yesterday = wait_offsets(copying, group, all_there)
    consume(copying.source, group, copying.topic, PARTITIONS)
    today = wait_offsets(copying, group, lambda found: found != yesterday)
    moved = [number for number in range(PARTITIONS) if today[number] > yesterday[number]]
    assert moved, (yesterday, today)
    at = [(copying.copy, number, offset) for number, offset in enumerate(yesterday)]
    begin(copying.target, group, at)
    copying.load.mixed(600)
    copying.wait_copied()
    consume(copying.source, group, copying.topic, PARTITIONS)
    others = offsets(copying.target, other, copying.copy, PARTITIONS)
    consume(copying.source, other, copying.topic, PARTITIONS)
    wait_offsets(copying, other, lambda found: found != others)
    worker.wait_event("group_left_alone")
    assert worker.stop() == 0, worker.tail()
    worker = copying.running()
    worker.wait_event("groups_followed")
    worker.wait_event("group_left_alone")
    assert worker.stop() == 0, worker.tail()
    kept = offsets(copying.target, group, copying.copy, PARTITIONS)
    assert [kept[number] for number in moved] == [yesterday[number] for number in moved]
    code, found = copying.said("groups")
    assert code == 1
    rows = next(it for it in found["flows"][0]["groups"] if it["group"] == group)["partitions"]
    assert {row["verdict"] for row in rows if row["partition"] in moved} == {"not_ours"}


def member(bootstrap: str, group: str, topic: str) -> Consumer:
    """A member of the group that has all of the topic."""
    made = clients.consumer(bootstrap, group_id=group, session_timeout_ms=6_000)
    made.subscribe([topic])
    deadline_s = time.monotonic() + 60
    while not made.assignment():
        assert time.monotonic() < deadline_s, "no assignment"
        made.poll(0.1)
    return made


@pytest.mark.tier("long")
def test_a_group_with_members_is_never_moved(make_copying: MakeCopying, unique: Callable[[str], str]) -> None:
    group = unique("members")
    copying = make_copying(groups=EVERY)
    copying.load.mixed(600)
    begun(copying, group, 100)
    worker = copying.running()
    copying.wait_copied()
    before = wait_offsets(copying, group, all_there)
    consumer = member(copying.target, group, copying.copy)
    consume(copying.source, group, copying.topic, PARTITIONS)
    worker.wait_event("group_left_alone")
    assert offsets(copying.target, group, copying.copy, PARTITIONS) == before
    code, found = copying.said("groups")
    rows = next(it for it in found["flows"][0]["groups"] if it["group"] == group)["partitions"]
    assert (code, {row["verdict"] for row in rows}) == (1, {"has_members"})
    code, planned = copying.asked("plan")
    assert code == 0
    assert {it["group"]: it["action"] for it in planned["groups"]}[group] == "has_members"
    code, status = copying.asked("status")
    shown = {it["group"]: it for it in status["consumer_groups"]["groups"]}[group]
    assert (code, shown["in_sync"], status["consumer_groups"]["unknown"]) == (0, 0, [])
    assert "has_members" in shown["detail"]
    consumer.close()  # it has committed nothing: what stands there is the flow's still
    wait_exact(copying, group)
    assert worker.stop() == 0, worker.tail()
    assert consume(copying.target, group, copying.copy, PARTITIONS) == []


@pytest.mark.tier("long")
def test_a_group_below_the_start_of_the_flow_skips_nothing_that_was_copied(
    make_copying: MakeCopying, unique: Callable[[str], str]
) -> None:
    """A consumer with auto.offset.reset=latest that finds no offset would."""
    group = unique("latest")
    copying = make_copying(groups=EVERY, start="latest")
    copying.load.mixed(300)
    begun(copying, group, 50)
    worker = copying.running()
    copying.load.mixed(300)
    copying.wait_copied()
    wait_offsets(copying, group, all_there)
    assert worker.stop() == 0, worker.tail()
    reader = clients.consumer(copying.target, group_id=group, auto_offset_reset="latest", enable_partition_eof=True)
    ats = [TopicPartition(copying.copy, number) for number in range(PARTITIONS)]
    assert [it.offset for it in reader.committed(ats, timeout=clients.TIMEOUT_S)] == [0] * PARTITIONS
    reader.close()
    fresh = unique("all")
    begin(copying.target, fresh, [(copying.copy, number, 0) for number in range(PARTITIONS)])
    copied = consume(copying.target, fresh, copying.copy, PARTITIONS)
    assert Counter(consume(copying.target, group, copying.copy, PARTITIONS)) == Counter(copied)
    assert len(copied) > 200


@pytest.mark.tier("long")
def test_groups_that_an_open_transaction_holds_are_said_to_be_held(
    make_copying: MakeCopying, unique: Callable[[str], str]
) -> None:
    """Also by who only looks: nothing moves until it ends."""
    group = unique("held")
    copying = make_copying(groups={**EVERY, "hold_with": ["^.*"]})
    copying.load.mixed(300)
    begun(copying, group, 100)
    worker = copying.running()
    copying.wait_copied()
    wait_exact(copying, group)
    before = offsets(copying.target, group, copying.copy, PARTITIONS)
    producer = clients.producer(copying.source, transactional_id=unique("open"))
    producer.init_transactions(clients.TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(copying.topic, b"open", partition=0)
    assert producer.flush(clients.TIMEOUT_S) == 0
    begin(copying.source, group, [(copying.topic, number, 0) for number in range(PARTITIONS)])

    def rows() -> list[dict[str, object]]:
        code, found = copying.said("groups")
        assert code in (0, 1)
        return next(it for it in found["flows"][0]["groups"] if it["group"] == group)["partitions"]  # type: ignore[no-any-return]

    waiting = [row for row in rows() if row["verdict"] != "in_sync"]
    assert {row["verdict"] for row in waiting} == {"held"}
    assert all("a transaction at the source that hasn't ended" in str(row["detail"]) for row in waiting)
    assert offsets(copying.target, group, copying.copy, PARTITIONS) == before
    producer.commit_transaction(clients.TIMEOUT_S)
    wait_offsets(copying, group, lambda found: found == [0] * PARTITIONS)
    wait_until(lambda: copying.said("groups")[0] == 0, "all are shown in sync", lambda: str(rows()))
    assert worker.stop() == 0, worker.tail()
