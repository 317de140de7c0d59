"""A lane on simulated clusters: what concerns one partition concerns no other."""

from __future__ import annotations

from replicator.lane.driver import BACKOFF_S, STEADY_S
from replicator.lane.partition import Copying, Stopped, Waiting
from replicator.model.errors import NotAllowed, TakenOver, UnknownOutcome
from tests.replicator.lane.fakes.loads import A, B, U, filled, held, numbered
from tests.replicator.lane.fakes.world import World


def test_everything_is_copied_once_and_released() -> None:
    world = World()
    records = filled(world)
    assert world.run() is None
    world.check_exact(records)
    assert all(world.copied(at) == [value for _, value in records[at]] for at in records)
    assert {type(state) for state in world.states().values()} == {Copying}


def test_steps_come_in_the_one_safe_order() -> None:
    world = World()
    filled(world)
    world.run()
    steps = ["plane.fence", "state.control", "plane.positions", "plane.send_positions", "plane.end", "plane.seek"]
    positions = [world.trace.index(step) for step in steps]
    assert positions == sorted(positions)


def recreate(world: World, count: int, epoch: int = 0) -> None:
    world.source.delete("t")
    world.source.create("t", 2)
    world.source.log(A).put(*numbered("new", count), epoch=epoch)


def test_nothing_of_a_topic_that_was_made_again_goes_under_the_old_position() -> None:
    """The client adopts the new topic silently: at EndTxn the id is another one."""
    world = World()
    records = filled(world)
    world.on.append(("step.before_end_txn", lambda: world.on.append(("plane.poll", lambda: recreate(world, 50)))))
    assert world.run() is None
    world.check_exact(records)
    assert world.incidents()[A] == "source_topic_recreated"
    assert "offsets 0 to " in str(next(e for e in world.told("incident") if e["partition"] == 0)["detail"])
    assert isinstance(world.states()[U], Copying)
    assert world.position(U) == 8


def test_a_topic_made_again_that_says_nothing_is_found_by_asking() -> None:
    """With a lower leader epoch the client reads nothing of it at all: no record, no error, no end."""
    world = World()
    filled(world)

    def silent() -> None:
        recreate(world, 50)
        world.source.topics["t"].silent = True

    world.run()
    world.on.append(("plane.poll", silent))
    world.run()
    assert {world.incidents()[A], world.incidents()[B]} == {"source_topic_recreated"}
    assert world.position(A) == 8


def test_one_refused_record_stops_its_partition_before_it_and_no_other() -> None:
    for named in (True, False):
        world = World()
        records = filled(world, 20)
        world.target.topics["t.copy"].refuses = frozenset({"t[0]-13"})
        world.target.topics["t.copy"].names_refused = named
        assert world.run() is None
        world.check_exact(records)
        assert world.incidents() == {A: "record_refused"}
        assert next(e for e in world.told("incident"))["offset"] == 13
        assert (world.position(A), world.position(B), world.position(U)) == (13, 20, 20)


def test_a_refused_record_is_not_tried_again_by_the_next_session() -> None:
    world = World()
    filled(world, 6)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-0"})
    world.run()
    assert world.position(A) == 0
    aborted = len(world.told("aborted"))
    assert aborted <= 4
    assert world.copied(B) == numbered("t[1]", 6)


def test_a_missing_right_makes_its_topic_wait_and_is_noticed_when_it_is_back() -> None:
    for cluster, topic, operation in (
        ("source", "t", "Read"),
        ("target", "t.copy", "Write"),
        ("target", "t.copy", "Read"),
    ):
        world = World()
        records = filled(world)
        side = world.source if cluster == "source" else world.target
        side.denied[topic] = {operation}
        world.on.append(("never", lambda: None))
        gave_back = [False]

        def give_back(side=side, topic=topic, world=world, gave_back=gave_back) -> None:  # type: ignore[no-untyped-def]
            if world.told("waiting") and not gave_back[0]:
                gave_back[0] = True
                world.on.clear()
                side.denied.pop(topic)
            elif not gave_back[0]:
                world.actions[world.calls + 5] = give_back

        world.actions[30] = give_back
        assert world.run() is None
        assert gave_back[0]
        world.check_exact(records)
        assert operation in str(world.told("waiting")[0]["detail"])
        assert topic in str(world.told("waiting")[0]["detail"])
        assert "expires" not in str(world.told("waiting")[0]["detail"]), "it has no position yet"
        assert all(world.position(at) == 8 for at in (A, B, U)), (cluster, operation)
        assert world.told("copying")


