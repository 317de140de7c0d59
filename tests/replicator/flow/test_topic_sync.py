"""Existing target topics get configs and rights of their source topics only where they are the flow's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from replicator.model.acls import TopicAcl
from replicator.model.errors import Retriable
from replicator.model.partition import Partition
from replicator.state.claims import Claim, Claims
from tests.replicator.flow.fakes import FakePlane, claim, flow, run_before, topic
from tests.replicator.flow.test_discovery import DiscoveryRun

SETTINGS = "sync_acls: true, topic_configs: {sync: true}"
READ = TopicAcl("t1", False, "User:bob", "*", "READ", True)
ALLOWED = {replace(READ, topic="a.t1")}
OWN = (claim("t1"), claim("t1", 1))
ANOTHER_SOURCE = tuple(replace(it, source=Partition("t2", it.source.partition)) for it in OWN)


def existing(*claimed: Claim) -> DiscoveryRun:
    """A flow that finds a topic of its target topic's name, with other configs than the source's."""
    plane = run_before(FakePlane(flow(SETTINGS), {"t1": topic("t1", retention_ms="9")}), *claimed)
    plane.target["a.t1"] = topic("a.t1", retention_ms="5")
    plane.source_acls = {READ}
    return DiscoveryRun(plane)


def once(made: DiscoveryRun) -> dict[str, Any]:
    """Discover; return what is logged of it, by event."""
    with capture_logs() as logs:
        made.once()
    found = {str(line["event"]): line.get("reason") for line in logs}
    return {event: reason for event, reason in found.items() if event.startswith(("acls", "topic_configs"))}


def got(made: DiscoveryRun) -> tuple[str, set[TopicAcl]]:
    return made.plane.target["a.t1"].configs["retention.ms"], made.plane.target_acls


@pytest.mark.parametrize(
    "claimed",
    [
        (),
        (claim("t1", 0, "before"), claim("t1", 1, "before")),
        OWN[:1],
        (OWN[0], claim("t1", 1, "before")),
        ANOTHER_SOURCE,
        tuple(replace(it, source_cluster="another") for it in OWN),
        tuple(replace(it, source_topic_id="before") for it in OWN),
    ],
)
def test_a_topic_that_is_not_the_flows_own_gets_nothing(claimed: tuple[Claim, ...]) -> None:
    made = existing(*claimed)
    why = "not all of its partitions are claimed as copies of this source topic's"
    assert once(made) == {"topic_configs_not_set": why, "acls_not_created": f"a.t1: {why}"}
    assert once(made) == {}, "it is told once"
    assert got(made) == ("5", set())


def test_one_that_is_claimed_with_its_id_gets_both() -> None:
    made = existing(*OWN)
    assert set(once(made)) == {"topic_configs_set", "acls_created"}
    assert got(made) == ("9", ALLOWED)
    made.plane.source["t1"] = topic("t1", retention_ms="11")
    reads = made.plane.state.asked.count("claims")
    once(made)
    assert got(made)[0] == "11"
    assert made.plane.state.asked.count("claims") == reads, "that it is the flow's own is known"


def test_one_that_was_there_before_follows_from_its_claim_on() -> None:
    made = existing()
    once(made)
    made.plane.state.claims_topic = Claims({it.target: it for it in OWN}, ())
    assert set(once(made)) == {"topic_configs_set", "acls_created"}
    assert got(made) == ("9", ALLOWED)


def test_one_that_is_made_again_by_somebody_else_does_not_follow_any_more() -> None:
    made = existing(*OWN)
    once(made)
    made.plane.target["a.t1"] = topic("a.t1", topic_id="another", retention_ms="5")
    made.plane.target_acls.clear()
    once(made)
    assert got(made) == ("5", set())


def test_a_topic_that_is_too_small_and_not_the_flows_own_gets_nothing() -> None:
    made = existing()
    made.plane.target["a.t1"] = topic("a.t1", 1, retention_ms="5")
    once(made)
    assert got(made) == ("5", set())


def test_while_claims_can_not_be_read_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = existing(*OWN)
    state = made.plane.state

    def fails() -> Any:
        raise Retriable("no leader")

    with monkeypatch.context() as away:
        away.setattr(state, "both_if_any", fails)
        assert once(made) == {"topic_configs_not_set": "no leader", "acls_not_created": "a.t1: no leader"}
        assert got(made) == ("5", set())
    assert set(once(made)) == {"topic_configs_set", "acls_created"}


def test_one_that_the_flow_has_just_made_does_not_wait_for_its_claim() -> None:
    made = existing(*OWN)
    made.plane.source["t2"] = topic("t2")
    made.plane.source_acls = {replace(READ, topic="t2")}
    once(made)
    assert made.plane.target_acls == {replace(READ, topic="a.t2")}
    made.plane.source["t2"] = topic("t2", max_message_bytes="2000000")
    once(made)
    assert made.plane.target["a.t2"].configs["max.message.bytes"] == "2000000"
