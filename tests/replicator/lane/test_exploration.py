"""A seeded exploration of a lane: errors and events at every call, in all orders of two.

Each schedule lets two things go wrong at any two calls that the lane makes: an error that the call may raise, before or
after it took effect, or an event on a cluster. Checked, by what a reader of the target finds, are invariants 1 (fence,
then read), 4 (where a partition begins), 5 (abort and rewind), 6 (unknown outcomes), 8 (no record under a position of
another topic) and 10 (a fenced worker stays away, and a stray commit fences nobody). The flow is opened before: records
come between that and the first admission of a partition. Brokers may skip the markers of transactions.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from replicator.lane import facts
from replicator.lane.own_transactions import OPEN
from replicator.model.checkpoint import Unreadable
from replicator.model.errors import (
    Abortable,
    Fenced,
    NotAllowed,
    ReplicatorError,
    Retriable,
    TakenOver,
    TopicMissing,
    UnknownOutcome,
    Unreachable,
)
from replicator.model.partition import Committed, Partition
from replicator.state.claims import Claim, read_claims
from tests.budget import budget
from tests.replicator.lane.fakes.log import FakeLog
from tests.replicator.lane.fakes.plane import TIMEOUT_S
from tests.replicator.lane.fakes.world import World

SCHEDULES = int(os.environ.get("EOS_LANE_SCHEDULES", budget(4_000, 10_000)))
PARTS = 10
A, B, U = Partition("t", 0), Partition("t", 1), Partition("u", 0)
ALL = (A, B, U)
CALLS = 90  # a run without trouble makes about so many
START_MS = 50
STARTS = ("earliest", "latest", "1970-01-01T00:00:00.050Z")

DENIALS = (("source", "t", "Read"), ("target", "t.copy", "Write"), ("target", "t.copy", "Read"))
ERRORS: dict[str, tuple[type[ReplicatorError], ...]] = {
    "plane.fence": (Retriable, Unreachable, NotAllowed),
    "plane.positions": (Retriable, Unreachable),
    "plane.poll": (Abortable, UnknownOutcome, NotAllowed),
    "plane.flush": (Abortable, UnknownOutcome, NotAllowed),
    "plane.send_positions": (Abortable, UnknownOutcome, NotAllowed),
    "plane.end": (UnknownOutcome,),
    "plane.end_answered": (UnknownOutcome,),
    "plane.abort": (UnknownOutcome,),
    "state.control": (Retriable, Unreachable),
    "state.claims": (Retriable, Unreachable),
    "west.origins": (Retriable, Unreachable, NotAllowed),
    "west.topic_ids": (Unreachable, NotAllowed, TopicMissing),
    "east.topic_ids": (Unreachable, NotAllowed, TopicMissing),
    "west.log_ends": (Retriable, Unreachable),
    "east.log_ends": (Retriable, Unreachable),
    "east.end_records": (Retriable, Unreachable),
    "east.init": (Retriable,),
}
Records = dict[tuple[Partition, str], dict[int, str]]  # by partition and topic id: values by offset


class Schedule:
    """One run of a lane with two things going wrong."""

    def __init__(self, seed: int, *, stored: bool = True) -> None:
        """`stored`: whether starts are stored when the flow is opened."""
        self.random = random.Random(seed)
        self.start = self.random.choice(STARTS)
        self.world = World(self.start, idle_s_max=1.0, recommit_ms=self.random.choice((1_000, 3_600_000)))
        self.records: Records = {}
        self.log_starts: dict[tuple[Partition, str], set[int]] = {}  # the source's, over time
        self.wrote_to_new_target = False
        self.recreated: set[str] = set()
        self.stolen = False
        self.unready_logs: list[FakeLog] = []
        self.dropping: list[FakeLog] = []
        self.strays: set[Partition] = set()
        self.markers_lost: set[Partition] = set()
        for at in ALL:
            log = self.world.source.log(at)
            for number in range(self.random.randrange(7)):
                log.put(f"{at}-{number}", at_ms=self.random.randrange(2 * START_MS))
            if self.random.random() < 0.5:
                log.marker()
        self.note()
        if stored:
            self.world.open_flow()
            self.world.calls = 0
        self.first = {at: self.expected_start(at) for at in ALL}
        for _ in range(self.random.randrange(3)):
            self.random.choice((self.more, self.deny, self.slow_line, self.unready, self.lose_markers))()
        for call in self.random.sample(range(1, CALLS), 2):
            if self.random.random() < 0.5:
                self.world.faults[call] = self.fail
            else:
                self.world.actions[call] = self.random.choice(self.events())

    def events(self) -> list[Callable[[], None]]:
        return [
            self.more,
            self.recreate_source,
            self.recreate_target,
            self.delete_records,
            self.steal,
            self.restart,
            self.deny,
            self.slow_line,
            self.unready,
            self.stray_commit,
            self.lose_markers,
        ]

    def expected_start(self, at: Partition) -> tuple[str, int | None]:
        """Where the partition must begin, now that the flow is opened, in the topic of this id; None: at earliest."""
        topic_id, log = self.world.source.topics[at.topic].topic_id, self.world.source.log(at)
        if self.start == "earliest":
            return topic_id, None
        if self.start == "latest":
            return topic_id, log.stable
        late = (offset for offset, entry in log.committed() if entry.at_ms >= START_MS)
        return topic_id, next(late, log.stable)

    def note(self) -> None:
        """Remember the source as it stands, before and after anything of it is deleted."""
        for at in ALL:
            log, known_as = self.world.source.log(at), (at, self.world.source.topics[at.topic].topic_id)
            self.records.setdefault(known_as, {}).update((offset, entry.value) for offset, entry in log.committed())
            self.log_starts.setdefault(known_as, set()).add(log.start)

    def fail(self, call: str) -> None:
        errors = ERRORS.get(call)
        if errors:
            raise self.random.choice(errors)(f"planned at {call}")

    def more(self) -> None:
        at = self.random.choice(ALL)
        if at.topic in self.world.source.topics:
            self.world.source.log(at).put("more-1", "more-2", at_ms=self.random.randrange(2 * START_MS))
        self.note()

    def recreate_source(self) -> None:
        self.note()
        self.recreated.add("t")
        self.world.source.delete("t")
        self.world.source.create("t", 2)
        for at in (A, B):
            self.world.source.log(at).put(*(f"new-{number}" for number in range(self.random.randrange(12))))
        self.note()

    def recreate_target(self) -> None:
        self.recreated.add("u.copy")
        self.world.target.delete("u.copy")
        topic = self.world.target.create("u.copy", 1)
        if self.random.random() < 0.5:  # somebody fills it up past what the flow had written
            topic.logs[0].put(*(f"foreign-{number}" for number in range(12)))

    def delete_records(self) -> None:
        self.note()
        log = self.world.source.log(U)
        log.delete_before(self.random.randint(log.start, log.end))
        self.note()

    def steal(self) -> None:
        """Another worker fences the lane and writes its name into the positions."""
        self.stolen = True
        self.world.target.init("eos.f.1.0")
        for at, found in list(self.world.target.offsets.items()):
            self.world.target.offsets[at] = found._replace(metadata=found.metadata.replace('"me"', '"other"'))

    def deny(self) -> None:
        """A right is taken away, and given back some calls later."""
        side, topic, operation = self.random.choice(DENIALS)
        cluster = self.world.source if side == "source" else self.world.target
        cluster.denied[topic] = {operation}

        def give_back() -> None:
            cluster.denied.pop(topic, None)

        self.later(60, give_back)

    def later(self, calls_max: int, then: Callable[[], None]) -> None:
        """Before one of the next calls, at which nothing else is planned."""
        actions, faults = self.world.actions, self.world.faults
        call = self.world.calls + self.random.randrange(3, calls_max)
        while call in actions or call in faults:
            call += 1
        actions[call] = then

    def slow_line(self) -> None:
        """For some calls the target takes from half a record to all of them within a transaction's timeout."""
        target = self.world.target
        target.bytes_per_s = self.random.choice((3, 8, 20, 200)) / TIMEOUT_S
        target.late_as = self.random.choice((Abortable, UnknownOutcome, Fenced))

        def recover() -> None:
            target.bytes_per_s = None

        self.later(200, recover)

    def unready(self) -> None:
        """For some calls a target partition has no leader, or too few replicas in sync."""
        at = self.random.choice(ALL)
        topic = self.world.target.topics.get(f"{at.topic}.copy")
        if topic is not None:
            log = topic.logs[at.partition]
            log.not_ready = f"{at.topic}.copy[{at.partition}] has no leader"
            self.unready_logs.append(log)
            self.later(200, lambda: setattr(log, "not_ready", ""))

    def stray_commit(self) -> None:
        """A consumer with the flow's group id commits, or somebody resets its offsets: once, or a few times."""
        at = self.random.choice(ALL)
        target = Partition(f"{at.topic}.copy", at.partition)
        self.strays.add(at)

        def commit() -> None:
            offset = self.random.randrange(self.world.source.log(at).end + 3)
            self.world.target.offsets[target] = Committed(offset, self.random.choice(("", "x", '{"v":1}')))

        commit()
        for _ in range(self.random.randrange(3)):
            self.later(60, commit)

    def lose_markers(self) -> None:
        """For some calls a target partition's leader skips the markers of transactions that end: nobody writes them."""
        at = self.random.choice(ALL)
        topic = self.world.target.topics.get(f"{at.topic}.copy")
        if topic is not None:
            log = topic.logs[at.partition]
            log.drops_markers = True
            self.dropping.append(log)
            self.markers_lost.add(at)
            self.later(60, lambda: setattr(log, "drops_markers", False))

    def restart(self) -> None:
        """The lane is given its routes again, as a discovery does."""
        assert self.world.driver is not None
        self.world.driver.reassign(self.world.plan())

    def run(self) -> None:
        error = self.world.run()
        assert error is None or isinstance(error, TakenOver | Fenced | NotAllowed | Unreachable), repr(error)
        assert self.stolen or not isinstance(error, TakenOver), f"nobody has taken over: {error}"
        self.note()
        self.check()

    def check(self) -> None:
        self.check_copies()
        if self.recreated or self.stolen or self.world.incidents():
            return
        for cluster in (self.world.source, self.world.target):
            cluster.denied.clear()  # all faults are over
            cluster.bytes_per_s = None
        for log in self.unready_logs:
            log.not_ready = ""
        for log in self.dropping:
            log.drops_markers = False
        assert self.world.run("again") is None
        self.note()
        self.check_copies(restarted=True)
        for at in ALL:
            stopped = at in self.world.incidents()  # of what happened just before the first run ended
            assert stopped or self.world.position(at) >= self.world.source.log(at).stable, f"{at} stands still"

    def check_copies(self, *, restarted: bool = False) -> None:
        """`restarted`: a lane has started since the last marker was lost."""
        claims = read_claims(self.world.target.claims).claims
        for at in ALL:
            target = Partition(f"{at.topic}.copy", at.partition)
            copied = [e.value for _, e in self.world.target.log(target).committed() if e.origin >= 0]
            stored = self.world.target.position(target)
            if isinstance(stored, Unreadable):
                assert at in self.strays, f"{at}: {stored.why}"
                self.check_begun(at, copied, claims.get(target))
                continue
            was = None if stored is None else stored.evidence
            if was is None or was.target_topic_id != self.world.target.topics[target.topic].topic_id:
                assert copied == [], f"{at}: written to a topic that is another one"
                continue
            assert stored is not None
            starts, records = self.begins(at, was.source_topic_id), self.records[(at, was.source_topic_id)]
            begins = claims[target].offset
            assert begins in starts, f"{at}: begins elsewhere than when the flow was opened: {begins}, not {starts}"
            expected = [records[offset] for offset in sorted(records) if begins <= offset < stored.offset]
            if at in self.markers_lost and (not restarted or self.is_left_so(at)):
                readable = iter(expected)  # some of them, in order, each once
                assert all(value in readable for value in copied), f"{at}: {copied} of {expected}"
                continue
            assert copied == expected, f"{at}: position {stored.offset}"

    def begins(self, at: Partition, topic_id: str) -> set[int]:
        """Where a partition may begin in the source topic of this id, as the simulated clusters have it."""
        opened_with, first = self.first[at]
        return self.log_starts[(at, topic_id)] if first is None or opened_with != topic_id else {first}

    def is_left_so(self, at: Partition) -> bool:
        """Whether a marker was lost that nobody may write: the next one of the producer has ended its transaction the
        other way, which takes an abort, or stands behind more than the position covers."""
        told = [event for event in self.world.told("incident") if (event["topic"], event["partition"]) == at]
        if not told:
            return False
        name, detail = told[-1]["name"], str(told[-1]["detail"])
        aborted = bool(self.world.told("aborted") or self.world.told("restarted"))
        return (name == "target_records_hidden" and aborted) or (name == OPEN and "the last block" in detail)

    def check_begun(self, at: Partition, copied: list[str], claim: Claim | None) -> None:
        """Of a partition whose position was overwritten: what was copied is the beginning of one topic's records, from
        where the clusters say that it begins. A claim, where there is one, says the same."""
        begins = {topic_id: self.begins(at, topic_id) for of, topic_id in self.records if of == at}
        if claim is not None:
            starts = begins[claim.source_topic_id]
            assert claim.offset in starts, f"{at}: begins elsewhere than when the flow was opened: {claim.offset}"
        all_ = [
            [records[offset] for offset in sorted(records) if offset >= first]
            for (of, topic_id), records in self.records.items()
            if of == at
            for first in begins[topic_id]
        ]
        if at in self.markers_lost:
            assert any(all(value in readable for value in copied) for readable in map(iter, all_)), f"{at}: {copied}"
        else:
            assert any(values[: len(copied)] == copied for values in all_), f"{at}: {copied} of {all_}"


