"""Between the claim of a partition and its first record: does it come from where it would go?"""

from __future__ import annotations

from replicator.lane.partition import Copying, Stopped, Waiting
from replicator.model.errors import NotAllowed, Retriable
from replicator.model.origins import Origin, Origins
from replicator.model.partition import Partition
from replicator.state.claims import read_claims
from tests.replicator.lane.fakes.loads import A, B, U, filled
from tests.replicator.lane.fakes.world import World

BACK = {"t": frozenset({Origin("east-id", "t.copy", "g")})}
CHAIN = {"t": frozenset({Origin("north-id", "t", "g")})}


def test_a_claim_that_another_flow_makes_at_the_same_time_is_found_before_the_first_record() -> None:
    """The other one had not claimed when the topics were listed."""
    world = World()
    filled(world)
    world.on.append(("plane.send_positions", lambda: world.origins.found.update(BACK)))
    assert world.run() is None
    assert world.incidents() == {A: "flows_in_conflict", B: "flows_in_conflict"}
    assert (world.copied(A), len(world.copied(U))) == ([], 8)
    assert world.position(A) == 0, "it is claimed, so that the other one finds it too"
    assert world.trace.index("west.origins") < world.trace.index("plane.poll")


def test_a_new_session_finds_it_again_and_no_longer_when_it_is_gone() -> None:
    world = World()
    filled(world)
    world.origins.found.update(BACK)
    world.run()
    world.run("another")
    assert world.copied(A) == []
    assert isinstance(world.states()[A], Stopped)
    world.origins.found.clear()
    world.run("a third")
    assert (len(world.copied(A)), world.states()[A]) == (8, Copying())


def test_a_chain_is_copied_and_its_claims_hand_on_where_it_comes_from() -> None:
    world = World(listed_origins=dict(CHAIN))
    filled(world)
    world.origins.found.update(CHAIN)
    assert world.run() is None
    assert len(world.copied(A)) == 8
    found = read_claims(world.target.claims).claims
    assert {at.topic: (it.source_cluster, it.origins) for at, it in found.items()} == {
        "t.copy": ("west-id", CHAIN["t"]),
        "u.copy": ("west-id", frozenset()),
    }


def test_what_is_learned_later_is_written_into_the_claims_once() -> None:
    world = World()
    filled(world)
    world.run()
    world.listed_origins.update(CHAIN)
    before = len(world.target.claims)
    world.run("another")
    world.run("a third")
    found = read_claims(world.target.claims).claims
    assert {it.origins for at, it in found.items() if at.topic == "t.copy"} == {CHAIN["t"]}
    assert {it.offset for it in found.values()} == {0}, "where the copy began stays"
    assert len(world.target.claims) == before + 2, "both partitions of t, once each"


def test_a_claims_topic_that_cannot_be_read_now_is_waited_for() -> None:
    world = World()
    filled(world)
    world.origins.unread["__eos.g.claims"] = Retriable("no leader")
    seen: list[bool] = []

    def answer() -> None:
        seen.append(isinstance(world.states()[A], Waiting) or not world.copied(A))
        world.origins.unread.clear()

    world.on.append(("west.origins", lambda: world.on.append(("west.origins", answer))))
    assert world.run() is None
    assert seen == [True]
    assert [len(world.copied(at)) for at in (A, B, U)] == [8, 8, 8]


def test_one_that_may_not_be_read_stops_nothing() -> None:
    world = World()
    filled(world)
    world.origins.unread["__eos.g.claims"] = NotAllowed("needs Read")
    assert world.run() is None
    assert len(world.copied(A)) == 8


def test_a_partition_with_records_is_not_asked_about_again() -> None:
    world = World()
    filled(world)
    world.run()
    asked = world.trace.count("west.origins")
    world.run("another")
    assert (asked, world.trace.count("west.origins")) == (1, 1)


def begins(world: World, origins: dict[str, Origins]) -> None:
    """Another flow claims the empty topic `t` and writes its first record there, while this lane reads already."""

    def once() -> None:
        world.origins.found.update(origins)
        world.source.log(A).put("first")

    world.on.append(("plane.poll", lambda: world.on.append(("plane.poll", once))))


def test_a_flow_that_claims_later_is_found_before_its_first_record_is_committed() -> None:
    world = World()
    begins(world, BACK)
    assert world.run() is None
    assert world.incidents() == {A: "flows_in_conflict"}
    assert world.copied(A) == []


def test_the_first_records_and_where_they_come_from_are_committed_together() -> None:
    """Whoever reads them finds it in the claim."""
    world = World()
    begins(world, CHAIN)
    found: list[tuple[int, Origins]] = []

    def look() -> None:
        claims = read_claims(world.target.claims).claims
        found.append((len(world.copied(A)), claims[Partition("t.copy", 0)].origins))

    world.on.append(("step.before_end_txn", look))
    world.on.append(("step.after_end_txn", look))
    assert world.run() is None
    assert found == [(0, frozenset()), (1, CHAIN["t"])]


def test_a_topic_that_was_not_empty_is_not_asked_about_at_its_first_commit() -> None:
    """No flow can have begun to write there after that."""
    world = World()
    filled(world)
    world.run()
    assert world.trace.count("west.origins") == 1
