"""Topic configs, as text and as their partitions need them."""

from __future__ import annotations

from embedded_broker.metadata.topic_configs import log_config
from embedded_broker.storage.log_config import LogConfig


def test_a_partition_without_configs_has_the_defaults_of_a_topic() -> None:
    assert log_config({}) == LogConfig()


def test_a_compacted_topic_closes_segments_before_they_are_overdue() -> None:
    lag = {"max.compaction.lag.ms": "50"}
    assert log_config(lag).segment_ms == LogConfig().segment_ms
    compacted = log_config({**lag, "cleanup.policy": "compact"})
    assert (compacted.segment_ms, compacted.compacts, compacted.deletes) == (50, True, False)
