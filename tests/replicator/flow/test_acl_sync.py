"""Who may read a source topic may read its copy, and nobody gets more than that."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from replicator.flow.acl_rules import wanted_acls
from replicator.flow.acl_sync import principal
from replicator.flow.discovery import Discovered
from replicator.model.acls import TopicAcl
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Unreachable
from tests.replicator.flow.fakes import topic
from tests.replicator.flow.test_discovery import DiscoveryRun, started

READ = TopicAcl("t1", False, "User:bob", "*", "READ", True)
THERE = replace(READ, topic="a.t1")
TOPICS = {"t1": "a.t1", "t12": "a.t12", "other": "a.other"}


@pytest.mark.parametrize(
    ("acl", "expected"),
    [
        (READ, {THERE}),
        (replace(READ, allowed=False, host="10.0.0.1"), {replace(THERE, allowed=False, host="10.0.0.1")}),
        (replace(READ, topic="t1", prefixed=True), {THERE, replace(THERE, topic="a.t12")}),
        (replace(READ, operation="DESCRIBE_CONFIGS"), {replace(THERE, operation="DESCRIBE_CONFIGS")}),
        (
            replace(READ, operation="ALL"),
            {replace(THERE, operation=each) for each in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")},
        ),
        (replace(READ, operation="WRITE"), set()),
        (replace(READ, operation="ALTER_CONFIGS"), set()),
        (replace(READ, topic="*"), set()),
        (
            replace(READ, topic="*", operation="ALL", host="10.0.0.1", allowed=False),
            {
                TopicAcl(name, False, "User:bob", "10.0.0.1", operation, False)
                for name in TOPICS.values()
                for operation in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
            },
        ),
        (replace(READ, topic="t"), set()),
        (replace(READ, topic="a.t1"), set()),
    ],
)
def test_what_a_copy_gets(acl: TopicAcl, expected: set[TopicAcl]) -> None:
    assert wanted_acls([acl], TOPICS) == expected


FLOW = "User:eos"


@pytest.mark.parametrize("operation", ["READ", "DESCRIBE", "ALL"])
@pytest.mark.parametrize("where", ["t1", "t", "*"])
def test_the_flow_is_not_denied_its_own_target_topic(operation: str, where: str) -> None:
    denied = TopicAcl(where, where == "t", FLOW, "*", operation, False)
    assert wanted_acls([denied, READ], TOPICS, FLOW) == {THERE}
    other = wanted_acls([denied, READ], TOPICS, "User:another")
    assert THERE in other, "a denial to somebody else takes nothing"
    assert replace(THERE, principal=FLOW, operation="READ" if operation == "ALL" else operation, allowed=False) in other


@pytest.mark.parametrize(
    ("denied_host", "allowed_host", "given"),
    [("*", "*", False), ("*", "h", False), ("h", "*", False), ("h", "h", False), ("h", "other", True)],
)
def test_what_everybody_is_denied_nobody_is_given(denied_host: str, allowed_host: str, *, given: bool) -> None:
    denied = replace(READ, principal="User:*", host=denied_host, allowed=False)
    config = replace(READ, operation="DESCRIBE_CONFIGS")
    wanted = wanted_acls([denied, replace(READ, host=allowed_host), config], TOPICS)
    assert wanted == {replace(config, topic="a.t1")} | ({replace(THERE, host=allowed_host)} if given else set())


def test_as_whom_the_flow_writes_is_known_from_its_login() -> None:
    assert principal({"sasl.username": "eos", "security.protocol": "SASL_SSL"}) == FLOW
    assert principal({"security.protocol": "SSL"}) == ""


def test_a_denial_to_everybody_is_told_and_does_not_stop_the_flow() -> None:
    made = begun()
    made.plane.source_acls = {replace(READ, principal="User:*", allowed=False)}
    (line,) = told(made)
    assert (line["event"], line["log_level"]) == ("acls_not_created", "warning")
    assert line["reason"] == "deny READ to User:* from * on a.t1 would keep the flow itself from it"
    assert told(made) == []
    assert made.plane.target_acls == set()


def begun(settings: str = "sync_acls: true") -> DiscoveryRun:
    """A flow whose source lets somebody read two of its topics, and others write."""
    made = started(settings)
    made.plane.source["t2"] = topic("t2")
    made.once()
    made.plane.target_acls.clear()
    made.plane.source_acls = {READ, replace(READ, topic="t2"), replace(READ, operation="WRITE", principal="User:eve")}
    return made


def told(made: DiscoveryRun) -> list[MutableMapping[str, Any]]:
    """What one discovery logs about ACLs; it is found out, too, where the topics go."""
    with capture_logs() as logs:
        (found,) = made.once()
    assert isinstance(found, Discovered)
    return [line for line in logs if str(line["event"]).startswith("acls")]


def test_they_are_created_once_and_what_is_there_stays() -> None:
    made = begun()
    kept = TopicAcl("a.t1", False, "User:carol", "*", "READ", True)
    made.plane.target_acls.add(kept)
    assert [(line["event"], line["topic"], line["acls"]) for line in told(made)] == [
        ("acls_created", "a.t1", "allow READ to User:bob from *"),
        ("acls_created", "a.t2", "allow READ to User:bob from *"),
    ]
    assert made.plane.target_acls == {kept, THERE, replace(THERE, topic="a.t2")}
    assert told(made) == []


def test_without_being_asked_for_none_is_created() -> None:
    made = begun("")
    assert told(made) == []
    assert made.plane.target_acls == set()


def test_a_topic_that_a_conflict_stops_gets_none() -> None:
    made = begun()
    made.plane.target["a.t2"] = replace(made.plane.target["a.t2"], partitions=1)
    made.plane.source["t2"] = topic("t2", 2)
    with capture_logs():
        made.once()
    assert {acl.topic for acl in made.plane.target_acls} == {"a.t1"}


def test_what_is_taken_away_at_the_source_is_told_and_left() -> None:
    made = begun()
    told(made)
    made.plane.source_acls.discard(READ)
    (left,) = told(made)
    assert (left["event"], left["topic"], left["acls"]) == ("acls_left", "a.t1", "allow READ to User:bob from *")
    assert THERE in made.plane.target_acls
    assert told(made) == [], "once"


@pytest.mark.parametrize(
    "error", [Unreachable("the controller is away"), NotAllowed("no Describe"), Incident("refused_by_cluster", "no")]
)
def test_where_they_can_not_be_listed_discovery_goes_on(error: ReplicatorError) -> None:
    made = begun()
    made.plane.unlisted = error
    assert [(line["event"], line["reason"]) for line in told(made)] == [("acls_not_created", str(error))]
    assert told(made) == []
    made.plane.unlisted = None
    assert [line["event"] for line in told(made)] == ["acls_created"] * 2
    made.plane.unlisted = error
    assert [line["event"] for line in told(made)] == ["acls_not_created"], "a new outage is told again"


def test_one_that_is_refused_is_told_once_and_the_others_are_created() -> None:
    made = begun()
    made.plane.refused["a.t1"] = NotAllowed("cluster 'b': the user needs Alter on the cluster")
    assert {line["event"] for line in told(made)} == {"acls_created", "acls_not_created"}
    assert told(made) == []
    assert {acl.topic for acl in made.plane.target_acls} == {"a.t2"}
