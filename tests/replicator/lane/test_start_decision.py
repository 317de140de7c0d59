"""Verdicts over one partition: every contradiction between its position and both clusters is named, with its range."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.config import load_text
from replicator.lane.partition import Reason
from replicator.lane.plan import LanePlan
from replicator.lane.start_decision import Facts, StartDecision, decide
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence, Position
from replicator.model.errors import Incident, NotAllowed, TopicMissing, Unreachable
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim
from replicator.state.generation import LaneAssignment

AT, THERE = Partition("orders", 0), Partition("a.orders", 0)
ROUTE = Route(AT, THERE, "source-id", "target-id")
CONFIG = """\
clusters:
  a: {properties: {bootstrap.servers: "a:1"}}
  b: {properties: {bootstrap.servers: "b:1"}}
flows:
  f: {source: a, target: b, topics: [orders]}
"""
PLAN = LanePlan(load_text(CONFIG, env={}).flows["f"], 3, 0, "me", "cluster", (ROUTE,), 1, LaneAssignment(1))
EVIDENCE = Evidence(
    generation=3,
    owner="before",
    source_topic="orders",
    source_cluster="cluster",
    source_topic_id="source-id",
    target_topic_id="target-id",
    next_target_offset=1000,
)
SOURCE, TARGET = LogEnds("source-id", 100, 600, 650), LogEnds("target-id", 0, 1001, 1001)
FACTS = Facts(Position(500, EVIDENCE), None, SOURCE, TARGET, None, 3)
CLAIM = Claim(THERE, AT, "source-id", "target-id", 0, 7, 1, "before", 0)
FRESH = replace(FACTS, stored=None, target=LogEnds("target-id", 0, 0, 0))


def verdict(facts: Facts, route: Route = ROUTE, plan: LanePlan = PLAN) -> StartDecision:
    return decide(plan, route, facts, 77)


def stopped(facts: Facts, route: Route = ROUTE, plan: LanePlan = PLAN) -> Incident:
    found = verdict(facts, route, plan).stopped
    assert found is not None
    return found


def waits(facts: Facts, route: Route = ROUTE) -> Reason:
    found = verdict(facts, route).waits
    assert found is not None
    return found[0]


def test_a_position_that_fits_both_clusters_is_copied_on() -> None:
    found = verdict(FACTS)
    assert (found.stopped, found.waits, found.claim) == (None, None, None)
    assert found.position is not None
    assert found.position.offset == 500
    limits = replace(FACTS, source=SOURCE._replace(start=500, end=500), target=TARGET._replace(end=1000))
    assert verdict(limits).stopped is None


@pytest.mark.parametrize(
    ("change", "name", "detail"),
    [
        ({"source": SOURCE._replace(topic_id="new")}, "source_topic_recreated", "offsets 100 to 499 of the new topic"),
        (
            {"source": LogEnds("new", 0, 3, 3)},
            "source_topic_recreated",
            "would have skipped offsets 0 to 499 of the new topic (it ends at 3 now)",
        ),
        ({"source": LogEnds("new", 700, 800, 800)}, "source_topic_recreated", "begins at offset 700"),
        ({"target": TARGET._replace(topic_id="new")}, "target_topic_recreated", "is new"),
        ({"newest": 2}, "position_newer_than_control", "knows only up to 2"),
        ({"source": SOURCE._replace(start=550)}, "source_records_gone", "source offsets 500 to 549 were deleted"),
        ({"source": SOURCE._replace(start=0, end=499)}, "source_truncated", "offsets 499 to 499"),
        ({"target": TARGET._replace(end=900)}, "target_lost_data", "offsets 900 to 999 are gone"),
    ],
)
def test_every_contradiction_is_named_with_its_range(change: dict[str, object], name: str, detail: str) -> None:
    found = stopped(replace(FACTS, **change))  # type: ignore[arg-type]
    assert (found.name, found.topic, found.partition, found.offset) == (name, "orders", 0, 500)
    assert detail in found.detail
    assert verdict(replace(FACTS, **change)).position is not None, "its position must be kept alive"  # type: ignore[arg-type]


def test_the_end_that_an_old_leader_tells_is_waited_out() -> None:
    """Only a leader of the position's epoch, or of a later one, has all that was copied."""
    evidence, cut = replace(EVIDENCE, leader_epoch=7), SOURCE._replace(start=0, end=499)
    for epoch, held in ((6, True), (7, False), (8, False), (-1, False)):
        facts = replace(FACTS, stored=Position(500, evidence), source=cut._replace(leader_epoch=epoch))
        if held:
            assert waits(facts) is Reason.NO_ANSWER
            assert "position set" in str(verdict(facts).waits), "the way out where all brokers have gone back"
        else:
            assert stopped(facts).name == "source_truncated"
        other = replace(facts, source=facts.source._replace(topic_id="new"))  # type: ignore[union-attr]
        assert stopped(other).name == "source_topic_recreated"
    unknown = replace(FACTS, source=cut._replace(leader_epoch=6))
    assert stopped(unknown).name == "source_truncated"


