"""A backfill as a generation: ranges, attempts that meet, hand-over to a live worker and back."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.jobs import Threads, backfill
from replicator.jobs.backfill import Bound
from replicator.jobs.range_copy import RangeDone, RangeTask, copy_range
from replicator.jobs.range_job import RangeJob
from replicator.model.errors import ConfigError, Incident, TakenOver
from replicator.model.partition import Partition

RANGE = 300  # offsets: some thousand records make several ranges of each partition
NOTICED_S_MAX = 40.0  # a check every 5 s, and questions to the target


@pytest.fixture
def engine() -> Iterator[Threads]:
    """An engine of threads."""
    made = Threads()
    yield made
    made.close()


@pytest.mark.tier("full")
def test_history_is_copied_in_ranges_and_a_live_worker_goes_on_behind_it(copying: Copying, engine: Threads) -> None:
    copying.load.mixed(3_000)
    job, seen = backfill(copying, offsets_max=RANGE)
    planned = job.check()
    assert copying.copy not in clients.topics(copying.target), "a check changes nothing"
    copying.load.mixed(500)  # behind the ends that the check has fixed
    summary = job.run(engine)
    assert seen.ranges == planned
    copied = [task for task in engine.tasks if task.start < task.end]
    assert len(engine.tasks) - len(copied) == copying.partitions, "a claim for each"
    assert copying.partitions < len(copied) < len(planned), "ranges that nobody waits for are joined"
    assert all(outcome.done and outcome.incident is None for outcome in summary.partitions.values())
    ends = {cut.at.partition: cut.end for cut in planned}
    assert copying.wait_stable() == [ends[number] for number in range(copying.partitions)]
    assert sum(outcome.records for outcome in summary.partitions.values()) == sum(done.records for done in seen.done)
    worker = copying.running()
    copying.load.mixed(300)
    copying.finish(worker)


@pytest.mark.tier("long")
@pytest.mark.parametrize("digest", ["records", "payloads"])
def test_ranges_are_copied_by_the_flow_s_engine(make_copying: MakeCopying, engine: Threads, digest: str) -> None:
    """Their digests say which one it was; `auto` finds nothing here that batches can't honour."""
    copying = make_copying(engine="records" if digest == "records" else "auto")
    copying.load.mixed(3_000)
    job, _ = backfill(copying, offsets_max=RANGE)
    job.check()
    summary = job.run(engine)
    assert all(outcome.done and outcome.incident is None for outcome in summary.partitions.values())
    for partition in range(copying.partitions):
        position = clients.committed(copying.target, copying.group, copying.copy, partition)
        assert json.loads(position.metadata or "{}")["dk"] == f"blake2b-128/{digest}-v1"
    copying.finish(copying.running())
    copying.assert_exact()


@pytest.mark.tier("long", kafka="full")
def test_back_and_forth_between_live_and_backfill_while_the_source_is_written(make_copying: MakeCopying) -> None:
    copying = make_copying(lanes=2)
    with copying.writing():
        for _ in range(2):
            worker = copying.running()
            worker.wait_event("committed")
            refused, _ = backfill(copying, offsets_max=RANGE)
            with pytest.raises(TakenOver, match=r"live worker holds it.*--take-over"):
                refused.check()
            engine = Threads()
            job, _ = backfill(copying, offsets_max=10 * RANGE, take_over=True)
            job.check()
            job.run(engine)
            engine.close()
            assert worker.wait_exit() == 5, worker.tail()
            assert re.search("takes over|taken over", worker.seen("flow_ended")[0]["detail"])
        worker = copying.running()
    copying.finish(worker)
    job, _ = backfill(copying)
    assert job.check() == [], "a worker that was stopped cleanly holds nothing, and nothing is left to copy"


