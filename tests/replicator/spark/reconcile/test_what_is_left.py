"""A comparison goes on without what has gone while it ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from py4j.protocol import Py4JError

from replicator import config
from replicator.config import Flow
from replicator.model.errors import Incident, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.proof.pairs import Pair
from replicator.proof.snapshot import Snapshot
from replicator.spark.reconcile import what_is_left

FLOW = config.load_text(
    """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:2"}}
flows: {f: {source: a, target: b, topics: [t]}}
""",
    env={},
).flows["f"]
FAILED = Py4JError("Job aborted due to stage failure: UnknownTopicOrPartitionException")
Going = Callable[..., None]


def pair(topic: str) -> Pair:
    return Pair(
        source=Partition(topic, 0), target=Partition(f"{topic}.copy", 0), source_range=(0, 1), target_range=(0, 1)
    )


SNAPSHOT = Snapshot((pair("one"), pair("two"), pair("three")), (), 0)


@pytest.fixture
def going(monkeypatch: pytest.MonkeyPatch) -> Going:
    """Has topics gone, or the clusters away."""

    def go(*topics: str, away: bool = False) -> None:
        def gone(flow: Flow, pairs: Sequence[Pair], **how: object) -> Mapping[Partition, Incident]:
            if away:
                raise Unreachable("cluster 'a' did not answer")
            return {
                it.source: Incident("topic_gone", "", topic=it.source.topic)
                for it in pairs
                if it.source.topic in topics
            }

        monkeypatch.setattr("replicator.spark.reconcile.what_is_left.gone_meanwhile", gone)
        monkeypatch.setattr("replicator.spark.failures.gone_meanwhile", gone)

    return go


class Comparing:
    """A comparison that fails so often."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.said = list(errors), list[str]()
        self.topics: list[list[str]] = []

    def __call__(self, snapshot: Snapshot) -> str:
        self.topics.append([it.source.topic for it in snapshot.pairs])
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def run(self, **how: Any) -> tuple[str, Snapshot]:
        return what_is_left.compared(FLOW, SNAPSHOT, self, self.said.append, connect_timeout_ms=1, **how)


@pytest.mark.parametrize("error", [FAILED, Incident("topic_gone", "", topic="two"), Retriable("no such topic")])
def test_the_others_are_compared_anew_and_what_has_gone_is_named(going: Going, error: Exception) -> None:
    going("two")
    comparing = Comparing(error)
    found, left = comparing.run()
    assert (found, comparing.topics) == ("done", [["one", "two", "three"], ["one", "three"]])
    assert [(it.name, it.topic) for it in left.not_compared] == [("topic_gone", "two")]
    assert [it.source.topic for it in left.pairs] == ["one", "three"]
    assert len(comparing.said) == 1


def test_what_has_gone_later_is_named_too(going: Going) -> None:
    going("two")
    comparing = Comparing(FAILED, FAILED)
    say = comparing.said.append

    def said(line: str) -> None:
        say(line)
        going("one", "two")

    _, left = what_is_left.compared(FLOW, SNAPSHOT, comparing, said, connect_timeout_ms=1)
    assert comparing.topics == [["one", "two", "three"], ["one", "three"], ["three"]]
    assert [it.topic for it in left.not_compared] == ["two", "one"]


def test_it_ends_where_nothing_is_left(going: Going) -> None:
    going("one", "two", "three")
    with pytest.raises(Incident, match="topic_gone"):
        Comparing(FAILED).run()


def test_whoever_stops_it_is_not_told_that_it_begins_anew(going: Going) -> None:
    going("two")
    comparing = Comparing(FAILED)
    with pytest.raises(KeyboardInterrupt):
        comparing.run(stopped=lambda: True)
    assert (len(comparing.topics), comparing.said) == (1, [])
    after_it_failed = iter([False, True])
    comparing = Comparing(FAILED)
    with pytest.raises(Incident, match="topic_gone"):  # the command says that it was interrupted
        comparing.run(stopped=lambda: next(after_it_failed))
    assert (len(comparing.topics), comparing.said) == (1, [])


def test_any_other_failure_ends_it(going: Going) -> None:
    going()
    with pytest.raises(Unreachable, match="Spark failed"):
        Comparing(FAILED).run()
    going(away=True)
    with pytest.raises(Unreachable, match="did not answer"):
        Comparing(FAILED).run()
