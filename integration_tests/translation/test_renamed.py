"""`translate` where the flow's `rename` was changed and back: no offset is translated by what the other copy has."""

from __future__ import annotations

import pytest

import replicator
from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import numbered
from integration_tests.proof.test_renamed import run

FIRST, MORE = 8, 6


@pytest.mark.tier("long", kafka="long")
def test_offsets_of_a_topic_that_was_renamed_and_back_skip_nothing(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    other = f"{copying.topic}.other"
    for value in numbered("first", FIRST):  # before it runs: they go over in one transaction
        clients.put(clients.producer(copying.source), copying.topic, value, partition=0, key=b"key")
    run(copying, copying.copy, (), last=b"first 7")
    copying.file.write(rename="{topic}.other", commit={"records_max": 1})
    run(copying, other, numbered("second", 2))
    copying.file.write(rename="{topic}.copy")
    run(copying, copying.copy, numbered("third", MORE), last=b"third 5")
    places = {bytes(it.value() or b""): it.offset() or 0 for it in clients.read(copying.target, copying.copy, 0)}
    read = [(it.offset() or 0, bytes(it.value() or b"")) for it in clients.read(copying.source, copying.topic, 0)]
    assert [value for _, value in read] == [*numbered("first", FIRST), *numbered("second", 2), *numbered("third", MORE)]
    found = replicator.translate(copying.file.path, copying.file.flow, [(copying.topic, 0, at) for at, _ in read])
    for (offset, value), answer in zip(read, found, strict=True):
        first = min(place for place in places.values() if place >= (answer.offset or 0))
        assert first == places[value], (offset, answer)
