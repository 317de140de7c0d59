"""Log compaction on either side, done by the brokers' own cleaners, told from loss."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

from integration_tests.harness import clients
from integration_tests.harness.processes import wait_until
from integration_tests.spark.conftest import Plant
from integration_tests.spark.planted import Content, produce
from integration_tests.spark.reconciling import run

SEGMENT_MS = 60_000
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": str(SEGMENT_MS)}
pytestmark = pytest.mark.timeout(600)


def keyed(count: int) -> list[Content]:
    """Records with a few keys, each with a time of its own."""
    now_ms = int(time.time() * 1000)
    return [Content(b"k%d" % (number % 50), b"%d" % number, now_ms + number) for number in range(count)]


def later(records: list[Content], value: bytes) -> list[Content]:
    """A record of another key, so much later that the broker begins a segment and compacts what stands before."""
    return [Content(b"late", value, records[-1].timestamp_ms + 2 * SEGMENT_MS)]


def wait_cleaned(bootstrap: str, topic: str, number: int = 0) -> int:
    """Until the broker has compacted the log; how many records it has then."""
    found: list[int] = []

    def cleaned() -> bool:
        found[:] = [
            offset for record in clients.read(bootstrap, topic, number) if (offset := record.offset()) is not None
        ]
        return min(found) > 0

    wait_until(cleaned, "the log is compacted", lambda: f"{found[:5]}")
    return len(found)


@pytest.mark.tier("long")
def test_what_compaction_removed_from_the_target_is_no_loss(spark: SparkSession, plant: Plant) -> None:
    """The last record of a key stands there thirty times: of identical ones the cleaner leaves the last."""
    records = keyed(3_000)
    records[2_980:2_980] = [records[2_980]] * 29
    planted = plant([records], [records], target_configs=COMPACTED)
    for bootstrap, topic in ((planted.source, planted.topic), (planted.target, planted.copy)):
        produce(bootstrap, topic, [later(records, b"end")])
    planted.commit([3_030], [3_030])
    left = wait_cleaned(planted.target, planted.copy)
    outcome, _ = run(spark, planted.flow)
    assert outcome.agrees, outcome.partitions[0].verdicts
    assert dict(outcome.partitions[0].verdicts) == {"same": left, "compacted_on_target": 3_030 - left}


@pytest.mark.tier("long")
def test_what_compaction_removed_from_the_source_is_no_surplus(spark: SparkSession, plant: Plant) -> None:
    """The source went on, and was compacted by records that were not copied yet."""
    records = keyed(3_000)
    planted = plant([records], [records], source_configs=COMPACTED)
    again = [record._replace(value=b"again", timestamp_ms=records[-1].timestamp_ms + 1) for record in records[:50]]
    produce(planted.source, planted.topic, [again])
    produce(planted.source, planted.topic, [later(records, b"end")])
    wait_cleaned(planted.source, planted.topic)
    outcome, found = run(spark, planted.flow)
    assert outcome.agrees, outcome.partitions[0].verdicts
    assert {item[0] for item in found} == {"compacted_on_source"}
    assert len(found) == 3_000


def test_a_later_record_of_its_key_explains_nothing_where_nothing_was_compacted(
    spark: SparkSession, plant: Plant
) -> None:
    records = keyed(3_000)
    planted = plant([records], [[*records[:1_500], *records[1_501:]]], target_policy="compact")
    _, found = run(spark, planted.flow)
    assert found == {("missing", 0, 1_500, None, "")}


@pytest.mark.tier("long")
def test_where_fewer_offsets_are_empty_than_records_are_missing_nothing_tells_which_is_lost(
    spark: SparkSession, plant: Plant
) -> None:
    records = keyed(3_000)
    planted = plant([records], [[*records[:1_500], *records[1_501:]]], target_configs=COMPACTED)
    for bootstrap, topic in ((planted.source, planted.topic), (planted.target, planted.copy)):
        produce(bootstrap, topic, [later(records, b"end")])
    planted.commit([3_001], [3_000])
    left = wait_cleaned(planted.target, planted.copy)
    outcome, _ = run(spark, planted.flow)
    assert (outcome.agrees, outcome.differs, outcome.unproven) == (False, False, True)
    assert dict(outcome.partitions[0].verdicts) == {"same": left, "unproven": 3_001 - left}
