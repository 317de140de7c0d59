"""The one reader of the flow's own topics: what is missing, unreadable or of a newer format has a name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import cast

import pytest

from replicator.kafka.topic_reader import Record, TopicReader
from replicator.model.errors import Incident, NotAllowed, Retriable
from replicator.model.partition import Partition
from replicator.state.claims import Claim
from replicator.state.control_topic import Control
from replicator.state.flow_state import CONFIRM_S, FlowState
from replicator.state.generation import WITH_FROZEN, LaneAssignment
from tests.replicator.flow.fakes import flow

CONTROL, CLAIMS = "__eos.f.control", "__eos.f.claims"
PREPARING = Control().prepare(LaneAssignment(1), {"t": 1}, 1)
OPENED = Control().apply(PREPARING).finish(2)[-1]
CLAIM = Claim(Partition("a.t", 0), Partition("t", 0), "s", "t", 0, 0, 1, "me", 1)


class Topics:
    """A reader over lists of records by topic and partition. `counts` are answers to how many partitions there are."""

    def __init__(self, **topics: list[list[Record]]) -> None:
        self.records = {f"__eos.f.{name}": partitions for name, partitions in topics.items()}
        self.counts: dict[str, list[int]] = {}
        self.denied: set[str] = set()

    def partition_count(self, topic: str) -> int:
        if topic in self.denied:
            raise NotAllowed(f"the user needs Describe on topic {topic!r}")
        if self.counts.get(topic):
            return self.counts[topic].pop(0)
        return len(self.records.get(topic, ()))

    def whole(self, topic: str, partitions: Iterable[int]) -> list[Record]:
        return [record for number in partitions for record in self.records[topic][number]]


def state(topics: Topics, claim_partitions: int = 1) -> tuple[FlowState, list[float]]:
    pauses: list[float] = []
    made = FlowState(flow(), cast(TopicReader, topics), claim_partitions=claim_partitions, pause=pauses.append)
    return made, pauses


def newer(record: tuple[bytes, bytes]) -> Record:
    return record[0], json.dumps({**json.loads(record[1]), "v": WITH_FROZEN + 1}).encode()


def test_the_control_topic_is_folded() -> None:
    found, _ = state(Topics(control=[[(it.key, it.encode()) for it in (PREPARING, OPENED)]]))
    assert found.control().open == OPENED


@pytest.mark.parametrize("topics", [Topics(), Topics(control=[[]])])
def test_a_control_topic_that_is_missing_or_says_nothing_is_lost(topics: Topics) -> None:
    with pytest.raises(Incident, match="control_topic_lost") as caught:
        state(topics)[0].control()
    assert caught.value.topic == CONTROL


def test_one_partition_of_the_claims_topic_is_read_alone() -> None:
    other = Claim(Partition("a.t", 1), Partition("t", 1), "s", "t", 0, 0, 1, "me", 1)
    found, _ = state(Topics(claims=[[CLAIM.encode()], [other.encode()]]), 2)
    assert found.claims(1).claims == {other.target: other}
    assert found.claims().claims == {CLAIM.target: CLAIM, other.target: other}
    with pytest.raises(Retriable, match="has 2 partitions, not 3"):
        state(Topics(claims=[[], []]), 3)[0].claims(1)


def test_a_flow_that_may_be_new_is_told_what_there_is() -> None:
    assert state(Topics())[0].control_if_any() is None
    assert state(Topics(control=[[]]))[0].control_if_any() == Control()
    assert state(Topics())[0].claims_if_any() is None


@pytest.mark.parametrize("topic", [CONTROL, CLAIMS])
def test_one_answer_without_the_topic_is_not_enough(topic: str) -> None:
    """A broker that starts may give it."""
    topics = Topics(control=[[(OPENED.key, OPENED.encode())]], claims=[[CLAIM.encode()]])
    topics.counts[topic] = [0]
    found, pauses = state(topics)
    assert found.control().open == OPENED
    assert found.claims().claims == {CLAIM.target: CLAIM}
    assert pauses == [CONFIRM_S]


def test_a_topic_that_may_not_be_seen_is_not_taken_for_lost() -> None:
    topics = Topics(control=[[]], claims=[[]])
    topics.denied = {CONTROL, CLAIMS}
    for read in (state(topics)[0].control, state(topics)[0].claims):
        with pytest.raises(NotAllowed, match="Describe on topic"):
            read()


def test_a_missing_claims_topic_is_lost() -> None:
    with pytest.raises(Incident, match="claims_topic_lost"):
        state(Topics())[0].claims()


def test_a_claims_topic_with_too_few_partitions_is_read_later() -> None:
    with pytest.raises(Retriable, match="has 1 partitions, not 2"):
        state(Topics(claims=[[]]), claim_partitions=2)[0].claims()
    assert state(Topics(claims=[[], [CLAIM.encode()]]), claim_partitions=2)[0].claims().claims


def test_what_somebody_else_wrote_is_unreadable() -> None:
    found, _ = state(Topics(control=[[(b"x", b"y")]], claims=[[(b"x", b"y")]]))
    with pytest.raises(Incident, match="control_topic_unreadable"):
        found.control()
    with pytest.raises(Incident, match="claims_topic_unreadable"):
        found.claims()


def test_what_a_newer_program_wrote_stops_the_flow() -> None:
    found, _ = state(Topics(control=[[newer((OPENED.key, OPENED.encode()))]], claims=[[newer(CLAIM.encode())]]))
    for read, topic in ((found.control, CONTROL), (found.claims, CLAIMS)):
        with pytest.raises(Incident, match="newer_format") as caught:
            read()
        assert caught.value.topic == topic
