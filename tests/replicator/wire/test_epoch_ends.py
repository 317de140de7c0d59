"""Questions for the ends of leader epochs, and what is read of answers."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from embedded_broker.wire import schema
from replicator.model.fetches import EpochEnd, EpochQuestion
from replicator.model.partition import Partition
from replicator.wire import epoch_ends
from replicator.wire.response_limits import BadResponse
from tests.replicator.wire.fake_broker import response

ASKED = {
    Partition("a", 0): EpochQuestion(5, 3),
    Partition("b", 7): EpochQuestion(-1, 0),
    Partition("a", 2): EpochQuestion(9, 9),
}


@pytest.mark.parametrize("version", [3, 4])
def test_a_consumer_asks_for_each_partition(version: int) -> None:
    header = 8 + 2 + 2 + (version == 4)
    found = schema.load(epoch_ends.API, version).read(epoch_ends.request("me", version, ASKED), header)
    rows = {
        Partition(topic.topic, each.partition): (each.current_leader_epoch, each.leader_epoch)
        for topic in found.topics
        for each in topic.partitions
    }
    assert rows == ASKED
    assert found.replica_id == -1


def answer(version: int) -> bytes:
    rows = [
        {"partition": 0, "error_code": 0, "leader_epoch": 3, "end_offset": 2**40},
        {"partition": 2, "error_code": 74},
    ]
    return response(epoch_ends.API, version, 7, {"topics": [{"topic": "a", "partitions": rows}]})[8:]


@pytest.mark.parametrize("version", [3, 4])
def test_answers_are_read_by_partition(version: int) -> None:
    found = epoch_ends.read(answer(version), version)
    assert found == {Partition("a", 0): EpochEnd(0, 3, 2**40), Partition("a", 2): EpochEnd(74, -1, -1)}


@pytest.mark.parametrize("version", [3, 4])
def test_bytes_that_are_no_answer_are_refused(version: int) -> None:
    data, draw = answer(version), random.Random(1)
    for end in range(len(data)):
        with pytest.raises(BadResponse):
            epoch_ends.read(data[:end], version)
    for _ in range(500):
        altered = bytearray(data)
        altered[draw.randrange(len(data))] = draw.randrange(256)
        with suppress(BadResponse):
            epoch_ends.read(bytes(altered), version)