@pytest.mark.tier(kafka="long")
def test_a_backfill_that_died_is_begun_again_and_a_daemon_waits_for_it(copying: Copying) -> None:
    """Its driver is gone in the middle of a round; what its tasks had open, and do later, counts for nothing."""
    copying.load.mixed(2_000)
    stuck, on = threading.Event(), threading.Event()

    def failpoint(step: str) -> None:
        if step == "before_offsets":
            stuck.set()
            assert on.wait(60)

    dead = Threads(failpoint)
    first, _ = backfill(copying, offsets_max=RANGE)
    first.check()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.run, dead)
        assert stuck.wait(60)
        daemon = copying.run()
        assert daemon.wait_exit() == 5, daemon.tail()
        assert "--take-over" in daemon.seen("flow_ended")[0]["detail"]
        engine = Threads()
        again, _ = backfill(copying, offsets_max=RANGE)
        again.check()
        summary = again.run(engine)
        assert all(outcome.done for outcome in summary.partitions.values())
        on.set()
        with pytest.raises(TakenOver, match="has taken over"):
            running.result(60)
    dead.close()
    engine.close()
    copying.finish(copying.running())


@pytest.mark.tier("full")
def test_two_attempts_at_a_range_meet(copying: Copying) -> None:
    """Speculation: the second fences the first in its transaction; the first waits, and both find the range done."""
    copying.load.mixed(2_000)
    met: list[tuple[RangeDone, RangeDone]] = []

    class Speculating(Threads):
        slots = 3

        def copy(self, task: RangeTask) -> RangeDone:
            stuck, on = threading.Event(), threading.Event()

            def failpoint(step: str) -> None:
                if step == "before_end_txn" and not stuck.is_set():
                    stuck.set()
                    assert on.wait(60)

            if task.start == task.end:
                return super().copy(task)  # a claim
            with ThreadPoolExecutor(1) as other:
                slow = other.submit(copy_range, task, failpoint)
                assert stuck.wait(60)
                fast = copy_range(task)
                on.set()
                met.append((slow.result(90), fast))
            return fast

    engine = Speculating()
    job, _ = backfill(copying)
    job.check()
    job.run(engine)
    engine.close()
    assert len(met) == copying.partitions
    for first, second in met:
        assert (first.error, second.error) == (None, None)
        assert first.position == second.position
    copying.finish(copying.running())


def test_a_stop_hands_over_and_the_rest_is_copied_by_whoever_comes(copying: Copying) -> None:
    copying.load.mixed(2_000)
    job, _ = backfill(copying, offsets_max=RANGE)
    job.check()
    engine = Threads(lambda step: job.stop() if step == "after_end_txn" else None)
    summary = job.run(engine)
    assert summary.stopped
    assert not all(outcome.done for outcome in summary.partitions.values())
    worker = copying.running()
    engine.close()
    copying.finish(worker)


@pytest.mark.tier("extended")
def test_begin_and_end_by_offset_by_time_and_by_topic(copying: Copying, engine: Threads) -> None:
    copying.load.plain(900)
    at = [Partition(copying.topic, number) for number in range(copying.partitions)]
    job, _ = backfill(copying, first=Bound(offsets={at[0]: 10}), last=Bound(offsets={at[0]: 20, at[1]: 30, at[2]: 0}))
    assert [(cut.at, cut.start, cut.end) for cut in job.check()] == [
        (at[0], 10, 10),
        (at[1], 0, 0),
        (at[2], 0, 0),
        (at[0], 10, 20),
        (at[1], 0, 30),
    ]
    job.run(engine)
    assert copying.wait_stable() == [20, 30, 0], "a partition of which nothing was asked for is claimed"
    again, _ = backfill(copying, first=Bound(offsets={at[0]: 10}))
    assert next(iter(again.check())).start == 20, "the same job, begun again"
    for offset, says in ((5, "below the committed position 20"), (25, "above the committed position 20")):
        wrong, _ = backfill(copying, first=Bound(offsets={at[0]: offset}))
        with pytest.raises(ConfigError, match=says):
            wrong.check()
    other, _ = backfill(copying, topics=frozenset({"other"}))
    with pytest.raises(ConfigError, match="other"):
        other.check()
    latest, _ = backfill(copying, last=Bound(timestamp_ms=1))
    assert latest.check() == [], "no record is older"


