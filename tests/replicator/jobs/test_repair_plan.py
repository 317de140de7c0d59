"""A plan of a repair says what the repair then does, and changes nothing."""

from __future__ import annotations

import pytest

from replicator.jobs import repair_plan
from replicator.jobs.repair_decision import WITHOUT_KEY
from replicator.jobs.repair_plan import PlannedPartition, planned_partition
from replicator.jobs.repair_questions import Sides
from replicator.jobs.repair_spans import Damage, Missing
from tests.replicator.jobs.test_repair_policy import AT, LOST, SPANS, THERE, copied, damage, keyed, repair
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.reader import FakeReader
from tests.replicator.lane.fakes.world import World


def planned(world: World, found: Damage, said: list[str] | None = None) -> PlannedPartition:
    sides = Sides(world.source, world.target, FakeReader(world.source), FakeReader(world.target), AT, THERE)
    lines = list[str]() if said is None else said
    return planned_partition(sides, found, lines.append)


def test_it_says_what_the_repair_then_copies() -> None:
    compacted = ("a=1", "b=1", "a=2", "c=1", "b=2", "c=2")
    cases = [
        (copied(), SPANS, (len(LOST), 0, 0)),
        (copied(lost=(3, 8)), (Missing(3, 12, 9), Missing(19, 20, 1)), (2, 8, 0)),
        (keyed(compacted, lost=(0, 3, 4)), (Missing(0, 1, 1), Missing(3, 5, 2)), (1, 0, 2)),
        (keyed(("x", "y", "x", "x", "y", "x"), lost=(0, 3), compacted=False), (Missing(0, 6, 6),), (2, 4, 0)),
    ]
    for world, spans, expected in cases:
        found = damage(world, spans, source_end=world.source.log(AT).end)
        before = world.copied(AT)
        plan = planned(world, found)
        assert (plan.copied, plan.standing, plan.superseded, plan.incident) == (*expected, None)
        assert world.copied(AT) == before, "a plan changes nothing"
        policy, error = repair(world, found)
        assert error is None
        assert (policy.copied, policy.standing, policy.superseded) == expected
        assert list(plan.superseded_at) == policy.superseded_at


def test_what_would_stop_the_repair_is_in_the_plan() -> None:
    world = copied()
    world.source.log(AT).delete_before(5)
    plan = planned(world, damage(world))
    assert plan.incident is not None
    assert (plan.incident.name, plan.copied) == ("source_records_gone", 0)


def test_it_waits_for_no_transaction_that_is_open_on_the_target() -> None:
    world = copied()
    found = damage(world)
    world.target.log(THERE).put("open")
    world.target.log(THERE).entries[-1].fate = Fate.OPEN
    assert planned(world, found).copied == len(LOST)


def test_both_sides_are_asked_window_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_plan, "WINDOW_OFFSETS_MAX", 2)
    world, said = copied(), list[str]()
    plan = planned(world, damage(world, (Missing(2, 20, 18),)), said)
    assert (plan.copied, plan.standing) == (len(LOST), 18 - len(LOST))
    assert {line.split()[2] for line in said} == {"target", "source"}


def test_many_scattered_records_are_read_in_one_go() -> None:
    """Each reading is a new assignment of a consumer: hundreds of them took longer than a repair waits for anything."""
    world = copied()
    spans = tuple(Missing(offset, offset + 1, 1) for offset in range(2, 20, 2))
    source = FakeReader(world.source)
    sides = Sides(world.source, world.target, source, FakeReader(world.target), AT, THERE)
    plan = planned_partition(sides, damage(world, spans), list[str]().append)
    assert plan.copied + plan.standing == len(spans)
    assert source.asked[0] == [span[:2] for span in spans]
    assert len([asked for asked in source.asked if len(asked) == 1]) <= 1, "one span is the whole log, to compare"


def test_what_is_refused_is_in_the_plan() -> None:
    world = keyed(("x", "a=1"), lost=(0, 1))
    found = damage(world, (Missing(0, 2, 2),), source_end=2)
    assert planned(world, found).refused == {WITHOUT_KEY: 1}
    policy, _ = repair(world, found)
    assert (policy.copied, policy.refused) == (1, {WITHOUT_KEY: 1})
