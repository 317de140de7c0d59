"""Positions that must not expire (invariant 7) and claims that must come first (4), whatever a partition waits for."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from replicator.model import checkpoint
from replicator.model.delivery import Delivery
from replicator.model.errors import Abortable, ReplicatorError, Retriable
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.state.claims import Claim, read_claims
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.loads import A, B, U, each_poll, filled
from tests.replicator.lane.fakes.plane import FakePlane
from tests.replicator.lane.fakes.world import World


def committed_ms(world: World, at: Partition) -> int:
    stored = world.target.offsets[Partition(f"{at.topic}.copy", at.partition)]
    return checkpoint.decode(stored.metadata).committed_ms


def test_a_stopped_partition_is_kept_again_once_the_right_is_back() -> None:
    world = World(recommit_ms=1_000)
    filled(world)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-3"})

    def look() -> bool:
        if world.time_s > 1_010 and not world.told("waiting"):
            world.target.denied["t.copy"] = {"Read"}
        if world.time_s > 1_030:
            world.target.denied.clear()
        return world.time_s <= 1_040

    each_poll(world, look)
    assert world.run() is None
    assert world.incidents() == {A: "record_refused"}
    assert world.told("waiting")
    assert committed_ms(world, A) == committed_ms(world, B) == committed_ms(world, U)


def test_a_position_is_kept_once_read_is_back_though_write_is_not() -> None:
    world = World(recommit_ms=1_000)
    filled(world)

    def look() -> bool:
        if 1_010 < world.time_s < 1_030:
            world.target.denied["t.copy"] = {"Read", "Write"}
        elif world.time_s >= 1_030:
            world.target.denied["t.copy"] = {"Write"}
        return world.time_s <= 1_060

    each_poll(world, look)
    assert world.run() is None
    assert committed_ms(world, A) == committed_ms(world, U)


def test_positions_are_kept_while_the_source_is_down() -> None:
    world = World(recommit_ms=1_000)
    filled(world)
    seen: list[int] = []

    def look() -> bool:
        return world.time_s < 1_010

    def down() -> None:
        world.source.down = True
        world.actions[world.calls + 1_500] = up

    def up() -> None:
        seen.extend((committed_ms(world, A), int(world.time_s * 1000)))
        world.source.down = False

    world.on.append(("step.after_end_txn", down))
    each_poll(world, look)
    assert world.run() is None
    assert seen[1] > 1_060_000, "the source was down for a minute"
    assert seen[1] - seen[0] < 20_000, seen


def test_a_claim_comes_first_though_its_transaction_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    records = filled(world)
    plan = world.plan()
    world.source.delete("u")
    failed: list[int] = []
    send = FakePlane.send_positions

    def send_positions(self, offsets, entries):  # type: ignore[no-untyped-def]
        if not failed and Partition("u.copy", 0) in offsets:
            failed.append(1)
            raise Abortable("planned")
        send(self, offsets, entries)

    def back() -> None:
        world.source.create("u")
        world.source.log(U).put(*(value for _, value in records[U]))

    monkeypatch.setattr(FakePlane, "send_positions", send_positions)
    world.on.append(("plane.seek", back))
    assert world.run(plan=plan) is None
    assert failed
    world.check_exact(records)
    assert world.position(U) == 8
    assert Partition("u.copy", 0) in read_claims(world.target.claims).claims


def test_no_position_without_its_claim_though_the_target_could_not_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    filled(world)
    asked: list[int] = []
    answered = FakeCluster.log_ends

    def log_ends(self: FakeCluster, partitions: Collection[Partition]) -> dict[Partition, LogEnds | ReplicatorError]:
        found = answered(self, partitions)
        if self is world.target:
            asked.append(1)
            if len(asked) == 2:
                found[Partition("u.copy", 0)] = Retriable("no leader")
        return found

    monkeypatch.setattr(FakeCluster, "log_ends", log_ends)
    assert world.run() is None
    assert world.position(U) == 8
    assert Partition("u.copy", 0) in read_claims(world.target.claims).claims


def test_a_position_that_nothing_is_copied_to_is_kept_though_it_was_not_read_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(recommit_ms=1_000)
    filled(world)
    old = Partition("gone.copy", 0)
    topic = world.target.create("gone.copy")
    claim = Claim(old, Partition("gone", 0), "id", topic.topic_id, 0, 5, 1, "me", 0)
    world.target.claims.append(claim.encode())
    world.target.offsets[old] = Committed(7, "as it was")
    sent: list[Partition] = []
    asked: list[int] = []
    answered, send = FakeCluster.log_ends, FakePlane.send_positions

    def log_ends(self: FakeCluster, partitions: Collection[Partition]) -> dict[Partition, LogEnds | ReplicatorError]:
        found = answered(self, partitions)
        if old in found and not asked:
            asked.append(1)
            found[old] = Retriable("no leader")
        return found

    def send_positions(self, offsets, entries):  # type: ignore[no-untyped-def]
        sent.extend(offsets)
        send(self, offsets, entries)

    monkeypatch.setattr(FakeCluster, "log_ends", log_ends)
    monkeypatch.setattr(FakePlane, "send_positions", send_positions)
    assert world.run() is None
    assert asked
    assert old in sent


def test_records_that_could_not_be_delivered_after_their_position_are_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The position is committed, and records follow it."""
    world = World()
    world.flow = world.flow.model_copy(update={"delivery": Delivery.AT_MOST_ONCE})
    records = filled(world)
    failed: list[int] = []

    def deliver(self: FakePlane) -> tuple[Partition, ...]:
        if not failed:
            failed.append(1)
            raise Abortable("the queue has not moved")
        return ()

    monkeypatch.setattr(FakePlane, "deliver", deliver)
    assert world.run() is None
    assert failed
    world.check_exact(records)


def test_a_silent_topic_is_asked_for_though_another_one_is_never_idle() -> None:
    world = World()
    filled(world)
    found: dict[Partition, str] = {}

    def look() -> bool:
        world.time_s += 0.05
        world.source.log(U).put("more")
        if world.time_s > 1_005 and not world.source.topics["t"].silent:
            world.source.delete("t")
            world.source.create("t", 2)
            world.source.topics["t"].silent = True
        found.update(world.incidents())
        return world.time_s < 1_040

    each_poll(world, look)
    assert world.run() is None
    assert found == dict.fromkeys((A, B), "source_topic_recreated")


def test_a_deleted_target_topic_is_never_called_the_source_s() -> None:
    world = World()
    filled(world)
    world.on.append(("step.after_end_txn", lambda: world.target.delete("u.copy")))
    each_poll(world, lambda: world.time_s < 1_020 and (world.time_s < 1_002 or bool(put(world))))
    assert world.run() is None
    reasons = {e["reason"] for e in world.told("waiting") if e["topic"] == "u"}
    assert reasons <= {"target_topic_missing"}, world.told("waiting")
    assert world.incidents()[U] == "target_topic_deleted"


def put(world: World) -> bool:
    if world.source.log(U).end == 8:
        world.source.log(U).put("one more")
    return True