@pytest.mark.tier(embedded="full")
def test_a_partition_whose_records_are_gone_is_named_and_the_others_go_on(copying: Copying, engine: Threads) -> None:
    copying.load.plain(600)
    first, _ = backfill(copying, last=Bound(offsets={Partition(copying.topic, n): 50 for n in range(3)}))
    first.check()
    first.run(engine)
    clients.delete_records(copying.source, copying.topic, 0, 70)
    job, _ = backfill(copying)
    job.check()
    summary = job.run(engine)
    incident = summary.partitions[Partition(copying.topic, 0)].incident
    assert isinstance(incident, Incident)
    assert "source offsets 50 to 69 were deleted" in str(incident)
    assert [outcome.done for _, outcome in sorted(summary.partitions.items())] == [False, True, True]


@pytest.mark.tier("full", kafka="long")
def test_a_stop_leaves_every_partition_claimed_where_it_would_have_begun(make_copying: MakeCopying) -> None:
    """The flow itself starts at latest: a daemon that came upon an unclaimed partition would leave its history out."""
    copying = make_copying(start="latest")
    copying.load.plain(900)
    first = Bound(offsets={Partition(copying.topic, number): 5 for number in range(copying.partitions)})
    job, _ = backfill(copying, first=first)
    job.check()

    class One(Threads):
        slots = 1

    engine = One(lambda step: job.stop() if step == "claimed" else None)
    job.run(engine)
    engine.close()
    job, _ = backfill(copying, first=first)
    job.check()
    engine = One(lambda step: job.stop() if step == "before_send" else None)
    assert job.run(engine).stopped
    engine.close()
    worker = copying.running()
    copying.wait_copied()
    assert worker.stop() == 0
    verdicts = copying.compare_from([5] * copying.partitions)
    assert all(verdict.exact for verdict in verdicts.values()), verdicts


@pytest.mark.tier(embedded="full")
def test_a_topic_that_is_made_anew_between_ranges_is_found_at_once(copying: Copying) -> None:
    copying.load.plain(2_000)
    job, _ = backfill(copying, offsets_max=RANGE)
    job.check()

    class Recreated(Threads):
        slots = 1  # nothing else runs meanwhile

        def copy(self, task: RangeTask) -> RangeDone:
            done = super().copy(task)
            if len(self.tasks) == copying.partitions + 1:
                clients.delete_topic(copying.source, copying.topic)
                clients.create_topic(copying.source, copying.topic, copying.partitions)
                copying.load.plain(2_500)
            return done

    engine = Recreated()
    summary = job.run(engine)
    engine.close()
    names = {outcome.incident.name for outcome in summary.partitions.values() if outcome.incident is not None}
    assert names == {"source_topic_recreated"}


@pytest.mark.tier(embedded="full")
def test_a_topic_that_the_flow_ignores_is_left_alone(make_copying: MakeCopying) -> None:
    name = f"ignoring-{uuid.uuid4().hex[:8]}"
    copying = make_copying(topics=[f"^{name}.*"], new_topics="ignore")
    clients.create_topic(copying.source, f"{name}.first")
    clients.put(clients.producer(copying.source), f"{name}.first", b"1")
    first, _ = backfill(copying)
    first.check()
    engine = Threads()
    first.run(engine)
    clients.create_topic(copying.source, f"{name}.later")
    clients.put(clients.producer(copying.source), f"{name}.later", b"2")
    clients.put(clients.producer(copying.source), f"{name}.first", b"3")
    again, _ = backfill(copying)
    again.check()
    summary = again.run(engine)
    engine.close()
    assert [(at.topic, outcome.records) for at, outcome in summary.partitions.items()] == [(f"{name}.first", 1)]
    asked, _ = backfill(copying, topics=frozenset({f"{name}.later"}))
    with pytest.raises(ConfigError, match="later"):
        asked.check()


