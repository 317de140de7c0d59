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
    """Records with a few keys, each with a time of its own; the last one lets the broker compact all others."""
    now_ms = int(time.time() * 1000)
    records = [Content(b"k%d" % (number % 50), b"%d" % number, now_ms + number) for number in range(count)]
    return [*records, Content(b"last", b"last", now_ms + 2 * SEGMENT_MS)]


def wait_cleaned(bootstrap: str, topic: str) -> int:
    """Until the broker has compacted the log; how many records it has then."""
    found: list[int] = []

    def cleaned() -> bool:
        found[:] = [offset for record in clients.read(bootstrap, topic, 0) if (offset := record.offset()) is not None]
        return min(found) > 0

    wait_until(cleaned, "the log is compacted", lambda: f"{found[:5]}")
    return len(found)


def test_what_compaction_removed_is_no_loss(spark: SparkSession, plant: Plant) -> None:
    """On the target; and on the source, which went on and was compacted by records that were not copied yet."""
    records = keyed(3_000)
    planted = plant([records], [records], target_configs=COMPACTED)
    left = wait_cleaned(planted.target, planted.copy)
    outcome, _ = run(spark, planted.flow)
    assert outcome.agrees, outcome
    assert dict(outcome.partitions[0].verdicts) == {"same": left, "compacted_on_target": len(records) - left}
    planted = plant([records], [records], source_configs=COMPACTED)
    later = [record._replace(value=b"later", timestamp_ms=records[-1].timestamp_ms + 1) for record in records[:50]]
    end = Content(b"end", b"end", records[-1].timestamp_ms + 2 * SEGMENT_MS)
    produce(planted.source, planted.topic, [[*later, end]])
    wait_cleaned(planted.source, planted.topic)
    outcome, found = run(spark, planted.flow)
    assert outcome.agrees, outcome
    assert {item[0] for item in found} == {"compacted_on_source"}


def test_what_a_compacted_topic_lost_is_a_loss(spark: SparkSession, plant: Plant) -> None:
    """A later record of its key explains nothing where the log was never compacted; where it was, and fewer offsets are
    empty than records are missing, nothing tells which of them was lost."""
    records = keyed(3_000)
    copy = [*records[:1_500], *records[1_501:]]
    planted = plant([records], [copy], target_policy="compact")
    outcome, found = run(spark, planted.flow)
    assert found == {("missing", 0, 1_500, None, "")}
    planted = plant([records], [copy], target_configs=COMPACTED)
    left = wait_cleaned(planted.target, planted.copy)
    outcome, found = run(spark, planted.flow)
    assert (outcome.agrees, outcome.differs, outcome.unproven) == (False, False, True)
    assert dict(outcome.partitions[0].verdicts) == {"same": left, "unproven": len(records) - left}
