"""A repair on simulated clusters: each missing record once, behind all others, wherever it is killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest
import structlog

from replicator.jobs import repair_listed, repair_policy, repair_spans
from replicator.jobs.range_policy import RangePolicy
from replicator.jobs.repair_listed import ListedRecords
from replicator.jobs.repair_policy import RepairPolicy
from replicator.jobs.repair_spans import Damage, Missing, RepairRequest
from replicator.lane.partition import Stopped
from replicator.lane.plan import LanePlan
from replicator.model import checkpoint, reading_over
from replicator.model.errors import Incident, ReplicatorError, Retriable, UnknownOutcome
from replicator.model.partition import Partition, Span
from replicator.state.claims import read_claims
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind, LaneAssignment, Phase
from tests.replicator.lane.fakes import plane as fake_plane
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.world import World

AT, THERE = Partition("t", 0), Partition("t.copy", 0)
RECORDS = 20
LOST = (3, *range(8, 13), 19)
SPANS = (Missing(3, 4, 1), Missing(8, 13, 5), Missing(19, 20, 1))


QUIET = structlog.wrap_logger(None, processors=[lambda *_: _drop()], wrapper_class=structlog.BoundLogger)


def _drop() -> NoReturn:
    raise structlog.DropEvent


class Killed(BaseException):
    """The process is gone."""


def copied(lost: tuple[int, ...] = LOST, generation: int = 2) -> World:
    """A flow that has copied everything, of which the target lost records that its position covers."""
    world = World()
    world.source.log(AT).put(*(f"r{number}" for number in range(RECORDS)))
    assert world.run(policy=RangePolicy({}, {AT: RECORDS})) is None
    for entry in world.target.log(THERE).entries:
        if entry.origin in lost:
            entry.fate = Fate.ABORTED
    under(world, generation)
    return world


def under(world: World, generation: int) -> None:
    """Open the generation of a repair: whatever ran before is fenced."""
    for transactional_id in world.target.transactions:
        world.target.init(transactional_id)
    world.assignment = LaneAssignment.by_partition({"t": 2, "u": 1})
    first = Generation(1, Phase.CLOSED, 1, partitions={"t": 2, "u": 1})
    opened = Generation(generation, Phase.OPEN, 3, Kind.REPAIR, listed=dict(world.assignment.listed))
    world.state.current = Control({1: first, generation: opened})


def damage(world: World, spans: tuple[Missing, ...] = SPANS, source_end: int = RECORDS) -> Damage:
    return Damage(spans, source_end, world.target.log(THERE).end)


def keyed(records: tuple[str, ...], lost: tuple[int, ...], *, compacted: bool = True) -> World:
    """As `copied`, of these records."""
    world = World()
    world.source.log(AT).put(*records)
    world.target.topics["t.copy"].compacted = compacted
    assert world.run(policy=RangePolicy({}, {AT: len(records)})) is None
    for entry in world.target.log(THERE).entries:
        if entry.origin in lost:
            entry.fate = Fate.ABORTED
    under(world, 2)
    return world


def plan(world: World, owner: str = "repair", records_max: int = 3) -> LanePlan:
    """Batches of `records_max` records; a transaction takes three at most, what the plane reads at once."""
    routes = tuple(route for route in world.routes() if route.source == AT)
    commit = world.flow.commit.model_copy(update={"records_max": records_max, "bytes_max": 1})
    flow = world.flow.model_copy(update={"commit": commit})
    generation = world.state.current.newest
    lane = world.assignment.lane_of(*AT)
    return replace(world.plan(owner, routes), flow=flow, generation=generation, lane=lane)


def repair(
    world: World, found: Damage, owner: str = "repair", records_max: int = 3
) -> tuple[RepairPolicy, ReplicatorError | None]:
    lane = plan(world, owner, records_max)
    policy = RepairPolicy(lane, AT, ListedRecords(lane, AT, RepairRequest({AT: found})), QUIET)
    return policy, world.run(policy=policy, plan=lane)


def values(lost: tuple[int, ...] = LOST) -> list[str]:
    """What a reader finds after a repair: the lost records behind all others."""
    return [f"r{n}" for n in range(RECORDS) if n not in lost] + [f"r{n}" for n in lost]


def stopped_by(world: World, error: ReplicatorError | None) -> str:
    """The incident with which the lane ended, or that stopped its partition."""
    if isinstance(error, Incident):
        return error.name
    assert error is None
    state = world.states()[AT]
    assert isinstance(state, Stopped), state
    return state.incident.name


def recreate_target(world: World) -> None:
    world.target.delete("t.copy")
    world.target.create("t.copy", 2)


@pytest.mark.parametrize(("origin", "told"), [(0, (1, 0)), (2, (0, 1))])
def test_a_record_from_before_the_copy_accounts_for_none_that_equals_it(origin: int, told: tuple[int, int]) -> None:
    """The flow began behind the first of two equal ones; the list says wrongly that the second one is missing."""
    world = keyed(("same", "r1", "r2", "same", "r4"), lost=(0,), compacted=False)
    found = replace(damage(world, (Missing(3, 4, 1),), source_end=5), source_origin=origin)
    policy, error = repair(world, found)
    assert error is None
    assert (policy.copied, policy.standing) == told


def test_each_lost_record_is_copied_again_behind_all_others() -> None:
    world = copied()
    policy, error = repair(world, damage(world))
    assert error is None
    assert world.copied(AT) == values()
    assert (policy.copied, policy.copied_before) == (len(LOST), 0)
    stands = world.target.offsets[THERE]
    evidence = checkpoint.decode(stands.metadata)
    assert (stands.offset, evidence.count, evidence.owner) == (RECORDS, RECORDS, "repair")
    last = world.target.log(THERE).committed()[-1][0]
    assert evidence.next_target_offset == last + 1
    repairs = read_claims(world.target.claims).repairs
    assert sorted(n for found in repairs for first, end in found.runs for n in range(first, end)) == list(LOST)


@pytest.mark.parametrize(("bytes_max", "transactions"), [(1_000, 1), (10, 2), (3, 3)])
def test_large_records_between_missing_ones_part_transactions(
    bytes_max: int, transactions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record has two or three bytes; four offsets lie between the first two spans, six between the others."""
    monkeypatch.setattr(reading_over, "BYTES_MAX", bytes_max)
    decided = list[int]()

    def batches(*asked: Any, **sizes: Any) -> list[list[Span]]:
        found = repair_spans.batches(*asked, **sizes)
        decided.append(len(found))
        return found

    monkeypatch.setattr(repair_policy, "batches", batches)
    world = copied()
    policy, error = repair(world, damage(world), records_max=RECORDS)
    assert error is None
    assert policy.copied == len(LOST)
    assert decided == [transactions]


