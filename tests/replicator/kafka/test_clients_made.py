"""Clients that can't be made, because a certificate is just being replaced: each maker says so in the same way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pytest

from replicator.config import Cluster, Flow, Properties, load_text
from replicator.kafka.group_offsets import GroupOffsets
from replicator.kafka.heartbeat_clients import KafkaHeartbeats
from replicator.kafka.note import write_note
from replicator.kafka.topic_questions import AdminTopicQuestions, TopicQuestions
from replicator.kafka.topic_reader import TopicReader
from replicator.model.errors import LocalFault
from replicator.model.partition import Partition
from replicator.planes.records.oversized import OversizedSearch

GONE = Properties({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "ssl", "ssl.ca.location": "/gone/ca.pem"})


def flow() -> Flow:
    text = """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:1"}}
flows:
  f: {source: a, target: b, topics: [t], heartbeat: 10s}
"""
    made = load_text(text, env={}).flows["f"]
    clusters: Mapping[str, Cluster] = {name: Cluster(name=name, properties=GONE) for name in ("a", "b")}
    return made.model_copy(update={"source": clusters["a"], "target": clusters["b"]})


class NoQuestions:
    """Is never asked."""


def reader(it: Flow) -> None:
    TopicReader(it, it.source, cast(TopicQuestions, NoQuestions())).connect("t", committed=False)


def search(it: Flow) -> None:
    wanted = OversizedSearch(it, 1_000)
    wanted.begin("too large")
    wanted.round([Partition("t", 0)], {Partition("t", 0): 0})


MAKERS: Collection[Callable[[Flow], Any]] = (
    lambda it: GroupOffsets(it, it.target, "g", "read group 'g'"),
    KafkaHeartbeats,
    lambda it: write_note(it, "t", (b"k", b"v"), 1.0),
    lambda it: AdminTopicQuestions(it.source, "test", 1.0).describe(["t"]),
    reader,
    search,
)


@pytest.mark.parametrize("make", MAKERS, ids=["group", "heartbeats", "note", "topics", "reader", "search"])
def test_a_certificate_that_is_gone_is_the_processs_own_fault(make: Callable[[Flow], Any]) -> None:
    with pytest.raises(LocalFault, match=r"no client can be made.*ssl\.ca\.location"):
        make(flow())
