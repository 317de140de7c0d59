"""Which target topics `plan` expects to get configs and rights: those that are the flow's own, or will be."""

from __future__ import annotations

import pytest

from replicator.flow.listing import Listing
from replicator.flow.topic_rules import ListedTopic
from replicator.inspect.expected_starts import ExpectedStart
from replicator.inspect.plan_synced import synced_topics
from replicator.lane.start_decision import StartDecision
from replicator.model.errors import Incident
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim, Claims
from tests.replicator.flow.fakes import claim, flow, topic

AT = Partition("t1", 0)
ROUTE = Route(AT, Partition("a.t1", 0), "id-t1", "id-a.t1")
ENDS = LogEnds("id-t1", 0, 5, 5)
STOPPED = StartDecision(stopped=Incident("target_not_empty", "in a test", topic="t1"))


@pytest.mark.parametrize(
    ("there", "claimed", "start", "expected"),
    [
        (False, (), StartDecision(), {"t1"}),
        (True, (), StartDecision(), {"t1"}),
        (True, (), STOPPED, set()),
        (True, (claim("t1"), claim("t1", 1)), StartDecision(), {"t1"}),
        (True, (claim("t1", 0, "before"),), StartDecision(), set()),
    ],
)
def test_what_is_expected(there: bool, claimed: tuple[Claim, ...], start: StartDecision, expected: set[str]) -> None:
    targets = {"a.t1": ListedTopic(topic("a.t1") if there else None)}
    claims = Claims({it.target: it for it in claimed}, ())
    starts = {AT: ExpectedStart(ROUTE, None, ENDS, ENDS, start)}
    assert synced_topics(flow(), "ca", Listing({"t1": topic("t1")}), targets, claims, starts) == expected