@pytest.mark.parametrize(
    "part",
    [0, *(pytest.param(part, marks=pytest.mark.tier("extended" if part < 4 else "full")) for part in range(1, PARTS))],
)
def test_two_things_go_wrong_at_any_two_calls(part: int) -> None:
    for seed in range(part * SCHEDULES // PARTS, (part + 1) * SCHEDULES // PARTS):
        schedule = Schedule(seed)
        try:
            schedule.run()
        except BaseException as error:
            last = "\n".join(schedule.world.trace[-80:])
            raise AssertionError(f"seed {seed}: {error}\n{last}\n{schedule.world.events[-10:]}") from error


def test_a_copy_that_begins_behind_the_first_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower bound is the clusters': the program's own claim says that all is well."""
    first_offsets = facts.first_offsets

    def late(*arguments: Any) -> Any:
        logs = arguments[2]
        return {at: log.start + 1 for at, log in logs.items() if log.end > log.start} | first_offsets(*arguments)

    monkeypatch.setattr(facts, "first_offsets", late)

    def explore() -> None:
        for seed in range(50):
            Schedule(seed).run()

    with pytest.raises(AssertionError, match="begins elsewhere"):
        explore()


def test_so_is_one_of_a_partition_whose_position_was_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "first_offsets", lambda flow, source, logs, control: dict.fromkeys(logs, 1))
    schedule = next(it for it in map(Schedule, range(50)) if it.start == "earliest" and it.world.source.log(A).end > 2)
    schedule.world.actions.clear()
    schedule.world.faults.clear()
    schedule.world.run()
    copied, claim = schedule.world.copied(A), read_claims(schedule.world.target.claims).claims[Partition("t.copy", 0)]
    assert copied
    with pytest.raises(AssertionError, match="begins elsewhere"):
        schedule.check_begun(A, copied, claim)
    with pytest.raises(AssertionError, match="of "):
        schedule.check_begun(A, copied, None)


def test_resolved_at_admission_records_are_lost() -> None:
    """The oracle knows what was written after the flow was opened: without stored starts it finds the loss."""

    def lost(seed: int) -> bool:
        schedule = Schedule(seed, stored=False)
        try:
            schedule.run()
        except AssertionError as error:
            return "begins elsewhere" in str(error)
        return False

    assert any(lost(seed) for seed in range(200))
