"""Where the source's partitions end, as one who syncs groups asks: of which that is known, and of which it isn't."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pytest
import yaml

from replicator.config import Flow, load_text
from replicator.group_sync import live_map
from replicator.group_sync.followed import FollowedGroups
from replicator.group_sync.live_map import KafkaLiveMap
from replicator.groups.ownership import GroupOffset
from replicator.kafka.admin import ClusterAdmin
from replicator.kafka.offset_questions import ListedOffset, ListedOffsets, Wanted
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable, TopicMissing
from replicator.model.partition import Partition
from replicator.state.claims import Claim, Claims
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Phase
from replicator.translation.partition_maps import NOT_COPIED, UNANSWERED, MappedPartition, Untold
from replicator.wire.group_requests import ListedGroup
from tests.replicator.group_sync.fakes import FakeValues

pytestmark = pytest.mark.tier("default")

ORDERS, INVOICES, MORE = Partition("orders", 0), Partition("invoices", 0), Partition("invoices", 1)
T = TypeVar("T")


def id_of(topic: str) -> str:
    return urlsafe_b64encode(topic.ljust(16).encode()).decode().rstrip("=")


class Told(Generic[T]):
    """An answer that is there."""

    def __init__(self, found: T) -> None:
        self._found = found

    def poll(self, timeout_s: float) -> bool:
        """See `Answers`."""
        return True

    def values(self) -> T:
        """See `Answers`."""
        return self._found


class FakeTopics:
    """Implements what is asked of `TopicQuestions`: `counts` of partitions, by topic; `denied` topics may not be
    seen, and aren't listed."""

    def __init__(self, **counts: int) -> None:
        self.counts, self.denied, self.leaderless = counts, set[str](), set[Partition]()
        self.logs: dict[Partition, ListedOffset] = {}  # other ones than at 10
        self.left = 0  # brokers, because they named old leaders
        self.asked = list[tuple[Wanted, frozenset[Partition]]]()  # a request to each leader
        self.described = set[str]()

    def names(self) -> Told[frozenset[str]]:
        """See `TopicQuestions`."""
        return Told(frozenset(self.counts.keys() - self.denied))

    def describe(
        self, topics: Collection[str], *, rights: bool = False
    ) -> Told[Mapping[str, TopicInfo | ReplicatorError]]:
        """See `TopicQuestions`."""
        self.described.update(topics)
        return Told({name: self._described(name) for name in topics})

    def _described(self, name: str) -> TopicInfo | ReplicatorError:
        if name in self.denied:
            return NotAllowed(f"no Describe on {name}")
        return TopicInfo(name, id_of(name), self.counts[name]) if name in self.counts else TopicMissing(name)

    def list_offsets(
        self, partitions: Collection[Partition], wanted: Sequence[Wanted], *, patient: bool = False
    ) -> Told[Sequence[ListedOffsets]]:
        """See `TopicQuestions`: each log begins where it ends, most of them at 10."""
        self.asked += [(one, frozenset(partitions)) for one in wanted]
        return Told([{at: self._end(at) for at in partitions} for _ in wanted])

    def _end(self, at: Partition) -> ListedOffset | ReplicatorError:
        no_leader = Retriable(f"{at} has no leader")
        return no_leader if at in self.leaderless else self.logs.get(at, ListedOffset(10, -1))

    def ask_another(self) -> None:
        """See `TopicQuestions`."""
        self.left += 1

    def close(self) -> None:
        """See `TopicQuestions`."""


class FakeState:
    """The flow's own topics: it has copied what is `claimed`."""

    control: Control | None = None
    claimed: tuple[Partition, ...] = (ORDERS, INVOICES)

    def control_if_any(self) -> Control | None:
        """See `FlowState`."""
        return self.control

    def claims_if_any(self) -> Claims | None:
        """See `FlowState`."""
        if not self.claimed:
            return None
        return Claims({at: Claim(at, at, "s", "t", 0, 0, 1, "me", 1) for at in self.claimed}, ())


def make_flow(**settings: Any) -> Flow:
    file = {"clusters": {n: {"properties": {"bootstrap.servers": f"{n}:1"}} for n in ("x", "y")}}
    flow = {"source": "x", "target": "y", "topics": ["^.*"], "groups": {"include": ["^.*"]}, **settings}
    return load_text(yaml.safe_dump({**file, "flows": {"f": flow}}), env={}).flows["f"]


class Asked:
    """A live map between two clusters."""

    def __init__(self, **settings: Any) -> None:
        self.flow, self.state = make_flow(**{"rename": "{topic}", **settings}), FakeState()
        self.source, self.target = FakeTopics(orders=1, invoices=2), FakeTopics(orders=1, invoices=2)
        self.map = KafkaLiveMap(self.flow)
        plane: Any = self.map._clusters
        plane.connect, plane.state = lambda: None, self.state
        for side in ("source", "target"):
            cluster, topics = getattr(self.flow, side), getattr(self, side)
            admin = ClusterAdmin(cluster, topics, request_timeout_ms=1000, connect_timeout_ms=1000)
            setattr(plane, side, admin)
        self.map.read_failed_over()


@pytest.fixture
def asked() -> Iterator[Asked]:
    it = Asked()
    yield it
    it.map.close()