def test_the_others_start_when_a_source_topic_is_missing() -> None:
    world = World()
    records = filled(world)
    plan = world.plan()
    world.source.delete("u")
    del records[U]
    world.run(plan=plan)
    world.check_exact(records)
    assert world.incidents() == {U: "source_topic_deleted"}
    assert world.position(A) == world.position(B) == 8


def test_an_expired_position_and_another_target_topic_are_told_by_the_claim() -> None:
    for name in ("position_expired", "target_topic_recreated", "target_topic_deleted"):
        world = World()
        filled(world)
        world.run()
        if name == "position_expired":
            world.target.offsets = {at: found for at, found in world.target.offsets.items() if at.topic != "u.copy"}
        else:
            world.target.delete("u.copy")
            if name == "target_topic_recreated":
                world.target.create("u.copy", 1)
        world.run("next")
        assert world.incidents() == {U: name}
        if name == "target_topic_recreated":
            assert world.copied(U) == []


def test_a_record_that_is_committed_while_the_start_is_looked_up_is_copied() -> None:
    """`start: <time>` after all records: the stable end must be read before the offset of the time is asked for."""
    world = World(start="2026-01-01T00:00:00Z")
    world.source.log(A).put("old", at_ms=1)
    world.on.append(("west.offsets_at", lambda: None))
    log = world.source.log(A)

    def late() -> None:
        log.put("between", at_ms=2)

    # the answer is -1, and the record comes in before anything else is asked
    original = world.source.offsets_at

    def answered(partitions, timestamp_ms):  # type: ignore[no-untyped-def]
        found = original(partitions, timestamp_ms)
        late()
        return found

    world.source.offsets_at = answered  # type: ignore[method-assign]
    world.run()
    assert world.copied(A) == ["between"]


def test_a_lost_control_topic_ends_the_lane_without_a_word_written() -> None:
    world = World()
    filled(world)
    world.state.lost = True
    error = world.run()
    assert "control_topic_lost" in str(error)
    assert world.copied(A) == []


def test_a_successor_is_not_fenced_back() -> None:
    world = World()
    filled(world)

    def successor() -> None:
        epoch = world.target.init("eos.f.1.0")
        assert epoch
        for at, found in list(world.target.offsets.items()):
            world.target.offsets[at] = found._replace(metadata=found.metadata.replace('"me"', '"other"'))

    world.run()
    world.source.log(A).put("more")
    world.on.append(("plane.flush", successor))
    error = world.run()
    assert type(error).__name__ == "TakenOver"
    assert world.copied(A)[-1] != "more"


def test_everything_waits_while_the_source_is_down_and_goes_on_after() -> None:
    world = World()
    records = filled(world)

    def up() -> None:
        world.source.down = False

    def down() -> None:
        world.source.down = True
        world.actions[world.calls + 40] = up

    world.on.append(("plane.flush", down))
    assert world.run() is None
    world.check_exact(records)
    assert all(world.position(at) == 8 for at in (A, B, U))


def test_states_are_one_of_three() -> None:
    world = World()
    filled(world)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-3"})
    world.run()
    assert isinstance(world.states()[A], Stopped)
    assert not [state for state in world.states().values() if isinstance(state, Waiting)]


def test_a_partition_whose_position_can_not_be_kept_is_not_read_on() -> None:
    """Read on the target topic is taken away between keep-alives, and records come in: none goes without position."""
    world = World(recommit_ms=1_000)
    records = filled(world)
    commits = [0]

    def deny() -> None:
        world.target.denied["t.copy"] = {"Read"}
        world.on.append(("east.missing_rights", more))

    def more() -> None:
        world.source.log(A).put("later-1", "later-2")
        world.actions[world.calls + 60] = lambda: world.target.denied.clear()

    def watch() -> None:
        commits[0] += 1
        world.on.append(("step.after_end_txn", watch) if commits[0] < 1 else ("plane.send_positions", deny))

    world.on.append(("step.after_end_txn", watch))
    assert world.run() is None
    world.check_exact(held(world))
    assert world.position(A) == 10
    assert len(records[A]) == 8
    assert world.told("waiting")


def test_a_right_of_the_whole_lane_is_told_once_until_it_is_back() -> None:
    """Each try fails only when positions are sent: until one is committed nothing is said to be copied."""
    world = World()
    filled(world)
    tries = [8]

    def refuse() -> None:
        tries[0] -= 1
        if tries[0]:
            world.on.append(("plane.send_positions", refuse))
        raise NotAllowed("cluster 'east': the user needs Read on group 'f'")

    def take_away() -> None:
        world.source.log(A).put("later")
        world.on.append(("plane.send_positions", refuse))

    world.on.append(("step.after_end_txn", take_away))
    assert world.run() is None
    assert tries == [0]
    assert world.copied(A)[-1] == "later"
    for at in (A, B, U):
        said = [it["event"] for it in world.events if (it.get("topic"), it.get("partition")) == at]
        assert [event for event in said if event in ("waiting", "copying")] == ["waiting", "copying"], at


