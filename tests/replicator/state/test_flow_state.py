"""The one reader of the flow's own topics: what is missing, unreadable or of a newer format has a name."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import cast

import pytest

from replicator.kafka.topic_reader import KeyAndValue, TopicReader
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.state.claims import Claim
from replicator.state.control_topic import Control, fold
from replicator.state.flow_state import CONFIRM_S, FlowState
from replicator.state.generation import WITH_TOPICS, LaneAssignment
from tests.replicator.flow.fakes import flow

CONTROL, CLAIMS = "__eos.f.control", "__eos.f.claims"
PREPARING = Control().prepare(LaneAssignment(1), {"t": 1}, 1)
OPENED = Control().apply(PREPARING).finish(2)[-1]
CLAIM = Claim(Partition("a.t", 0), Partition("t", 0), "s", "t", 0, 0, 1, "me", 1)


class Topics:
    """A reader over lists of records by topic and partition. `counts` are answers to how many partitions there are."""

    def __init__(self, **topics: list[list[KeyAndValue]]) -> None:
        self.records = {f"__eos.f.{name}": partitions for name, partitions in topics.items()}
        self.counts: dict[str, list[int]] = {}
        self.denied: set[str] = set()
        self.unread: dict[Partition, ReplicatorError] = {}
        self.asked = 0  # about both topics at a time
        self.visible_only: list[Partition] = []

    def partition_count(self, topic: str) -> int:
        if topic in self.denied:
            raise NotAllowed(f"the user needs Describe on topic {topic!r}")
        if self.counts.get(topic):
            return self.counts[topic].pop(0)
        return len(self.records.get(topic, ()))

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int | ReplicatorError]:
        self.asked += 1
        denied = {name: NotAllowed(f"the user needs Describe on topic {name!r}") for name in self.denied}
        return {name: denied.get(name) or len(self.records.get(name, ())) for name in topics}

    def whole_partitions(
        self, partitions: Iterable[Partition], *, visible_only: Collection[Partition]
    ) -> dict[Partition, list[KeyAndValue] | ReplicatorError]:
        self.asked += 1
        self.visible_only = [*visible_only]
        return {at: self.unread.get(at) or self.records[at.topic][at.partition] for at in partitions}

    def whole(self, topic: str, partitions: Iterable[int]) -> list[KeyAndValue]:
        return [record for number in partitions for record in self.records[topic][number]]


def state(topics: Topics, claim_partitions: int = 1) -> tuple[FlowState, list[float]]:
    pauses: list[float] = []
    made = FlowState(flow(), cast(TopicReader, topics), claim_partitions=claim_partitions, pause=pauses.append)
    return made, pauses


def newer(record: tuple[bytes, bytes]) -> KeyAndValue:
    return record[0], json.dumps({**json.loads(record[1]), "v": WITH_TOPICS + 1}).encode()


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


BEGUN: list[KeyAndValue] = [(it.key, it.encode()) for it in (PREPARING, OPENED)]
OTHER = Claim(Partition("a.t", 1), Partition("t", 1), "s", "t", 0, 0, 1, "me", 1)


def test_both_topics_are_read_by_two_questions() -> None:
    topics = Topics(control=[BEGUN], claims=[[CLAIM.encode()], [OTHER.encode()]])
    control, claims = state(topics)[0].both_if_any()
    assert control is not None
    assert control.open == OPENED
    assert claims() == state(topics)[0].claims()
    assert topics.asked == 2
    assert topics.visible_only == [Partition(CLAIMS, 0), Partition(CLAIMS, 1)], "no open transaction is waited for"


def test_of_both_topics_neither_need_be_there() -> None:
    control, claims = state(Topics())[0].both_if_any()
    assert (control, claims()) == (None, None)
    control, claims = state(Topics(control=[[]]))[0].both_if_any()
    assert (control, claims()) == (Control(), None)


def test_a_lane_reads_its_own_claims_with_the_control_topic() -> None:
    topics = Topics(control=[BEGUN], claims=[[CLAIM.encode()], [OTHER.encode()]])
    control, claims = state(topics, 2)[0].control_and_claims(0)
    assert control.open == OPENED
    assert claims().claims == {CLAIM.target: CLAIM}
    assert topics.asked == 2
    assert topics.visible_only == [], "it has ended the one that it could find open itself"


def test_a_lane_reads_all_claims_where_others_can_concern_it() -> None:
    """A generation with another number of lanes came before."""
    before = fold(BEGUN)
    again = before.prepare(LaneAssignment(2), {"t": 1}, 2)
    records: list[KeyAndValue] = [*BEGUN, *((it.key, it.encode()) for it in (again, *before.apply(again).finish(3)))]
    topics = Topics(control=[records], claims=[[CLAIM.encode()], [OTHER.encode()]])
    control, claims = state(topics, 2)[0].control_and_claims(0)
    assert control.claims_partition(0) is None
    assert claims().claims == {CLAIM.target: CLAIM, OTHER.target: OTHER}


def test_what_the_control_topic_says_is_known_whatever_is_wrong_with_the_claims() -> None:
    unread = Topics(control=[BEGUN], claims=[[CLAIM.encode()]])
    unread.unread[Partition(CLAIMS, 0)] = Retriable("a transaction is open")
    denied = Topics(control=[BEGUN], claims=[[]])
    denied.denied.add(CLAIMS)
    foreign = Topics(control=[BEGUN], claims=[[(b"x", b"y")]])
    for topics, kind in ((unread, Retriable), (denied, NotAllowed), (foreign, Incident)):
        control, claims = state(topics)[0].both_if_any()
        assert control is not None
        assert control.open == OPENED
        with pytest.raises(kind):
            claims()
    few = state(Topics(control=[BEGUN], claims=[[]]), 3)[0]
    assert few.control_and_claims(0)[0].open == OPENED
    with pytest.raises(Retriable, match="has 1 partitions, not 3"):
        few.control_and_claims(0)[1]()


def test_a_lane_whose_control_topic_is_lost_is_told() -> None:
    found, pauses = state(Topics(claims=[[]]))
    with pytest.raises(Incident, match="control_topic_lost"):
        found.control_and_claims(0)
    assert pauses == [CONFIRM_S]


def test_a_flow_that_has_claims_isnt_new_whatever_its_control_topic_lost() -> None:
    for topics in (Topics(), Topics(control=[[]])):
        assert state(topics)[0].control_unless_new() is None
        topics.records[CLAIMS] = [[CLAIM.encode()]]
        with pytest.raises(Incident, match=r"control_topic_lost.* but the flow has claims.*rebuild-control"):
            state(topics)[0].control_unless_new()
    found, _ = state(Topics(control=[[(it.key, it.encode()) for it in (PREPARING, OPENED)]], claims=[[CLAIM.encode()]]))
    assert found.control_unless_new() == found.control()
