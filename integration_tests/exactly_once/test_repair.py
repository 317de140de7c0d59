"""A repair copies missing records again: each once, wherever it is killed, and whoever runs the flow afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
import structlog
from confluent_kafka import Message

from integration_tests.harness import clients
from integration_tests.harness.advised import advised
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.repairing import killed, repair
from integration_tests.harness.replicator import Replicator
from integration_tests.spark.planted import Content, Planted, mixed, produce
from replicator import config, failpoints
from replicator.jobs import repair_plan
from replicator.jobs.job_generation import JobGeneration
from replicator.jobs.repair import RepairJob, known
from replicator.jobs.repair_spans import Damage, Missing, RepairRequest
from replicator.model import checkpoint
from replicator.model.errors import ConfigError, Retriable, TakenOver
from replicator.model.partition import Partition
from replicator.state.claims import Repair

Plant = Callable[..., Planted]
RECORDS = 400
LOST = (3, *range(100, 160), 399)
SPANS = (Missing(3, 4, 1), Missing(100, 160, 60), Missing(399, 400, 1))


@pytest.fixture
def plant(source: BrokerHandle, target: BrokerHandle, tmp_path: Path) -> Plant:
    """Makes a flow whose transactions are small, with records on the source and what stands where its copy should."""

    def make(records: Sequence[Sequence[Content]], copies: Sequence[Sequence[Content]], **how: Any) -> Planted:
        planted = Planted(source, target, tmp_path, records, copies, **how)
        planted.file.write(commit={"records_max": 20})
        return planted

    return make


def without(records: list[Content], lost: Sequence[int]) -> list[Content]:
    return [record for number, record in enumerate(records) if number not in lost]


def content(message: Message) -> Content:
    headers = tuple(message.headers() or ())
    return Content(message.key(), message.value(), message.timestamp()[1], headers)  # type: ignore[arg-type]


def copied(planted: Planted, partition: int = 0) -> list[Content]:
    return [content(message) for message in clients.read(planted.target, planted.copy, partition)]


def before(planted: Planted) -> frozenset[Repair]:
    """What repairs have copied by now."""
    return known(config.load(planted.file.path).flows[planted.file.flow])


def goes_on(planted: Planted, partitions: int) -> None:
    """A live worker copies what is written now, behind all that is there, and stops without an incident."""
    before = [copied(planted, number) for number in range(partitions)]
    more = mixed(50, "more")
    produce(planted.source, planted.topic, [more] * partitions)
    worker = Replicator(planted.file)
    try:
        for number in range(partitions):
            clients.wait_value(planted.target, planted.copy, number, next(r.value for r in reversed(more) if r.value))
        assert worker.stop() == 0, worker.tail()
    finally:
        worker.close()
    assert not worker.seen("incident")
    for number in range(partitions):
        assert copied(planted, number)[: len(before[number])] == before[number]
        assert copied(planted, number)[len(before[number]) :][-50:] == more[-50:]


def test_a_plan_asks_both_sides_and_changes_nothing(plant: Plant) -> None:
    records = mixed(RECORDS)
    planted = plant([records, records], [without(records, LOST), without(records, (3,))])
    damage = {Partition(planted.topic, n): Damage(SPANS, RECORDS, RECORDS) for n in range(2)}
    before, topics = [copied(planted, number) for number in range(2)], clients.topics(planted.target)
    loaded, said = config.load(planted.file.path), list[str]()
    found = repair_plan.planned(loaded.flows[planted.file.flow], damage, threading.Event(), said.append)
    assert [(one.copied, one.standing, one.incident) for _, one in sorted(found.items())] == [
        (len(LOST), 0, None),
        (1, len(LOST) - 1, None),
    ]
    assert said
    assert [copied(planted, number) for number in range(2)] == before
    assert clients.topics(planted.target) == topics
    stopped = threading.Event()
    stopped.set()
    assert repair_plan.planned(loaded.flows[planted.file.flow], damage, stopped, said.append) == {}


@pytest.mark.tier("full")
def test_killed_anywhere_and_begun_again_it_copies_each_record_once(plant: Plant) -> None:
    records = mixed(RECORDS)
    planted = plant([records, records], [without(records, LOST), without(records, LOST)])
    damage = {Partition(planted.topic, n): Damage(SPANS, RECORDS, RECORDS - len(LOST)) for n in range(2)}
    killed(planted.file, damage, "before_end_txn@2")
    killed(planted.file, damage, "after_end_txn@1")
    killed(planted.file, damage, "claimed@1")
    summary = repair(planted.file, damage)
    assert summary.incident is None
    outcomes = [summary.partitions[Partition(planted.topic, number)] for number in range(2)]
    assert [found.copied + found.done_before for found in outcomes] == [len(LOST)] * 2
    assert 2 <= sum(found.done_before for found in outcomes) < 2 * len(LOST), "what was committed before a kill stays"
    for number in range(2):
        assert copied(planted, number) == [*without(records, LOST), *(records[lost] for lost in LOST)]
        stands = clients.committed(planted.target, f"eos-replicate.{planted.file.flow}", planted.copy, number)
        evidence = checkpoint.decode(stands.metadata or "")
        assert (stands.offset, evidence.count) == (RECORDS, RECORDS)
        last = clients.read(planted.target, planted.copy, number)[-1].offset()
        assert last is not None
        assert evidence.next_target_offset == last + 1
    again = repair(planted.file, damage)
    assert [found.copied for found in again.partitions.values()] == [0, 0]
    goes_on(planted, 2)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=() if step == "before_end_txn" else pytest.mark.tier("full"))
        for step in failpoints.LANE_STEPS
    ],
)
def test_killed_at_any_step_it_copies_what_is_lost_and_nothing_else(plant: Plant, step: str) -> None:
    """It is told of records that stand on the target, too: some were moved to its end, some were never away."""
    records = mixed(RECORDS)
    moved = records[200:220]
    planted = plant([records], [[*without(records, (*LOST, *range(200, 220))), *moved]])
    planted.commit([RECORDS], [RECORDS - len(LOST)])
    told = (Missing(3, 4, 1), Missing(90, 160, 70), Missing(195, 220, 25), Missing(399, 400, 1))
    damage = {Partition(planted.topic, 0): Damage(told, RECORDS, RECORDS - len(LOST))}
    killed(planted.file, damage, f"{step}@1")
    summary = repair(planted.file, damage)
    found = summary.partitions[Partition(planted.topic, 0)]
    assert found.incident is None
    assert (found.copied + found.done_before, found.standing) == (len(LOST), 10 + 25)
    before = [*without(records, (*LOST, *range(200, 220))), *moved]
    assert copied(planted) == [*before, *(records[lost] for lost in LOST)]


@pytest.mark.tier("extended")
def test_a_compacted_target_keeps_the_last_record_of_each_key(plant: Plant) -> None:
    """`old-5` behind `new-5` is what a cleaner would make final."""
    old = [Content(f"k{n}".encode(), f"old-{n}".encode(), 1_700_000_000_000 + n) for n in range(20)]
    new = [Content(f"k{n}".encode(), f"new-{n}".encode(), 1_700_000_001_000 + n) for n in range(10)]
    records = [*old, *new]
    lost = (
        5,
        15,
        29,
    )  # old-5, of which new-5 stands there; old-15, the last of its key; new-9, where old-9 is the last now
    planted = plant([records], [without(records, lost)], target_policy="compact")
    damage = Damage((Missing(5, 6, 1), Missing(15, 16, 1), Missing(29, 30, 1)), 30, 27)
    found = repair(planted.file, {Partition(planted.topic, 0): damage}).partitions[Partition(planted.topic, 0)]
    assert found.incident is None
    assert (found.copied, found.superseded, found.superseded_at) == (2, 1, ((5, 6),))
    assert copied(planted) == [*without(records, lost), records[15], records[29]]


@pytest.mark.tier("full")
def test_what_an_open_transaction_hides_is_not_taken_for_missing(plant: Plant) -> None:
    records = mixed(RECORDS)
    planted = plant([records], [without(records, LOST)])
    writer = clients.transactional(planted.target, f"{planted.topic}-open")
    writer.begin_transaction()
    clients.put(writer, planted.copy, b"hidden")
    damage = {Partition(planted.topic, 0): Damage(SPANS, RECORDS, RECORDS - len(LOST))}
    incident = repair(planted.file, damage).partitions[Partition(planted.topic, 0)].incident
    assert incident is not None
    assert incident.name in ("target_transaction_open", "target_has_later_records")
    writer.abort_transaction()
    assert copied(planted) == without(records, LOST)


@pytest.mark.tier("full")
def test_a_target_that_lost_its_end_is_made_whole_and_the_flow_goes_on(plant: Plant) -> None:
    records = mixed(RECORDS)
    planted = plant([records], [records[:-30]])
    planted.commit([RECORDS], [RECORDS])
    stopped = Replicator(planted.file)
    stopped.wait_incident("target_lost_data")
    assert stopped.wait_exit() == 4
    stopped.close()
    at = Partition(planted.topic, 0)
    moved = repair(planted.file, {at: Damage((Missing(370, 380, 10),), 380, 370)})
    assert moved.incident is not None
    assert moved.incident.name == "repair_outdated", "what a reconciliation hasn't compared may be lost too"
    summary = repair(planted.file, {at: Damage((Missing(370, 400, 30),), RECORDS, 370)})
    assert summary.incident is None
    assert copied(planted) == records
    goes_on(planted, 1)


def test_what_was_found_must_still_be_so(plant: Plant) -> None:
    records = [record._replace(key=record.key or b"none") for record in mixed(RECORDS)]
    planted = plant([records] * 4, [without(records, LOST)] * 4, target_policy="compact")
    at = [Partition(planted.topic, number) for number in range(4)]
    clients.delete_records(planted.source, planted.topic, 0, 120)
    size = RECORDS - len(LOST)
    summary = repair(
        planted.file,
        {
            at[0]: Damage(SPANS[1:], RECORDS, size),
            at[1]: Damage(SPANS, RECORDS, size + 1),
            at[2]: Damage(SPANS[:2], 410, size),
            at[3]: Damage((Missing(3, 4, 2), *SPANS[1:]), RECORDS, size),
        },
    )
    found = {number: summary.partitions[at[number]].incident for number in range(4)}
    names = {number: incident.name if incident else None for number, incident in found.items()}
    assert names == {0: "source_records_gone", 1: "repair_outdated", 2: "repair_outdated", 3: "repair_record_gone"}
    assert [len(copied(planted, number)) for number in range(4)] == [size, size, size, size]
    assert "source offsets 3 to 3" in str(found[3])


@pytest.mark.tier("long", kafka="long")
def test_a_missing_record_that_the_source_has_lost_too_is_named_and_the_others_are_copied(plant: Plant) -> None:
    """repair_record_gone: what a reconciliation finds when it is typed again is copied, and the flow goes on."""
    records = mixed(RECORDS)
    planted = plant([records], [without(records, LOST)])
    planted.commit([RECORDS], [RECORDS - len(LOST)])
    at, before = Partition(planted.topic, 0), copied(planted)
    found = repair(planted.file, {at: Damage((Missing(3, 4, 2), *SPANS[1:]), RECORDS, len(before))}).partitions[at]
    assert found.incident is not None
    assert found.incident.name == "repair_record_gone"
    assert "1 of the records at source offsets 3 to 3 aren't there any more" in str(found.incident)
    assert list(advised(found.incident.advice, "reconcile --repair apply"))[-1] == planted.file.flow
    assert copied(planted) == before
    again = repair(planted.file, {at: Damage(SPANS, RECORDS, len(before))}).partitions[at]
    assert (again.incident, again.copied) == (None, len(LOST))
    assert copied(planted) == [*before, *(records[lost] for lost in LOST)]
    goes_on(planted, 1)


@pytest.mark.tier(embedded="full")
def test_a_live_worker_is_not_stopped_unasked(plant: Plant) -> None:
    records = mixed(RECORDS)
    planted = plant([records], [without(records, LOST)])
    damage = {Partition(planted.topic, 0): Damage(SPANS, RECORDS, RECORDS - len(LOST))}
    worker = Replicator(planted.file)
    try:
        worker.wait_event("lane_started")
        with pytest.raises(TakenOver, match=r"live worker holds it.*--take-over"):
            repair(planted.file, damage)
        assert repair(planted.file, damage, take_over=True).partitions[Partition(planted.topic, 0)].copied == len(LOST)
        produce(planted.source, planted.topic, [records[:1]])  # its next commit shows the worker that it was replaced
        assert worker.wait_exit() == 5, worker.tail()
    finally:
        worker.close()
    planted.file.write(delivery="at_least_once")
    with pytest.raises(ConfigError, match="exactly_once"):
        repair(planted.file, damage)


@pytest.mark.tier("full")
@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_a_lost_end_that_was_copied_in_part_is_left_to_the_next_repair(plant: Plant, ends: str) -> None:
    """The flow would go on behind it, and nothing would tell of the rest."""
    records, lost = mixed(RECORDS), range(RECORDS - 60, RECORDS)
    planted = plant([records], [without(records, lost)])
    planted.commit([RECORDS], [RECORDS])
    damage = {Partition(planted.topic, 0): Damage((Missing(lost.start, RECORDS, 60),), RECORDS, lost.start)}
    if ends == "killed":
        killed(planted.file, damage, "after_end_txn@1")
    loaded = config.load(planted.file.path)

    def stop(step: str) -> None:
        if step == "after_end_txn":
            job.stop()

    request = [RepairRequest(damage)]
    job = RepairJob(loaded.flows[planted.file.flow], loaded, request, structlog.get_logger(), stop)
    summary = job.run()
    assert summary.stopped
    assert 0 < len(copied(planted)) - lost.start < 60
    assert not summary.handed_over
    again = RepairJob(loaded.flows[planted.file.flow], loaded, request, structlog.get_logger())
    again.stop()  # before it has copied anything
    assert not again.run().handed_over
    with closing(Replicator(planted.file)) as worker:
        assert worker.wait_exit() == 5, worker.tail()
    assert repair(planted.file, damage).handed_over
    assert copied(planted) == records
    goes_on(planted, 1)


@pytest.mark.tier("extended", kafka="full")
def test_a_repair_of_others_keeps_what_one_before_it_has_left_half_done(plant: Plant) -> None:
    """The flow would go on behind it: a position says nothing any more of a lost end that is there in part."""
    records, lost = mixed(RECORDS), range(RECORDS - 60, RECORDS)
    planted = plant([records, records], [without(records, lost), without(records, LOST)])
    planted.commit([RECORDS, RECORDS], [RECORDS, RECORDS - len(LOST)])
    ends, gaps = Partition(planted.topic, 0), Partition(planted.topic, 1)
    damage = {ends: Damage((Missing(lost.start, RECORDS, 60),), RECORDS, lost.start)}
    others = {gaps: Damage(SPANS, RECORDS, RECORDS - len(LOST))}
    killed(planted.file, damage, "after_end_txn@1")
    summary = repair(planted.file, others)
    assert (summary.partitions[gaps].copied, summary.incident, summary.handed_over) == (len(LOST), None, False)
    with closing(Replicator(planted.file)) as worker:
        assert worker.wait_exit() == 5, worker.tail()
    assert not repair(planted.file, others, whole=[gaps]).handed_over
    assert repair(planted.file, damage).handed_over
    assert copied(planted) == records
    goes_on(planted, 2)


@pytest.mark.tier("full")
def test_what_a_reconciliation_found_whole_is_not_half_done(plant: Plant) -> None:
    """The repair before was killed behind its last transaction, and before it handed the flow over."""
    records, lost = mixed(RECORDS), range(RECORDS - 10, RECORDS)
    planted = plant([records, records], [without(records, lost), without(records, LOST)])
    planted.commit([RECORDS, RECORDS], [RECORDS, RECORDS - len(LOST)])
    ends, gaps = Partition(planted.topic, 0), Partition(planted.topic, 1)
    killed(planted.file, {ends: Damage((Missing(lost.start, RECORDS, 10),), RECORDS, lost.start)}, "after_end_txn@1")
    others = {gaps: Damage(SPANS, RECORDS, RECORDS - len(LOST))}
    assert not repair(planted.file, others, whole=[ends]).handed_over, "a comparison from before that repair"
    assert repair(planted.file, {}, whole=[ends], known=before(planted)).handed_over, "nothing is missing any more"
    assert copied(planted) == records
    goes_on(planted, 2)


@pytest.mark.tier("full")
def test_a_lost_end_of_which_more_may_be_missing_is_not_left_to_the_flow(plant: Plant) -> None:
    """The comparison couldn't tell of all records: those that it lists are there again, and others may not be."""
    records, lost = mixed(RECORDS), range(RECORDS - 20, RECORDS)
    planted = plant([records], [without(records, lost)])
    planted.commit([RECORDS], [RECORDS])
    told = Damage((Missing(lost.start, RECORDS - 10, 10),), RECORDS, lost.start, unproven=True)
    damage = {Partition(planted.topic, 0): told}
    assert not repair(planted.file, damage).handed_over
    assert not repair(planted.file, damage).handed_over
    rest = {Partition(planted.topic, 0): Damage((Missing(RECORDS - 10, RECORDS, 10),), RECORDS, RECORDS - 10)}
    assert repair(planted.file, rest).handed_over
    assert copied(planted) == records
    goes_on(planted, 1)