def test_begun_again_it_copies_nothing_twice() -> None:
    world = copied()
    found = damage(world)
    repair(world, found)
    again, error = repair(world, found, "again")
    assert error is None
    assert (again.copied, world.copied(AT)) == (len(LOST), values()), "its own generation's, from before"
    under(world, 3)
    other, error = repair(world, found, "other")
    assert error is None
    assert (other.copied, other.copied_before, world.copied(AT)) == (0, len(LOST), values())


def test_what_was_lost_again_is_copied_again() -> None:
    world = copied()
    repair(world, damage(world))
    known = frozenset(read_claims(world.target.claims).repairs)
    next(e for e in world.target.log(THERE).entries if e.origin == 9 and e.fate is Fate.COMMITTED).fate = Fate.ABORTED
    under(world, 3)
    lane = plan(world)
    request = RepairRequest({AT: damage(world, (Missing(9, 10, 1),))}, known)
    assert world.run(policy=RepairPolicy(lane, AT, ListedRecords(lane, AT, request), QUIET), plan=lane) is None
    assert sorted(world.copied(AT)) == sorted(f"r{n}" for n in range(RECORDS))


def test_the_live_worker_goes_on_behind_it() -> None:
    world = copied()
    repair(world, damage(world))
    world.source.log(AT).put("new")
    before = world.state.current.generations
    world.assignment = LaneAssignment(1)
    world.state.current = Control({1: before[1], 3: Generation(3, Phase.OPEN, 1)})
    assert world.run(plan=replace(world.plan("live"), generation=3)) is None
    assert world.copied(AT) == [*values(), "new"]
    assert not world.incidents()


def _ends_lost(world: World) -> None:
    world.target.log(THERE).truncate(15)


def _last_hidden(world: World) -> None:
    for entry in world.target.log(THERE).entries:
        if entry.origin >= 15:
            entry.fate = Fate.ABORTED


