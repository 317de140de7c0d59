"""Plans, positions and views for tests of what a process shows of itself."""

from __future__ import annotations

from replicator.config import load_text
from replicator.lane.plan import LanePlan
from replicator.model.checkpoint import Evidence, Position
from replicator.state.generation import LaneAssignment

FILE = """\
clusters: {a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}
flows: {f: {source: a, target: b, topics: [t]}}
"""
FLOW = load_text(FILE, env={}).flows["f"]


def plan(lane: int, owner: str) -> LanePlan:
    """The plan of a lane of an attempt to run the flow."""
    return LanePlan(FLOW, 1, lane, owner, "cluster", (), 1, LaneAssignment(1))


def position(offset: int) -> Position:
    """A position at this source offset."""
    evidence = Evidence(
        generation=1,
        owner="owner",
        source_topic="t",
        source_cluster="cluster",
        source_topic_id="id",
        target_topic_id="other",
    )
    return Position(offset, evidence)
