"""Reading other flows' claims on the source: what is read again, and what becomes of a topic that can't be read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from replicator.kafka.topic_reader import KeyAndValue, LogBounds, TopicReader
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable
from replicator.model.origins import Origin
from replicator.model.partition import Partition
from replicator.state import source_claims
from replicator.state.claims import Claim
from replicator.state.source_claims import SourceClaims
from tests.replicator.flow.fakes import flow

THEIRS, OWN = "__eos.g.claims", "__eos.f.claims"
IDS = {"t": "id-t", "u": "id-u"}


def claim(topic: str) -> tuple[bytes, bytes]:
    at = Partition(topic, 0)
    return Claim(at, at, "s", f"id-{topic}", 0, 0, 1, "me", 1, "Z").encode()


class Topics:
    """A reader over lists of records by topic and partition."""

    def __init__(self, **logs: list[list[KeyAndValue]]) -> None:
        self.logs = {f"__eos.{name}.claims": partitions for name, partitions in logs.items()}
        self.failing: dict[str, ReplicatorError] = {}
        self.without_bounds: dict[Partition, ReplicatorError] = {}
        self.unreadable: dict[Partition, ReplicatorError] = {}
        self.hidden: set[str] = set()
        self.asked: list[str] = []
        self.read: list[Partition] = []

    def names(self) -> frozenset[str]:
        return frozenset({*self.logs, "t", "__eos.g.control", "__eos..claims"} - self.hidden)

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int | ReplicatorError]:
        self.asked.append("counts")
        return {name: self.failing.get(name) or len(self.logs.get(name, ())) for name in topics}

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, LogBounds | ReplicatorError]:
        self.asked.append("bounds")
        return {at: self.without_bounds.get(at) or (0, len(self.logs[at.topic][at.partition])) for at in partitions}

    def records(self, bounds: Mapping[Partition, LogBounds]) -> dict[Partition, list[KeyAndValue] | ReplicatorError]:
        self.asked.append("records")
        self.read += bounds
        return {
            at: self.unreadable.get(at) or self.logs[at.topic][at.partition][:end] for at, (_, end) in bounds.items()
        }


def reading(topics: Topics) -> SourceClaims:
    return SourceClaims(flow(), cast(TopicReader, topics))


def test_claims_of_all_flows_that_write_there_are_found() -> None:
    found = reading(Topics(g=[[claim("t")]], f=[[], [claim("u")]])).origins(IDS)
    assert found.origins == {"t": {Origin("Z", "t", "g")}, "u": {Origin("Z", "u", "f")}}
    assert found.unread == {}, "a flow of the same name in the other direction is another one"


def test_a_partition_is_read_again_only_when_it_has_grown() -> None:
    topics = Topics(g=[[claim("t")], []])
    claims = reading(topics)
    claims.origins(IDS)
    claims.origins(IDS)
    assert topics.read == [Partition(THEIRS, 0), Partition(THEIRS, 1)]
    topics.logs[THEIRS][1].append(claim("u"))
    assert claims.origins(IDS).origins.keys() == {"t", "u"}
    assert topics.read[2:] == [Partition(THEIRS, 1)]


def test_without_the_right_to_see_them_that_is_told() -> None:
    """They aren't even listed; the topic of the flow's own name shows it."""
    topics = Topics(g=[[claim("t")]])
    topics.hidden = {THEIRS}
    topics.failing[OWN] = NotAllowed("needs Describe")
    found = reading(topics).origins(IDS)
    assert (found.origins, list(found.unread)) == ({}, [OWN])
    assert found.passing is None


def test_one_topic_that_cannot_be_read_hides_no_other() -> None:
    topics = Topics(g=[[claim("t")]], h=[[claim("u")]])
    topics.failing[THEIRS] = Retriable("no leader")
    found = reading(topics).origins(IDS)
    assert found.origins.keys() == {"u"}
    assert found.passing is topics.failing[THEIRS]


def test_all_flows_are_asked_about_together() -> None:
    """A cluster may hold the claims of hundreds of flows, and each start of a flow that reads there asks for them."""
    logs: dict[str, list[list[KeyAndValue]]] = {f"g{number}": [[claim(f"t{number}")], []] for number in range(200)}
    topics = Topics(**logs)
    found, unread = reading(topics).read()
    assert (len(found), unread) == (200, {})
    assert topics.asked == ["counts", "bounds", "records"]


def test_long_claims_topics_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_claims, "READ_AT_ONCE", 3)
    topics = Topics(g=[[claim("t")] * 2, [claim("t")]], h=[[claim("u")] * 5, [claim("u")], []])
    found, _ = reading(topics).read()
    assert found.keys() == {("t", "id-t"), ("u", "id-u")}
    assert topics.asked.count("records") == 3
    assert len(topics.read) == len(set(topics.read)) == 5


@pytest.mark.parametrize("where", ["without_bounds", "unreadable"])
def test_a_partition_that_could_not_be_read_is_read_the_next_time(where: str) -> None:
    topics = Topics(g=[[claim("t")], [claim("u")]], h=[[claim("v")]])
    error = Retriable("no leader")
    getattr(topics, where)[Partition(THEIRS, 1)] = error
    claims = reading(topics)
    found = claims.origins({**IDS, "v": "id-v"})
    assert found.passing is error
    assert found.origins.keys() == {"v"}, "of a topic that isn't read whole nothing is known"
    getattr(topics, where).clear()
    topics.read.clear()
    assert claims.origins(IDS).origins.keys() == {"t", "u"}
    assert topics.read == [Partition(THEIRS, 1)]


def test_a_claims_topic_that_is_gone_says_nothing() -> None:
    topics = Topics(g=[[claim("t")]])
    claims = reading(topics)
    assert claims.origins(IDS).origins.keys() == {"t"}
    del topics.logs[THEIRS]
    assert claims.origins(IDS).origins == {}


@pytest.mark.parametrize("newer", [False, True])
def test_what_is_no_claims_topic_of_this_version_is_told_and_does_not_pass(newer: bool) -> None:
    key, value = claim("t")
    record = (key, json.dumps({**json.loads(value), "v": 2}).encode()) if newer else (b"x", b"y")
    found = reading(Topics(g=[[record]])).origins(IDS)
    error = found.unread[THEIRS]
    assert isinstance(error, Incident)
    assert error.name == ("newer_format" if newer else "claims_topic_unreadable")
    assert found.passing is None
