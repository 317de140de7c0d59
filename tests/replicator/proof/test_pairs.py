"""Which offsets are compared: what the position covers, and not one record in flight."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator import config
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence, Position
from replicator.model.errors import Incident
from replicator.model.partition import Committed, Partition
from replicator.proof.pairs import PairFacts, pair_of, pairs_of, without_position
from replicator.state.claims import Claim, Repair
from tests.replicator.spark.reconcile.sample_outcomes import SIGNED

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
CLAIM = Claim(Partition("a.t", 0), Partition("t", 0), "S", "T", 0, 10, 1, "o", 0)
FACTS = PairFacts(
    source=Partition("t", 0),
    target=Partition("a.t", 0),
    source_topic=TopicInfo("t", "S", 1, {"cleanup.policy": "delete"}),
    target_topic=TopicInfo("a.t", "T", 1, {"cleanup.policy": "compact,delete"}),
    source_cluster="cluster",
    position=Position(100, EVIDENCE),
    claimed=CLAIM,
    source_bounds=(0, 130),
    source_stable=130,
    target_bounds=(0, 95),
    target_end_before=81,
)


def committed(offset: int = 100, **changes: object) -> Position:
    return Position(offset, replace(EVIDENCE, **changes))  # type: ignore[arg-type]


def test_positions_bound_both_sides() -> None:
    pair = pair_of(FLOW, FACTS)
    assert (pair.source_range, pair.target_range) == ((10, 100), (0, 81))
    assert (pair.source_cut, pair.target_cut, pair.count, pair.covered_end) == (False, False, 70, 80)
    assert (pair.source_compacted, pair.target_compacted) == (False, True)
    assert pair.notes == ()


def test_what_is_committed_after_the_positions_were_read_is_in_flight() -> None:
    pair = pair_of(FLOW, replace(FACTS, target_end_before=60, target_bounds=(0, 500), source_bounds=(0, 900)))
    assert (pair.source_range, pair.target_range) == ((10, 100), (0, 80))


@pytest.mark.parametrize(
    ("generation", "target_id", "first"), [(2, "T", 20), (1, "T", 30), (2, "T before", 30)], ids=str
)
def test_what_a_repair_has_copied_behind_a_cut_below_the_claim_is_compared(
    generation: int, target_id: str, first: int
) -> None:
    """Else another repair copies it once more. One from before the claim was of the log that it was made over."""
    repair = Repair(Partition("a.t", 0), Partition("t", 0), ((40, 50),), 20, generation, 0, "S", target_id)
    pair = pair_of(FLOW, replace(FACTS, claimed=replace(CLAIM, target_end=30), repairs=(repair,)))
    assert (pair.target_range, pair.target_origin) == ((first, 81), first)
    assert bool(pair.copied_again) == (first == 20)


def test_logs_that_begin_later_are_cut() -> None:
    pair = pair_of(FLOW, replace(FACTS, source_bounds=(40, 130), target_bounds=(20, 95)))
    assert (pair.source_range, pair.target_range) == ((40, 100), (20, 81))
    assert (pair.source_cut, pair.target_cut) == (True, True)
    assert (pair.source_removed_max, pair.target_removed_max) == (30, 20)


def test_a_source_that_began_late_is_not_cut() -> None:
    assert not pair_of(FLOW, replace(FACTS, source_bounds=(10, 130))).source_cut


def test_contradictions_are_noted_and_the_rest_is_compared() -> None:
    pair = pair_of(FLOW, replace(FACTS, target_bounds=(0, 70), target_end_before=70))
    assert pair.target_range == (0, 70)
    assert pair.notes[0].startswith("target_lost_data: ")
    pair = pair_of(FLOW, replace(FACTS, source_bounds=(0, 90)))
    assert pair.source_range == (10, 90)
    assert pair.notes[0].startswith("source_truncated: ")


def test_a_source_that_lost_a_marker_is_compared_up_to_what_it_shows() -> None:
    pair = pair_of(FLOW, replace(FACTS, source_stable=90))
    assert (pair.source_range, pair.source_copied_end) == ((10, 90), 100)
    assert pair.notes == (
        "source_truncated: t[0] is stable up to 90 of 130, and was copied up to 100: an open transaction hides what "
        "follows",
    )
    assert pair_of(FLOW, replace(FACTS, source_stable=100)).notes == ()


def test_a_topic_that_was_created_again_hides_no_other() -> None:
    again = replace(
        FACTS, source=Partition("again", 0), position=committed(source_topic="again", source_topic_id="old")
    )
    pairs, incidents = pairs_of(FLOW, [again, FACTS])
    assert [pair.source for pair in pairs] == [FACTS.source]
    assert [(it.name, it.topic, it.partition, it.offset) for it in incidents] == [
        ("source_topic_recreated", "again", 0, 100)
    ]
    with pytest.raises(Incident, match="source_topic_recreated"):
        pairs_of(FLOW, [again])


def test_without_a_claim_the_start_is_taken_from_the_position() -> None:
    pair = pair_of(FLOW, replace(FACTS, claimed=None))
    assert (pair.source_range, pair.source_origin) == ((5, 100), 5)
    assert "no claim" in pair.notes[0]


def test_a_weaker_delivery_is_noted() -> None:
    assert "at_most_once" in pair_of(FLOW, replace(FACTS, position=committed(delivery="at_most_once"))).notes[0]


def test_at_least_once_has_records_in_flight_behind_its_position() -> None:
    assert pair_of(FLOW, replace(FACTS, position=committed(delivery="at_least_once"))).target_range == (0, 80)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (replace(FACTS, source_cluster="x"), "source_cluster_changed"),
        (replace(FACTS, source_topic=TopicInfo("t", "X", 1)), "source_topic_recreated"),
        (replace(FACTS, target_topic=TopicInfo("a.t", "X", 1)), "target_topic_recreated"),
        (replace(FACTS, position=checkpoint.read(Committed(3, "{}"))), "position_unreadable"),
    ],
)
def test_other_topics_than_the_positions_are_not_compared(facts: PairFacts, name: str) -> None:
    with pytest.raises(Incident) as raised:
        pair_of(FLOW, facts)
    assert raised.value.name == name


def test_what_stood_on_the_target_before_the_flow_began_is_not_its() -> None:
    pair = pair_of(FLOW, replace(FACTS, claimed=replace(CLAIM, target_end=30), target_bounds=(20, 95)))
    assert (pair.target_range, pair.target_cut) == ((30, 81), False)
    pair = pair_of(FLOW, replace(FACTS, claimed=replace(CLAIM, target_end=30), target_bounds=(40, 95)))
    assert (pair.target_range, pair.target_cut, pair.target_removed_max) == ((40, 81), True, 10)


@pytest.mark.parametrize(
    ("topic", "claim", "bounds", "name"),
    [
        (None, None, (0, 0), None),
        (TopicInfo("a.t", "T", 1), None, (0, 0), None),
        (TopicInfo("a.t", "T", 1), None, (0, 5), "target_not_empty"),
        (TopicInfo("a.t", "T", 1), None, (5, 5), "target_not_empty"),
        (TopicInfo("a.t", "T", 1), CLAIM, (0, 5), "position_expired"),
        (TopicInfo("a.t", "new", 1), CLAIM, (0, 0), "target_topic_recreated"),
        (None, CLAIM, (0, 0), "target_topic_deleted"),
    ],
)
def test_without_a_position_claim_and_log_tell(
    topic: TopicInfo | None, claim: Claim | None, bounds: tuple[int, int], name: str | None
) -> None:
    found = without_position(Partition("t", 0), Partition("a.t", 0), topic, claim, bounds)
    assert (found.name if found is not None else None) == name


def test_what_was_left_out_by_decision_is_said() -> None:
    pair = pair_of(FLOW, replace(FACTS, signed_gaps=(SIGNED, replace(SIGNED, first=50, end=51, why=""))))
    assert [gap.first for gap in pair.signed_gaps] == [40, 50]
    assert pair.notes == (
        "source offsets 40 to 41 were left out (source_records_gone, --skip), as ann has decided: nobody reads them",
        "source offset 50 was left out (source_records_gone, --skip), as ann has decided",
    )
    assert SIGNED.copied_to(Partition("a.t", 0))
    assert not SIGNED.copied_to(Partition("a.t", 1))