@pytest.mark.tier("full", kafka="long")
def test_positions_of_partitions_that_are_done_are_kept(make_copying: MakeCopying) -> None:
    """One partition is copied slowly; the others' positions are committed again meanwhile."""
    copying = make_copying(limits={"recommit_interval_ms": 1_000})
    copying.load.plain(300)
    whole, _ = backfill(copying)
    whole.check()
    engine = Threads()
    whole.run(engine)
    copying.load.plain(2_000)
    slow, _ = backfill(
        copying,
        last=Bound(offsets={Partition(copying.topic, n): copying.wait_stable()[n] for n in (1, 2)}),
        rate_max=200.0,
        offsets_max=200,
    )
    slow.check()
    slow.run(engine)
    kept = {task.at.partition for task in engine.tasks if not task.copies}
    assert {1, 2} <= kept, "no task for the partitions that are done"
    engine.close()
    copying.finish(copying.running())


@pytest.mark.tier("long", kafka="full")
def test_a_task_that_waits_notices_soon_that_another_generation_is_open(copying: Copying) -> None:
    """It sends nothing to the target for minutes, so nobody tells it that it was fenced."""
    copying.load.plain(300)
    sent = threading.Event()
    engine = Threads(lambda step: sent.set() if step == "after_end_txn" else None)
    job, _ = backfill(copying, rate_max=0.02)
    job.check()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job.run, engine)
        assert sent.wait(60)
        worker = copying.run("", "--take-over")
        began_s = time.monotonic()
        with pytest.raises(TakenOver):
            running.result(60)
        engine.close()
    assert time.monotonic() - began_s < NOTICED_S_MAX
    copying.finish(worker)


@pytest.mark.tier("full")
def test_with_nothing_to_copy_no_generation_is_opened_but_one_left_open_is_handed_over(
    copying: Copying, engine: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying.load.plain(300)
    job, _ = backfill(copying)
    job.check()
    job.run(engine)
    again, _ = backfill(copying)
    assert again.check() == []
    summary = again.finish()
    assert summary.generation is None
    assert all(outcome.done and not outcome.records for outcome in summary.partitions.values())
    before = copying.run()
    before.wait_event("lane_started")
    assert before.seen("generation_opened") == [], "the daemon's generation is still the one that was handed over"
    assert before.stop() == 0

    copying.load.plain(100)
    dying, _ = backfill(copying)
    dying.check()
    with monkeypatch.context() as patch:
        patch.setattr(RangeJob, "hand_over", lambda job: None)  # it dies when everything is copied
        dying.run(engine)
    copied = len(engine.tasks)
    refused = copying.run()
    assert refused.wait_exit() == 5, refused.tail()
    last, _ = backfill(copying)
    assert last.check() == []
    assert last.finish().generation is not None
    assert len(engine.tasks) == copied
    copying.finish(copying.running())


@pytest.mark.tier("full", kafka="long")
def test_a_topic_that_goes_while_it_is_copied_is_named(copying: Copying) -> None:
    copying.load.plain(2_000)
    job, _ = backfill(copying, offsets_max=RANGE)
    job.check()
    gone = threading.Lock()

    def failpoint(step: str) -> None:
        if step == "after_end_txn" and gone.acquire(blocking=False):
            clients.delete_topic(copying.source, copying.topic)

    engine = Threads(failpoint)
    summary = job.run(engine)
    engine.close()
    incidents = [outcome.incident for outcome in summary.partitions.values() if not outcome.done]
    assert incidents
    assert {incident.name for incident in incidents if incident is not None} == {"source_topic_deleted"}
    later, _ = backfill(copying)
    with pytest.raises(Incident, match=f"unknown_source_topic.*{copying.topic}"):
        later.check()