@pytest.mark.parametrize(
    ("change", "name"),
    [({"source_cluster": "other"}, "source_cluster_changed"), ({"source_topic": "payments"}, "source_topic_changed")],
)
def test_a_position_of_something_else_is_named(change: dict[str, str], name: str) -> None:
    other = replace(EVIDENCE, **change)  # type: ignore[arg-type]
    assert stopped(replace(FACTS, stored=Position(500, other))).name == name


def test_an_unreadable_position_is_committed_again_as_it_stands() -> None:
    theirs = checkpoint.read(Committed(500, "theirs"))
    found = verdict(replace(FACTS, stored=theirs))
    assert found.unreadable == theirs
    assert found.stopped is not None
    assert found.stopped.name == "position_unreadable"


def test_a_partition_without_position_is_claimed_at_the_start_with_the_ids_of_now() -> None:
    found = verdict(FRESH)
    assert found.claim is not None
    assert found.position is not None
    assert (found.position.offset, found.claim.offset) == (100, 100)
    assert (found.claim.target_topic_id, found.claim.target_end, found.claim.at_ms) == ("target-id", 0, 77)
    later = verdict(replace(FRESH, start=300))
    assert later.position is not None
    assert later.position.offset == 300
    assert stopped(replace(FRESH, start=50)).name == "source_records_gone"


def test_a_target_with_data_and_no_position_is_not_touched() -> None:
    assert stopped(replace(FRESH, target=TARGET)).name == "target_not_empty"


def test_only_the_claim_tells_why_a_position_is_gone() -> None:
    claimed = replace(FRESH, claim=CLAIM)
    assert stopped(claimed).name == "position_expired"
    assert stopped(replace(claimed, target=TARGET._replace(topic_id="new"))).name == "target_topic_recreated"
    both = replace(claimed, source=SOURCE._replace(topic_id="again"), target=TARGET._replace(topic_id="new"))
    assert stopped(both).name == "target_topic_recreated"
    said = "both topics were created again: the source topic's id was source-id then, and is again now; the target"
    assert said in stopped(both).detail
    of_another = replace(both, claim=replace(CLAIM, source_cluster="another"))
    assert stopped(of_another).name == "source_cluster_changed", "a restart is no answer to that, and isn't offered"
    gone = replace(claimed, target=TopicMissing("no such topic"))
    assert stopped(gone, replace(ROUTE, target_topic_id="")).name == "target_topic_deleted"
    assert waits(gone) is Reason.TARGET_MISSING, "it was listed: a broker that has just started may not know of it yet"


def test_an_error_never_reads_as_no_position() -> None:
    assert waits(replace(FACTS, stored=NotAllowed("no right"))) is Reason.NOT_ALLOWED


@pytest.mark.parametrize("side", ["source", "target"])
def test_what_cannot_be_known_is_waited_for_and_keeps_its_position(side: str) -> None:
    for error, reason in ((Unreachable("x"), Reason.NO_ANSWER), (NotAllowed("x"), Reason.NOT_ALLOWED)):
        facts = replace(FACTS, **{side: error})  # type: ignore[arg-type]
        assert waits(facts) is reason
        assert verdict(facts).position is not None


def test_what_the_listing_showed_stops_or_waits_before_anything_else() -> None:
    rewrites = Incident("target_rewrites_timestamps", "why", topic="orders")
    found = stopped(FRESH, replace(ROUTE, stopped=rewrites))
    assert (found.name, found.partition) == ("target_rewrites_timestamps", 0)
    assert waits(FRESH, replace(ROUTE, waiting="the user needs Create")) is Reason.LISTED_SO