def test_partitions_that_are_not_at_the_target_have_ends_but_are_not_noted(asked: Asked) -> None:
    """An application may have written there what a group has read for."""
    del asked.target.counts["orders"]
    asked.target.counts["invoices"] = 1
    found = asked.map.source_ends()
    assert found.ends == {ORDERS: 10, INVOICES: 10, MORE: 10}
    assert found.noted == {INVOICES: 10}


def test_a_topic_that_may_not_be_seen_any_more_is_not_taken_for_deleted(asked: Asked) -> None:
    asked.map.source_ends()
    asked.source.denied.add("invoices")
    found = asked.map.source_ends()
    assert (found.ends, set(found.unknown)) == ({ORDERS: 10}, {INVOICES, MORE})
    assert str(found.unknown[MORE]) == "no Describe on invoices"
    asked.source.denied.clear()
    del asked.source.counts["invoices"]
    found = asked.map.source_ends()
    assert (found.ends, found.unknown) == ({ORDERS: 10}, {})


def test_a_topic_that_was_copied_and_may_not_be_seen_at_the_start_is_not_known(asked: Asked) -> None:
    asked.source.denied.add("invoices")
    assert set(asked.map.source_ends().unknown) == {INVOICES}


def test_a_partition_without_a_leader_keeps_no_other_from_being_known(asked: Asked) -> None:
    asked.source.leaderless.add(MORE)
    found = asked.map.source_ends()
    assert (found.ends, set(found.unknown)) == ({ORDERS: 10, INVOICES: 10}, {MORE})


def test_where_no_partition_has_an_answer_nothing_is_known(asked: Asked) -> None:
    asked.source.leaderless |= {ORDERS, INVOICES, MORE}
    with pytest.raises(Retriable, match="no leader"):
        asked.map.source_ends()


def test_a_target_topic_that_may_not_be_seen_is_tried(asked: Asked) -> None:
    """Noting fails then, and says which right is missing."""
    asked.target.denied.add("invoices")
    found = asked.map.source_ends()
    assert (found.noted, found.unknown) == ({ORDERS: 10, INVOICES: 10, MORE: 10}, {})


def test_a_topic_whose_copy_would_have_an_impossible_name_has_an_end_but_is_not_noted() -> None:
    """The target isn't asked for it: it would refuse the question."""
    asked, long = Asked(rename="{topic}.copy"), "o" * 249
    asked.source.counts = {"orders": 1, long: 1}
    asked.target.counts = {"orders.copy": 1}
    found = asked.map.source_ends()
    asked.map.close()
    assert (set(found.ends), set(found.noted)) == (
        {
            ORDERS,
            Partition(long, 0),
        },
        {ORDERS},
    )
    assert "orders.copy" in asked.target.described
    assert f"{long}.copy" not in asked.target.described


def test_of_new_topics_that_are_ignored_no_end_is_asked_for() -> None:
    asked = Asked(new_topics="ignore")
    assert set(asked.map.source_ends().ends) == {ORDERS, INVOICES, MORE}  # nothing was listed first yet
    asked.state.control = Control({1: Generation(1, Phase.OPEN, 1, partitions={"orders": 1, "deleted": 1})})
    asked.state.claimed = ()
    asked.map.read_failed_over()
    found = asked.map.source_ends()
    asked.map.close()
    assert (set(found.ends), found.unknown) == ({ORDERS}, {})


class FakeTranslator:
    """Has all partitions that the flow's patterns select; of some nothing is known now."""

    def __init__(self, *_: object) -> None:
        self.untold = {at: Untold(at, at, UNANSWERED, "no leader") for at in (ORDERS, INVOICES)}
        self.untold[MORE] = Untold(MORE, MORE, NOT_COPIED, "the flow has not begun to copy this partition")

    def partitions(self) -> list[Partition]:
        """See `Translator`."""
        return sorted(self.untold)

    def untold_partitions(self) -> list[Untold]:
        """See `Translator`."""
        return list(self.untold.values())

    def mapped_partitions(self) -> list[MappedPartition]:
        """See `Translator`."""
        return []


def test_of_new_topics_that_are_ignored_no_group_has_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are never copied: a group that reads one would be shown so for good, and looked at in every round."""
    monkeypatch.setattr(live_map, "Translator", FakeTranslator)
    asked = Asked(new_topics="ignore")
    asked.map.read()
    assert asked.map.partitions() == {"orders": [ORDERS], "invoices": [INVOICES, MORE]}
    asked.state.control = Control({1: Generation(1, Phase.OPEN, 1, partitions={})})
    asked.state.claimed = (ORDERS,)  # as good as the first listing
    asked.map.read_failed_over()
    asked.map.read()
    assert asked.map.partitions() == {"orders": [ORDERS]}
    assert set(asked.map.unread()) == {ORDERS}
    followed = FollowedGroups(asked.flow)
    followed.select({"g": ListedGroup("consumer", "Empty", "classic")}, all_of_them=True)
    list(followed.take({"g": FakeValues({"invoices": {0: GroupOffset(1, ""), 1: GroupOffset(1, "")}})}))
    assert list(followed.due(followed.snapshot(asked.map.partitions()), 1_000.0)) == []
    assert followed.idle(1_001.0)
    followed.end_round(5)
    (shown,) = followed.shown()
    assert (list(shown.rows), shown.unknown) == ([], "")
    asked.map.close()