@pytest.mark.parametrize("lose", [_ends_lost, _last_hidden])
def test_a_target_that_lost_its_end_is_made_whole(lose: Callable[[World], None]) -> None:
    world = copied(lost=())
    lose(world)
    lost = tuple(n for n in range(RECORDS) if f"r{n}" not in world.copied(AT))
    spans = (Missing(lost[0], RECORDS, len(lost)),)
    policy, error = repair(world, damage(world, spans))
    assert error is None
    assert world.copied(AT) == values(lost)
    assert policy.copied == len(lost)
    assert not world.incidents()


def test_a_target_that_loses_its_end_meanwhile_is_an_incident() -> None:
    world = copied()
    found = damage(world)
    world.on.append(("plane.flush", lambda: world.target.log(THERE).truncate(10)))
    _, error = repair(world, found)
    assert stopped_by(world, error) in ("target_lost_data", "repair_outdated")


def test_what_was_found_must_still_be_so() -> None:
    cases: dict[str, tuple[Callable[[World], object], Callable[[World], Damage]]] = {
        "repair_outdated": (lambda world: None, lambda world: damage(world, source_end=RECORDS + 1)),
        "source_records_gone": (lambda world: world.source.log(AT).delete_before(5), damage),
        "source_truncated": (
            lambda world: None,
            lambda world: damage(world, (*SPANS[:2], Missing(19, 25, 1))),
        ),
        "repair_record_gone": (lambda world: None, lambda world: damage(world, (Missing(3, 4, 2), *SPANS[1:]))),
        "target_topic_recreated": (
            recreate_target,
            damage,
        ),
    }
    for name, (happens, found) in cases.items():
        world = copied()
        asked = found(world)
        happens(world)
        policy, error = repair(world, asked)
        assert stopped_by(world, error) == name, name
        assert policy.copied == len(set(world.copied(AT)) & {f"r{n}" for n in LOST}), name
    world = copied()
    world.target.log(THERE).truncate(RECORDS)
    _, error = repair(world, replace(damage(world), target_end=RECORDS + 2))
    assert stopped_by(world, error) == "repair_outdated", "the target ends below what was compared"


def test_a_compacted_target_takes_no_older_record_behind_a_newer_one() -> None:
    """What the source has last of a key is copied, however far the flow has gone since; nothing else is."""
    world = keyed(("a=1", "b=1", "a=2", "c=1", "b=2", "c=2"), lost=(0, 3, 4))
    found = damage(world, (Missing(0, 1, 1), Missing(3, 5, 2)), source_end=6)
    policy, error = repair(world, found)
    assert error is None
    assert world.copied(AT) == ["b=1", "a=2", "c=2", "b=2"]
    assert (policy.copied, policy.superseded, policy.superseded_at) == (1, 2, [(0, 1), (3, 4)])
    world = keyed(("a=1", "b=1", "a=2", "a=3", "b=2"), lost=(2,))
    policy, error = repair(world, damage(world, (Missing(2, 3, 1),), source_end=3))
    assert error is None
    assert world.copied(AT) == ["a=1", "b=1", "a=3", "b=2"], "the flow has copied a later record of the key since"
    assert (policy.copied, policy.superseded) == (0, 1)


def test_a_compacted_target_takes_nothing_behind_a_record_of_the_key_that_nobody_knows() -> None:
    for after, expected in ((-1, ["a=x", "b=1"]), (0, ["a=x", "b=1", "a=1"])):
        world = keyed(("a=0", "a=1", "b=1"), lost=(1,))
        world.target.log(THERE).entries[0].value = "a=x"
        policy, error = repair(world, damage(world, (Missing(1, 2, 1, after),), source_end=3))
        assert error is None
        assert world.copied(AT) == expected
        assert policy.superseded == (after < 0)


def test_what_stands_on_the_target_is_not_copied() -> None:
    """A reconciliation that called records missing which were only moved, or which somebody has copied since."""
    world = copied(lost=(3, 8))
    policy, error = repair(world, damage(world, (Missing(3, 12, 9), Missing(19, 20, 1))))
    assert error is None
    assert sorted(world.copied(AT)) == sorted(f"r{n}" for n in range(RECORDS))
    assert world.copied(AT)[-2:] == ["r3", "r8"]
    assert (policy.copied, policy.standing) == (2, 8)