@pytest.mark.tier("full")
def test_a_repair_that_can_not_begin_behind_another_says_why(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    records = mixed(RECORDS)
    planted = plant([records], [without(records, LOST)])
    planted.commit([RECORDS], [RECORDS - len(LOST)])
    damage = {Partition(planted.topic, 0): Damage(SPANS, RECORDS, RECORDS - len(LOST))}
    killed(planted.file, damage, "after_end_txn@1")

    def refused(*_: object) -> NoReturn:
        raise Retriable("another one is at it")

    with monkeypatch.context() as patched:
        patched.setattr(JobGeneration, "open", refused)
        with pytest.raises(Retriable, match="another one is at it"):
            repair(planted.file, damage)
    assert repair(planted.file, damage).handed_over


@pytest.mark.tier("full")
def test_a_gap_that_was_copied_in_part_keeps_no_flow(plant: Plant) -> None:
    """The flow loses nothing by going on behind it, whatever stops the repairs of it."""
    records = mixed(RECORDS)
    planted = plant([records], [without(records, LOST)])
    planted.commit([RECORDS], [RECORDS - len(LOST)])
    at, end = Partition(planted.topic, 0), RECORDS - len(LOST)
    killed(planted.file, {at: Damage(SPANS, RECORDS, end)}, "after_end_txn@1")
    outdated = {at: Damage(SPANS, RECORDS + 1, end)}
    summary = repair(planted.file, outdated)
    assert summary.incident is not None
    assert summary.incident.name == "repair_outdated"
    assert summary.handed_over
    goes_on(planted, 1)
