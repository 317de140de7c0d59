"""What is said of a partition while its source is away: what the target has of it, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.config import load_text
from replicator.flow.frozen import being_failed_over, failed_over
from replicator.inspect.flow_status import PartitionStatus, assembled
from replicator.inspect.target_status import describe
from replicator.model.checkpoint import Evidence, Position
from replicator.model.commands import Command
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.state import occurrences
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.decisions import OperatorDecision
from replicator.state.generation import Generation, Kind, Phase
from replicator.state.run_settings import Paused, RunSettings

pytestmark = pytest.mark.tier("default")

EXAMPLE = """
clusters: { a: { properties: { bootstrap.servers: "a:1" } }, b: { properties: { bootstrap.servers: "b:1" } } }
flows: { orders: { source: a, target: b, topics: ["^.*"] } }
"""
AT, TO = Partition("t", 3), Partition("west.t", 3)
STORED = Position(
    40,
    Evidence(
        generation=7,
        owner="host:1",
        source_topic="t",
        source_cluster="e",
        source_topic_id="s",
        target_topic_id="w",
        count=30,
        committed_ms=1_000,
    ),
)
GONE = Incident("source_records_gone", "offsets 40 to 59 are gone", topic="t", partition=3, offset=40)
FOUND = occurrences.found(GONE, TO, AT, "host:1", 7, 900)
PAUSED = RunSettings({"t": Paused(by="ann", at_ms=1, why="moved")})
DECIDED = OperatorDecision(
    occurrence=FOUND.id,
    command=Command.SKIP,
    name=GONE.name,
    offset=40,
    end=60,
    by="ann",
    why="old",
    at_ms=1,
    token="x",
)


def frozen(**facts: object) -> Control:
    generation = Generation(8, Phase.OPEN, 1, Kind.FROZEN)
    return Control({8: generation}, **facts)  # type: ignore[arg-type]


def test_position_owner_and_commit_are_known_and_what_the_source_has_is_not() -> None:
    assert describe(AT, TO, STORED, Control(), ()) == PartitionStatus(
        source_topic="t",
        partition=3,
        target_topic="west.t",
        position=40,
        last_commit_ms=1_000,
        generation=7,
        owner="host:1",
        records_copied=30,
        state="waiting",
    )


def test_an_incident_that_was_written_down_is_one_with_what_was_decided() -> None:
    row = describe(AT, TO, STORED, Control(settings=PAUSED), (FOUND,))
    assert (row.state, row.incident, row.occurrence, row.decided) == ("records_lost", GONE.name, FOUND.id, "")
    assert row.detail.startswith(GONE.detail)
    decided = describe(AT, TO, STORED, Control(decisions={FOUND.id: DECIDED}), (FOUND,))
    assert (decided.decided, decided.decided_waits) == (DECIDED.said, "")
    again = replace(DECIDED, command=Command.RESTART_TOPIC)
    waits = describe(AT, TO, STORED, Control(settings=PAUSED, decisions={FOUND.id: again}), (FOUND,))
    assert (waits.state, waits.decided_waits) == ("records_lost", "topic t is paused by ann (moved)")


def test_why_it_is_not_copied_is_known_where_an_operator_has_said_so() -> None:
    controls = Control(settings=PAUSED), frozen(), frozen(settings=PAUSED)
    states = [describe(AT, TO, STORED, control, ()).state for control in controls]
    assert states == ["paused", "failed_over", "paused"]


def test_what_is_only_being_failed_over_may_still_be_copied() -> None:
    live, half = Generation(7, Phase.OPEN, 1), Generation(8, Phase.PREPARING, 1, Kind.FROZEN, by="ann")
    control = Control({7: live, 8: half})
    assert describe(AT, TO, STORED, control, ()).state == "waiting"
    assert failed_over(control) == ""
    assert "may still copy" in being_failed_over(control)
    assert "nothing is copied" in failed_over(frozen())
    assert being_failed_over(frozen()) == failed_over(Control()) == being_failed_over(None) == ""
    flow = load_text(EXAMPLE, env={}).flows["orders"]
    found = assembled(flow, (), control, Claims({}, ()), {})
    assert (found.failed_over, "may still copy" in found.being_failed_over) == (False, True)
    assert assembled(flow, (), frozen(), Claims({}, ()), {}).failed_over


def test_a_position_that_is_gone_is_told() -> None:
    row = describe(AT, TO, None, Control(), ())
    assert (row.state, row.position, row.detail) == ("waiting", None, "it has no position any more")