def test_of_equal_records_only_those_are_copied_that_the_target_lacks() -> None:
    world = keyed(("x", "y", "x", "x", "y", "x"), lost=(0, 3), compacted=False)
    policy, error = repair(world, damage(world, (Missing(0, 6, 6),), source_end=6))
    assert error is None
    assert sorted(world.copied(AT)) == ["x", "x", "x", "x", "y", "y"]
    assert (policy.copied, policy.standing) == (2, 4)


def test_both_sides_are_asked_window_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_listed, "WINDOW_OFFSETS_MAX", 2)
    world = copied()
    read: list[tuple[str, int, int]] = []
    lane = plan(world)
    request = RepairRequest({AT: damage(world, (Missing(2, 20, 18),))})
    policy = RepairPolicy(lane, AT, ListedRecords(lane, AT, request), QUIET)
    policy.on_read = lambda *said: read.append(said)
    assert world.run(policy=policy, plan=lane) is None
    assert sorted(world.copied(AT)) == sorted(f"r{n}" for n in range(RECORDS))
    assert (policy.copied, policy.standing) == (len(LOST), 18 - len(LOST))
    assert {side for side, *_ in read} == {"target", "source"}
    assert all(0 < done <= of for _, done, of in read)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("records_max", [3, 10])
def test_a_refused_record_is_named_and_all_before_it_are_copied(named: bool, records_max: int) -> None:
    for refused, before in ((11, (3, 8, 9, 10)), (3, ()), (8, (3,)), (19, LOST[:-1])):
        world = copied()
        world.target.topics["t.copy"].refuses = frozenset({f"r{refused}"})
        world.target.topics["t.copy"].names_refused = named
        _, error = repair(world, damage(world), records_max=records_max)
        assert stopped_by(world, error) == "record_refused"
        assert next(e for e in world.told("incident"))["offset"] == refused
        assert world.copied(AT)[RECORDS - len(LOST) :] == [f"r{n}" for n in before], refused


def test_what_stands_before_a_refused_record_may_take_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position stands far behind the refused record: where the repair stands is another thing."""
    world = copied()
    world.target.topics["t.copy"].refuses = frozenset({"r12"})
    monkeypatch.setattr(fake_plane, "RECORDS_POLLED_MAX", RECORDS)
    world.on.append(("plane.abort", lambda: monkeypatch.setattr(fake_plane, "RECORDS_POLLED_MAX", 1)))
    _, error = repair(world, damage(world), records_max=RECORDS)
    assert stopped_by(world, error) == "record_refused"
    assert world.copied(AT)[RECORDS - len(LOST) :] == ["r3", "r8", "r9", "r10", "r11"]


def _calls(records_max: int) -> int:
    world = copied()
    begun = world.calls
    repair(world, damage(world), records_max=records_max)
    return world.calls - begun


@pytest.mark.tier("default")
@pytest.mark.parametrize("error", [Killed, Retriable, UnknownOutcome])
@pytest.mark.parametrize(("lose", "records_max"), [(None, 3), (_ends_lost, 10)])
def test_killed_or_failing_at_any_call_it_copies_each_record_once(
    error: type[BaseException], lose: Callable[[World], None] | None, records_max: int
) -> None:
    for number in range(1, _calls(records_max) + 1):
        world = copied()
        if lose is not None:
            lose(world)
        lost = tuple(n for n in range(RECORDS) if f"r{n}" not in world.copied(AT))
        spans = SPANS if lose is None else (*SPANS[:2], Missing(15, RECORDS, 5))
        found = damage(world, spans)

        def fail() -> None:
            raise error("here")

        world.actions[world.calls + number] = fail
        try:
            _, ended = repair(world, found, records_max=records_max)
        except Killed:
            under(world, 3)
            _, ended = repair(world, found, "again", records_max)
        assert ended is None, (number, ended, world.trace[-30:])
        assert world.copied(AT) == values(lost), (number, world.trace[-60:])


def test_a_repair_that_is_fenced_in_its_transaction_leaves_to_the_other() -> None:
    world = copied()
    found = damage(world)
    other: list[object] = []

    def begin_again() -> None:
        under(world, 3)
        first = world.driver
        other.append(repair(world, found, "other")[1])
        world.driver = first

    world.on.append(("step.before_end_txn", begin_again))
    _, error = repair(world, found)
    assert type(error).__name__ == "TakenOver"
    assert other == [None]
    assert world.copied(AT) == values()
