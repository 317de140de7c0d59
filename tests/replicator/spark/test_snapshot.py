"""Which offsets are compared: what the position vouches for, and not one record in flight."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator import checkpoint, config
from replicator.admin import TopicInfo
from replicator.checkpoint import Evidence
from replicator.errors import Incident
from replicator.planes.contract import Committed, Partition
from replicator.spark.snapshot import Seen, pair_of

FLOW = config.load_text(
    """\
clusters: {a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}
flows: {f: {source: a, target: b, topics: [t]}}
""",
    env={},
).flows["f"]
EVIDENCE = Evidence(
    generation=1,
    owner="o",
    source_topic="t",
    source_cluster="cluster",
    source_topic_id="S",
    target_topic_id="T",
    log_start=5,
    next_target_offset=80,
    count=70,
)
SEEN = Seen(
    source=Partition("t", 0),
    target=Partition("a.t", 0),
    source_topic=TopicInfo("t", "S", 1, {"cleanup.policy": "delete"}),
    target_topic=TopicInfo("a.t", "T", 1, {"cleanup.policy": "compact,delete"}),
    source_cluster="cluster",
    committed=Committed(100, checkpoint.encode(EVIDENCE)),
    claimed=10,
    source_bounds=(0, 130),
    target_bounds=(0, 95),
    target_end_before=81,
)


def committed(offset: int = 100, **changes: object) -> Committed:
    return Committed(offset, checkpoint.encode(replace(EVIDENCE, **changes)))  # type: ignore[arg-type]


def test_positions_bound_both_sides() -> None:
    pair = pair_of(FLOW, SEEN)
    assert (pair.source_range, pair.target_range) == ((10, 100), (0, 81))
    assert (pair.source_cut, pair.target_cut, pair.count, pair.vouched) == (False, False, 70, 80)
    assert (pair.source_compacted, pair.target_compacted) == (False, True)
    assert pair.notes == ()


def test_what_is_committed_after_the_positions_were_read_is_in_flight() -> None:
    pair = pair_of(FLOW, replace(SEEN, target_end_before=60, target_bounds=(0, 500), source_bounds=(0, 900)))
    assert (pair.source_range, pair.target_range) == ((10, 100), (0, 80))


def test_logs_that_begin_later_are_cut() -> None:
    pair = pair_of(FLOW, replace(SEEN, source_bounds=(40, 130), target_bounds=(20, 95)))
    assert (pair.source_range, pair.target_range) == ((40, 100), (20, 81))
    assert (pair.source_cut, pair.target_cut) == (True, True)


def test_a_source_that_began_late_is_not_cut() -> None:
    assert not pair_of(FLOW, replace(SEEN, source_bounds=(10, 130))).source_cut


def test_contradictions_are_noted_and_the_rest_is_compared() -> None:
    pair = pair_of(FLOW, replace(SEEN, target_bounds=(0, 70), target_end_before=70))
    assert pair.target_range == (0, 70)
    assert pair.notes[0].startswith("target_lost_data: ")
    pair = pair_of(FLOW, replace(SEEN, source_bounds=(0, 90)))
    assert pair.source_range == (10, 90)
    assert pair.notes[0].startswith("source_truncated: ")


def test_without_a_claim_the_start_is_taken_from_the_position() -> None:
    pair = pair_of(FLOW, replace(SEEN, claimed=None))
    assert pair.source_range == (5, 100)
    assert "no claim" in pair.notes[0]


def test_a_weaker_delivery_is_noted() -> None:
    assert "at_most_once" in pair_of(FLOW, replace(SEEN, committed=committed(delivery="at_most_once"))).notes[0]


def test_at_least_once_has_records_in_flight_behind_its_position() -> None:
    assert pair_of(FLOW, replace(SEEN, committed=committed(delivery="at_least_once"))).target_range == (0, 80)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (replace(SEEN, source_cluster="x"), "source_cluster_changed"),
        (replace(SEEN, source_topic=TopicInfo("t", "X", 1)), "source_topic_recreated"),
        (replace(SEEN, target_topic=TopicInfo("a.t", "X", 1)), "target_topic_recreated"),
        (replace(SEEN, committed=Committed(3, "{}")), "position_unreadable"),
    ],
)
def test_other_topics_than_the_positions_are_not_compared(seen: Seen, name: str) -> None:
    with pytest.raises(Incident) as raised:
        pair_of(FLOW, seen)
    assert raised.value.name == name
