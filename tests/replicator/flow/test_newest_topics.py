"""Who learns from the control topic's end that something is new takes no old leader's word on it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import structlog

from replicator.flow import wiring
from replicator.flow.topics import ControlPlane, reading_topics
from replicator.kafka.topic_questions import TopicQuestions
from replicator.state.generation import Generation, Phase
from replicator.wire.topics import AnyBrokerTopics
from tests.replicator.wire.fake_broker import flow_of

FLOW = flow_of(1)


def asks_anew(topics: TopicQuestions) -> bool:
    assert isinstance(topics, AnyBrokerTopics)
    return topics._epochs is not None and topics._brokers._kept_s == FLOW.limits.discovery_interval_ms / 2000


def test_the_watch_of_the_control_topic_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TopicQuestions] = []

    def watch(flow: Any, generation: Any, topics: Any, *_: Any) -> None:
        made.append(topics())

    monkeypatch.setattr(wiring, "watch_settings", watch)
    parts = wiring.parts(lambda name: None)(structlog.get_logger())
    parts.watch(FLOW, Generation(1, Phase.OPEN, 1), threading.Event(), lambda error: None)
    assert [asks_anew(each) for each in made] == [True]
    made[0].close()


def test_discovery_and_who_reads_a_flow_s_own_topics_do() -> None:
    with ControlPlane(FLOW) as plane, reading_topics(FLOW, FLOW.target) as reader:
        for topics in (*plane._own_topics.values(), reader._topics):
            assert asks_anew(topics)
