"""Reading other flows' claims on the source: what is read again, and what becomes of a topic that can't be read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import cast

import pytest

from replicator.kafka.topic_reader import Record, TopicReader
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable
from replicator.model.origins import Origin
from replicator.model.partition import Partition
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

    def __init__(self, **records: list[list[Record]]) -> None:
        self.records = {f"__eos.{name}.claims": partitions for name, partitions in records.items()}
        self.failing: dict[str, ReplicatorError] = {}
        self.hidden: set[str] = set()
        self.read: list[Partition] = []

    def names(self) -> frozenset[str]:
        return frozenset({*self.records, "t", "__eos.g.control", "__eos..claims"} - self.hidden)

    def partition_count(self, topic: str) -> int:
        if topic in self.failing:
            raise self.failing[topic]
        return len(self.records.get(topic, ()))

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        return {at: (0, len(self.records[at.topic][at.partition])) for at in partitions}

    def whole(self, topic: str, partitions: Iterable[int]) -> list[Record]:
        self.read += [Partition(topic, number) for number in partitions]
        return [record for number in partitions for record in self.records[topic][number]]


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
    topics.records[THEIRS][1].append(claim("u"))
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


@pytest.mark.parametrize("newer", [False, True])
def test_what_is_no_claims_topic_of_this_version_is_told_and_does_not_pass(newer: bool) -> None:
    key, value = claim("t")
    record = (key, json.dumps({**json.loads(value), "v": 2}).encode()) if newer else (b"x", b"y")
    found = reading(Topics(g=[[record]])).origins(IDS)
    error = found.unread[THEIRS]
    assert isinstance(error, Incident)
    assert error.name == ("newer_format" if newer else "claims_topic_unreadable")
    assert found.passing is None
