"""The offset map that a lane writes, beside what it has copied, on simulated clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from replicator.model import checkpoint
from replicator.model.errors import Abortable, Fenced, NotAllowed, ReplicatorError, Retriable, UnknownOutcome
from replicator.model.partition import Partition
from replicator.offset_map import block
from tests.replicator.lane.fakes.loads import ALL, A, B, U, each_poll, filled, held, more, numbered
from tests.replicator.lane.fakes.map_truth import bases, check_map, committed_blocks, sections_of, stored, target_of
from tests.replicator.lane.fakes.plane import MAP
from tests.replicator.lane.fakes.world import World


def fail_once(world: World, call: str, error: ReplicatorError) -> None:
    def fail() -> None:
        raise error

    world.on.append((call, fail))


def check_whole(world: World, *, begin: int = 0) -> None:
    """The map has all copies of all partitions, in one chain, up to the positions."""
    for at in ALL:
        found = check_map(world, at)
        assert (found.begin, found.passed, list(found.unmapped)) == (begin, world.position(at), [])


def test_each_copy_has_its_place_in_a_block_of_its_own_transaction() -> None:
    world = World(maps=True)
    records = filled(world)
    world.source.log(A).marker()
    world.source.log(A).put(*numbered("later", 2))
    records = held(world)
    assert world.run() is None
    world.check_exact(records)
    check_whole(world)
    assert [run.length for run in check_map(world, A).by_source][-1:] == [2]
    for at in ALL:
        assert bases(world, at) == [True] + [False] * (len(bases(world, at)) - 1)
        evidence = stored(world, at).evidence
        assert (evidence.map_topic_id, evidence.map_partition) == (world.target.topics[MAP].topic_id, 0)


def test_positions_that_only_advance_have_sections() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    world.source.log(A).marker()
    world.source.log(A).marker()
    assert world.run("again") is None
    last = sections_of(world, A)[-1]
    assert (last.before, last.after, last.runs, last.base) == (3, 5, (), False)
    check_whole(world)


def test_the_map_goes_on_over_restarts() -> None:
    world = World(maps=True)
    filled(world)
    for owner in ("me", "other", "third"):
        assert world.run(owner) is None
        more(world)
    assert world.run("last") is None
    check_whole(world)
    assert all(bases(world, at).count(True) == 1 for at in ALL)
    assert not world.told("map_not_checked")


def test_a_position_names_the_offset_behind_the_lane_s_previous_block() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    before = max(offset for _, offset, *_ in committed_blocks(world))
    world.source.log(A).put("one more")
    named: list[int] = []

    def note() -> None:
        world.source.log(A).put("and another")
        world.on.append(("step.after_end_txn", lambda: named.append(stored(world, A).evidence.map_offset)))

    world.on.append(("step.after_end_txn", note))
    assert world.run("again") is None
    blocks = sorted({offset for _, offset, *_ in committed_blocks(world)})
    assert blocks[-3] == before
    assert named == [blocks[-2] + 1]


@pytest.mark.parametrize("call", ["plane.write_blocks", "plane.send_positions", "plane.wait_blocks", "plane.flush"])
@pytest.mark.parametrize("error", [Abortable("away"), UnknownOutcome("away")])
def test_an_aborted_transaction_leaves_no_section(call: str, error: ReplicatorError) -> None:
    world = World(maps=True)
    records = filled(world)
    world.on.append(("step.before_flush", lambda: fail_once(world, call, error)))
    assert world.run() is None
    world.check_exact(records)
    check_whole(world)
    assert all(world.position(at) == 8 for at in ALL)


@pytest.mark.parametrize("call", ["plane.end", "plane.end_answered"])
def test_after_an_unknown_outcome_the_map_goes_on_where_the_positions_stand(call: str) -> None:
    world = World(maps=True)
    records = filled(world)
    world.on.append(("step.before_end_txn", lambda: fail_once(world, call, UnknownOutcome("lost"))))
    assert world.run() is None
    world.check_exact(records)
    check_whole(world)
    assert all(bases(world, at).count(True) == 1 for at in ALL)


@pytest.mark.parametrize("call", ["plane.write_blocks", "plane.send_positions", "plane.wait_blocks", "plane.end"])
def test_a_block_is_committed_with_its_positions_or_not_at_all(call: str) -> None:
    world = World(maps=True)
    filled(world)
    ends: list[tuple[list[int], list[int]]] = []

    def note() -> bool:
        sections = {at: sections_of(world, at) for at in ALL}
        ends.append(
            ([it[-1].after if it else 0 for it in sections.values()], [max(0, world.position(at)) for at in ALL])
        )
        return len(ends) < 5

    def fail() -> None:
        each_poll(world, note)
        raise UnknownOutcome("away")

    world.on.append(("step.before_flush", lambda: world.on.append((call, fail))))
    assert world.run() is None
    assert ends
    assert all(of_map == of_positions for of_map, of_positions in ends), ends


def refuse_write(world: World) -> Callable[[], None]:
    world.target.denied[MAP] = {"Write"}
    return world.target.denied.clear


def refuse_blocks(world: World) -> Callable[[], None]:
    world.target.topics[MAP].refuses = frozenset({"any"})
    return lambda: setattr(world.target.topics[MAP], "refuses", frozenset())


def no_leader(world: World) -> Callable[[], None]:
    log = world.target.log(Partition(MAP, 0))
    log.not_ready = f"{MAP}[0] has no leader"
    return lambda: setattr(log, "not_ready", "")


@pytest.mark.parametrize("refuse", [refuse_write, refuse_blocks, no_leader])
def test_where_no_block_is_taken_records_are_copied_without_and_the_map_begins_again(
    refuse: Callable[[World], Callable[[], None]],
) -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    give_back = refuse(world)
    more(world)
    assert world.run("again") is None
    assert [world.position(at) for at in ALL] == [6, 6, 6]
    assert all(stored(world, at).evidence.map_topic_id == "" for at in ALL)
    assert len(world.told("map_off")) == 1, "said once"
    give_back()
    more(world)
    world.time_s += 600
    assert world.run("third") is None
    world.check_exact(held(world))
    for at in ALL:
        found = check_map(world, at)
        assert [(one.first, one.end) for one in found.unmapped] == [(3, 6)]
        assert bases(world, at) == [True, True]


def test_while_it_runs_a_lane_tries_again_to_write_the_map() -> None:
    world = World(maps=True)
    filled(world, 3)
    give_back = refuse_blocks(world)

    off_s: list[float] = []

    def then() -> bool:
        if not off_s and world.told("map_off"):
            off_s.append(world.time_s)
            give_back()
        if off_s and world.time_s >= off_s[0] + 3:
            assert not world.told("map_on"), "no block was taken yet"
            more(world)
            return False
        return True

    each_poll(world, then)
    assert world.run() is None
    assert len(world.told("map_off")) == len(world.told("map_on")) == 1
    assert bases(world, A) == [True]
    assert stored(world, A).evidence.map_topic_id
    assert world.position(A) == 6


def test_a_partition_of_the_map_that_goes_away_in_a_transaction_holds_it_up_until_it_is_back() -> None:
    """Kafka ends no transaction before its marker is written everywhere; meanwhile the lane says what it waits for."""
    world = World(maps=True, idle_s_max=200)
    records = filled(world)
    told: list[str] = []

    def back() -> None:
        told.append(str(world.states()[A]))
        world.target.log(Partition(MAP, 0)).not_ready = ""

    def away() -> None:
        no_leader(world)

    world.on.append(("plane.write_blocks", away))
    world.actions[400] = back
    assert world.run() is None
    world.check_exact(records)
    assert world.position(A) == 8
    assert f"{MAP}[0] has no leader" in told[0]


def test_a_newest_block_that_is_not_there_is_told_and_the_map_begins_anew() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    more(world)
    assert world.run("again") is None
    log = world.target.log(Partition(MAP, 0))
    first = stored(world, A).evidence.map_offset
    log.truncate(first)
    log.put("", "", "")  # somebody else's
    for entry in log.entries[-3:]:
        entry.fate = world.target.log(target_of(A)).entries[-1].fate
    more(world)
    assert world.run("third") is None
    assert "map_lost" in [event["name"] for event in world.told("incident")]
    assert [(it.before, it.base) for it in sections_of(world, A)][-1] == (6, True)
    assert [(one.first, one.end) for one in check_map(world, A).unmapped] == [(3, 6)]


def test_a_position_that_was_set_elsewhere_is_its_own_incident_and_none_of_the_map() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    world.target.offsets[target_of(A)] = world.target.offsets[target_of(A)]._replace(offset=1_000)
    more(world)
    assert world.run("again") is None
    assert [event["name"] for event in world.told("incident")] == ["source_truncated"]
    assert bases(world, B) == [True, False], "the others go on"


def test_a_lost_marker_of_the_map_alone_is_found_at_the_next_start_if_an_abort_follows() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    log = world.target.log(Partition(MAP, 0))
    log.drops_markers = True
    more(world)
    fenced = lambda: fail_once(world, "plane.poll", Fenced("the end of this process"))  # noqa: E731
    world.on.append(("step.after_end_txn", fenced))
    world.run("again")
    log.drops_markers = False
    log.end_open("eos.f.1.0", type(log.entries[0].fate).ABORTED)
    more(world)
    assert world.run("third") is None
    assert "map_lost" in [event["name"] for event in world.told("incident")]
    found = check_map(world, A)
    assert [(one.first, one.end) for one in found.unmapped] == [(3, 6)]
    assert found.passed == world.position(A)


def test_where_the_map_cannot_be_read_at_a_start_it_begins_anew() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    more(world)
    fail_once(world, "east.map_log", Retriable("no leader"))
    assert world.run("again") is None
    assert len(world.told("map_not_checked")) == 1
    assert not world.told("incident")
    assert bases(world, A) == [True, True]
    check_whole(world)


def test_a_position_of_a_lane_without_the_map_names_no_block() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    more(world)
    assert world.run("again", plan=replace(world.plan("again"), writes_map=False)) is None
    assert stored(world, A).evidence.map_topic_id == ""
    more(world)
    assert world.run("third") is None
    assert [(one.first, one.end) for one in check_map(world, A).unmapped] == [(3, 6)]
    assert bases(world, A) == [True, True]


def test_a_transaction_with_more_than_a_block_holds_has_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "RUNS_MAX", 1)
    world = World(maps=True)
    filled(world, 6)
    for at in ALL:
        world.source.log(at).marker()
        world.source.log(at).put(*numbered("later", 3))
    assert world.run() is None
    check_whole(world)
    more(world)
    assert world.run("again") is None
    check_whole(world)
    assert not world.told("incident")


def test_a_missing_right_on_the_map_s_topic_makes_no_partition_wait() -> None:
    world = World(maps=True)
    filled(world, 3)
    fail_once(world, "plane.wait_blocks", NotAllowed(f"cluster 'east': the user needs Write on topic {MAP!r}"))
    assert world.run() is None
    assert not world.told("waiting")
    assert world.position(A) == 3


def test_a_start_spends_little_time_on_the_map() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    for at, partition in ((A, 0), (B, 1), (U, 2)):  # as behind a generation with more lanes
        stands = world.target.offsets[target_of(at)]
        evidence = replace(checkpoint.decode(stands.metadata), map_partition=partition, map_offset=0)
        world.target.offsets[target_of(at)] = stands._replace(metadata=checkpoint.encode(evidence))

    def slow() -> None:
        world.time_s += 6

    world.on.append(("east.map_log", slow))
    assert world.run("again") is None
    assert world.trace.count("east.map_log") == 1
    assert len(world.told("map_not_checked")) == 2