def test_failures_of_an_idle_lane_that_are_far_apart_are_no_series() -> None:
    """Nothing is committed between them, but each session has stood for long: the next one begins at once."""
    world = World(idle_s_max=100.0)
    failures = [6]

    def later() -> None:
        fails_at_s = world.time_s + STEADY_S + 1

        def look() -> None:
            if world.time_s < fails_at_s:
                world.on.append(("plane.poll", look))
                return
            failures[0] -= 1
            if failures[0]:
                world.on.append(("plane.fence", later))
            raise UnknownOutcome("the connection broke")

        world.on.append(("plane.poll", look))

    world.on.append(("plane.fence", later))
    assert world.run() is None
    assert failures == [0]
    delays_ms = [it["delay_ms"] for it in world.events if it["event"] == "restarted"]
    assert len(delays_ms) == 6
    assert max(delays_ms) <= BACKOFF_S * 1000  # type: ignore[type-var, operator]
    assert not world.told("waiting")


def test_sessions_that_hang_for_long_before_they_fail_are_a_series() -> None:
    """Records get no acknowledgement: the flush gives up after the transaction timeout, which is no steady time."""
    world = World(idle_s_max=100_000.0)
    filled(world, 3)
    left = [12]

    def hang() -> None:
        left[0] -= 1
        if left[0]:
            world.on.append(("plane.flush", hang))
        world.advance(2 * STEADY_S)
        raise UnknownOutcome("3 records without ack")

    def stop() -> None:
        assert world.driver is not None
        world.driver.stop()

    world.on += [("plane.flush", hang), ("step.after_end_txn", stop)]
    assert world.run() is None
    delays_ms = [int(str(it["delay_ms"])) for it in world.told("restarted")]
    assert len(delays_ms) == 12
    assert max(delays_ms) > 50 * BACKOFF_S * 1000
    assert world.told("waiting")


def test_an_idle_lane_notices_its_successor() -> None:
    """Nothing is written, so nothing tells it that it was fenced."""
    world = World(idle_s_max=200.0)
    filled(world, 3)

    def succeed() -> None:
        world.target.init("eos.f.1.0")
        for at, found in list(world.target.offsets.items()):
            world.target.offsets[at] = found._replace(metadata=found.metadata.replace('"me"', '"other"'))

    world.on.append(("step.after_end_txn", lambda: world.on.append(("plane.poll", succeed))))
    began_s = world.time_s
    error = world.run()
    assert isinstance(error, TakenOver)
    assert "other has taken over" in str(error)
    assert world.time_s - began_s < world.flow.limits.discovery_interval_ms / 1000 + 10


def test_nothing_is_committed_to_a_topic_that_turns_to_its_own_timestamps() -> None:
    """Its partitions stop together, those of other topics go on; whoever turns it back has every record."""
    world = World()
    records = filled(world, 20)

    def stamp() -> None:
        world.target.topics["t.copy"].stamps = True

    world.on.append(("step.before_end_txn", lambda: world.on.append(("plane.poll", stamp))))
    assert world.run() is None
    committed = {at: world.position(at) for at in (A, B, U)}
    assert world.incidents() == dict.fromkeys((A, B), "target_rewrites_timestamps")
    assert committed[U] == 20
    assert 0 < committed[A] < 20
    assert len(world.told("aborted")) == 1
    told = world.told("incident")
    assert {(e["partition"], e["offset"]) for e in told} == {(0, committed[A]), (1, committed[B])}
    assert world.copied(A) == [value for _, value in records[A]][: committed[A]]
    world.target.topics["t.copy"].stamps = False
    assert world.run() is None
    world.check_exact(records)
    assert all(world.position(at) == 20 for at in (A, B, U))


def test_a_batch_that_was_sent_again_is_no_sign_of_other_timestamps() -> None:
    """Kafka acknowledges it with the batch's own time, as if the topic had stamped it."""
    world = World()
    records = filled(world, 20)

    def resend(resent: bool) -> None:
        world.target.topics["t.copy"].resent = resent

    world.on.append(("step.before_end_txn", lambda: world.on.append(("plane.poll", lambda: resend(True)))))
    world.on.append(("plane.abort", lambda: resend(False)))
    assert world.run() is None
    assert world.incidents() == {}
    assert [e["kind"] for e in world.told("aborted")] == ["Abortable"]
    world.check_exact(records)
    assert all(world.position(at) == 20 for at in (A, B, U))
