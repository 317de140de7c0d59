"""Which topics groups wait for where the flow file doesn't say: those that read-process-write loops write to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.coupling.evidence import OFFSETS_TOPIC, ActiveProducer, SeenTransaction
from replicator.group_sync.hold_topics import LOOK_S, SHARE, FoundHoldTopics, NamedHoldTopics, hold_topics_of
from replicator.model.errors import NotAllowed, ReplicatorError, TopicMissing, Unreachable
from replicator.model.partition import Partition
from replicator.wire.producer_questions import ActiveProducers, LedTopic, ProducerQuestions, TransactionalIds
from tests.replicator.group_sync.fakes import FakeClock
from tests.replicator.group_sync.test_sync import make_flow

TOPICS = {"in", "out", "other"}


@dataclass
class FakeProducers:
    """The source: producers by topic, and which of its answers are errors."""

    active: dict[str, list[ActiveProducer]]
    clock: FakeClock
    ids: dict[str, int] = field(default_factory=dict)
    open: list[SeenTransaction] = field(default_factory=list)
    failed: dict[str, ReplicatorError] = field(default_factory=dict)
    takes_s: float = 0.0
    asked: list[str] = field(default_factory=list)

    def topics(self, names: Collection[str]) -> dict[str, LedTopic | ReplicatorError]:
        """See `ProducerQuestions`."""
        self.clock.s += self.takes_s
        missing = TopicMissing("there is none")
        return {it: LedTopic(UUID(int=1), {0: ("h", 1)}) if it in self.active else missing for it in names}

    def producers(self, topics: Mapping[str, LedTopic]) -> ActiveProducers:
        """See `ProducerQuestions`."""
        self.asked += sorted(topics)
        return ActiveProducers(
            {Partition(it, 0): self.active[it] for it in topics if it not in self.failed},
            {Partition(it, 0): self.failed[it] for it in topics if it in self.failed},
        )

    def transactional_ids(self) -> TransactionalIds:
        """See `ProducerQuestions`."""
        if "ids" in self.failed:
            raise self.failed["ids"]
        return TransactionalIds(self.ids, self.open)

    def close(self) -> None:
        """See `ProducerQuestions`."""


def looking(**topics: list[int]) -> tuple[FoundHoldTopics, FakeProducers, FakeClock]:
    """Producers by topic, all of them transactional; `offsets`: of `__consumer_offsets`."""
    clock = FakeClock()
    active = {
        OFFSETS_TOPIC if topic == "offsets" else topic: [ActiveProducer(it, 5, True) for it in producers]
        for topic, producers in {"in": [], "out": [], "other": [], **topics}.items()
    }
    source = FakeProducers(active, clock)
    return FoundHoldTopics(cast(ProducerQuestions, source), structlog.stdlib.get_logger(), clock), source, clock


def held(found: FoundHoldTopics) -> set[str]:
    found.look(TOPICS)
    return {topic for topic in TOPICS if found.holds(topic)}


def test_topics_that_loops_write_to_hold_groups_and_no_others() -> None:
    found, _, _ = looking(out=[1], other=[2], offsets=[1])
    assert held(found) == {"out"}


def test_without_loops_the_topics_of_the_flow_are_not_asked_about() -> None:
    for it in ({"other": [2], "offsets": []}, {"other": [2]}):
        found, source, _ = looking(**it)
        assert held(found) == set()
        assert set(source.asked) <= {OFFSETS_TOPIC}


def test_lanes_of_another_flow_hold_nothing() -> None:
    found, source, _ = looking(out=[1], offsets=[1])
    source.ids["eos.other.1.0"] = 1
    assert held(found) == set()


def test_it_looks_again_after_a_while_and_a_topic_stays() -> None:
    found, source, clock = looking(out=[1], other=[2], offsets=[1])
    assert held(found) == {"out"}
    source.active[OFFSETS_TOPIC] = [ActiveProducer(2, 5, True)]
    clock.s += LOOK_S - 1
    assert held(found) == {"out"}
    clock.s += 2
    assert held(found) == {"out", "other"}


def test_a_source_that_answers_slowly_is_asked_less_often() -> None:
    found, source, clock = looking(out=[1], offsets=[1])
    source.takes_s = 2.0  # for each of two topics
    held(found)
    asked = len(source.asked)
    clock.s += 4.0 / SHARE - 10
    held(found)
    assert len(source.asked) == asked
    clock.s += 20
    held(found)
    assert len(source.asked) == 2 * asked


@pytest.mark.parametrize("what", [OFFSETS_TOPIC, "ids", "out"])
def test_what_is_not_known_is_told_once_and_what_is_known_holds(what: str) -> None:
    found, source, clock = looking(out=[1], offsets=[1])
    source.failed[what] = NotAllowed("Read is missing")
    with capture_logs() as logs:
        held(found)
        clock.s += LOOK_S + 1
        held(found)
    told: list[Any] = [it for it in logs if it["event"] == "hold_topics_unknown"]
    assert [it["reason"] for it in told] == ["Read is missing"]
    del source.failed[what]
    clock.s += LOOK_S + 1
    with capture_logs() as logs:
        assert held(found) == {"out"}
    assert [it["event"] for it in logs] == ["groups_held_with"]
    source.failed["ids"] = Unreachable("nobody answers")
    clock.s += LOOK_S + 1
    assert held(found) == {"out"}


def test_an_open_transaction_shows_a_loop_where_the_offsets_topic_may_not_be_read() -> None:
    found, source, _ = looking(out=[1], offsets=[1])
    source.failed[OFFSETS_TOPIC] = NotAllowed("Read is missing")
    source.open.append(SeenTransaction("app", 1, {OFFSETS_TOPIC: (3,)}))
    assert held(found) == {"out"}


def test_the_flow_file_decides_where_it_says_something() -> None:
    assert isinstance(hold_topics_of(make_flow(), structlog.stdlib.get_logger()), FoundHoldTopics)
    for patterns, expected in (([], set()), (["^o.*"], {"out", "other"})):
        named = hold_topics_of(make_flow(hold_with=patterns), structlog.stdlib.get_logger())
        assert isinstance(named, NamedHoldTopics)
        named.look(TOPICS)
        assert {topic for topic in TOPICS if named.holds(topic)} == expected
