"""A backfill whose source changes between its check and its generation, or after it was killed."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.exactly_once.test_backfill import RANGE, engine
from integration_tests.exactly_once.test_truncation import END, copied, lose_the_end, put
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.jobs import Threads, backfill
from replicator.jobs.range_job import RangeJob
from replicator.model.errors import Incident
from replicator.model.partition import Partition

__all__ = ["engine"]


@pytest.mark.tier("full")
def test_a_topic_that_is_made_anew_behind_the_check_is_not_begun_in_the_middle(
    copying: Copying, engine: Threads
) -> None:
    """It has more records than the former one had lost to retention."""
    copying.load.plain(600)
    for partition in range(copying.partitions):
        clients.delete_records(copying.source, copying.topic, partition, 100)
    job, _ = backfill(copying, offsets_max=RANGE)
    job.check()
    clients.delete_topic(copying.source, copying.topic)
    clients.create_topic(copying.source, copying.topic, copying.partitions)
    copying.load.plain(2_500)
    summary = job.run(engine)
    named = {at: outcome.incident and outcome.incident.name for at, outcome in summary.partitions.items()}
    assert named == {Partition(copying.topic, number): "source_topic_recreated" for number in range(copying.partitions)}
    job, _ = backfill(copying, offsets_max=RANGE)
    job.check()
    assert all(outcome.done for outcome in job.run(engine).partitions.values())
    assert all(verdict.exact for verdict in copying.compare_from([0] * copying.partitions).values())


@pytest.mark.tier("full")
def test_a_backfill_that_died_is_handed_over_though_the_rest_was_lost(copying: Copying, engine: Threads) -> None:
    copying.load.plain(900)
    job, _ = backfill(copying, offsets_max=RANGE)
    job.check()
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(RangeJob, "hand_over", lambda job: None)  # as if the driver was killed
        job.run(engine)
    copying.load.plain(600)
    for partition, end in enumerate(copying.wait_stable()):
        clients.delete_records(copying.source, copying.topic, partition, end + 1)
    again, _ = backfill(copying, offsets_max=RANGE)
    assert again.check() == []
    summary = again.finish()
    names = {outcome.incident.name for outcome in summary.partitions.values() if outcome.incident is not None}
    assert names == {"source_records_gone"}
    worker = copying.running()
    worker.wait_event("incident", name="source_records_gone")
    with pytest.raises(Incident, match="source_records_gone"):
        backfill(copying, offsets_max=RANGE, take_over=True)[0].check()


@pytest.mark.tier("full")
def test_a_partition_that_ends_below_its_position_is_not_done(
    make_copying: MakeCopying, source: BrokerHandle, engine: Threads
) -> None:
    """Nothing of it is left to copy: that it is cut is told all the same, and the other partition copied."""
    copying = copied(make_copying)
    job, _ = backfill(copying)
    job.check()
    assert all(outcome.done for outcome in job.run(engine).partitions.values())
    lose_the_end(copying, source)
    with pytest.raises(Incident, match="source_truncated"):
        backfill(copying)[0].check()
    put(copying, b"more", partition=1)
    job, _ = backfill(copying)
    assert [cut.at.partition for cut in job.check()] == [1]
    cut, other = (outcome for _, outcome in sorted(job.run(engine).partitions.items()))
    assert cut.incident is not None
    assert (cut.incident.name, cut.incident.offset, cut.done) == ("source_truncated", END, False)
    assert other.done
