"""Positions: what is written is read back, and every contradiction with the clusters is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator import checkpoint
from replicator.checkpoint import BadMetadata, Evidence, Observed, Position

EVIDENCE = Evidence(
    generation=3,
    owner="host:1:abc",
    source_topic="orders",
    source_cluster="S" * 22,
    source_topic_id="source-id",
    target_topic_id="target-id",
    leader_epoch=7,
    log_start=5,
    next_target_offset=1000,
    count=900,
    digest="ab" * 16,
    block_first=990,
    block_count=10,
    committed_ms=1_700_000_000_000,
)
POSITION = Position(500, EVIDENCE)
SEEN = Observed("S" * 22, "orders", "source-id", 100, 600, "target-id", 1001, 3)


def test_metadata_round_trip_keeps_every_field() -> None:
    assert checkpoint.decode(checkpoint.encode(EVIDENCE)) == EVIDENCE


def test_metadata_stays_below_the_brokers_limit_with_the_longest_names() -> None:
    longest = replace(EVIDENCE, source_topic="x" * 249, owner="h" * 253 + ":12345:" + "a" * 12)
    assert len(checkpoint.encode(longest)) < checkpoint.METADATA_BYTES_MAX
    with pytest.raises(ValueError, match="over the broker's"):
        checkpoint.encode(replace(EVIDENCE, owner="x" * 5000))


@pytest.mark.parametrize(
    "text",
    ["", "hello", "[]", "{}", '{"v":2}', checkpoint.encode(EVIDENCE).replace('"g":3', '"g":"3"'),
     checkpoint.encode(EVIDENCE).replace('"g":3,', ""), checkpoint.encode(EVIDENCE).replace("records-v1", "other")],
)  # fmt: skip
def test_metadata_that_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(BadMetadata):
        checkpoint.decode(text)


def test_a_position_that_fits_both_clusters_has_no_mismatch() -> None:
    assert checkpoint.compare(POSITION, SEEN) is None
    assert checkpoint.compare(POSITION, replace(SEEN, source_log_start=500, source_end=500, target_end=1000)) is None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"source_cluster": "other"}, "source_cluster_changed"),
        ({"source_topic": "payments"}, "source_topic_changed"),
        ({"source_topic_id": "new"}, "source_topic_recreated"),
        ({"target_topic_id": "new"}, "target_topic_recreated"),
        ({"generation": 2}, "position_newer_than_control"),
        ({"source_log_start": 501}, "source_records_gone"),
        ({"source_end": 499}, "source_truncated"),
        ({"target_end": 999}, "target_lost_data"),
    ],
)
def test_every_contradiction_is_named(change: dict[str, object], name: str) -> None:
    found = checkpoint.compare(POSITION, replace(SEEN, **change))
    assert found is not None
    assert found.name == name


def test_a_recreated_topic_is_named_before_the_offsets_that_follow_from_it() -> None:
    found = checkpoint.compare(POSITION, replace(SEEN, source_topic_id="new", source_end=3))
    assert found is not None
    assert found.name == "source_topic_recreated"


def test_the_lost_range_is_in_the_message() -> None:
    found = checkpoint.compare(POSITION, replace(SEEN, source_log_start=550))
    assert found is not None
    assert "500 to 549" in found.detail
