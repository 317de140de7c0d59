"""MirrorMaker 2's offsets as Kafka Connect keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from replicator.jobs.mm2.connect_offsets import CONNECTOR, is_own_topic, read_offsets
from replicator.model.errors import ConfigError
from replicator.model.partition import Partition

Record = tuple[bytes | None, bytes | None]


def record(number: int, offset: int | None, connector: str = CONNECTOR, alias: str = "a", topic: str = "t") -> Record:
    key = json.dumps([connector, {"cluster": alias, "partition": number, "topic": topic}]).encode()
    return key, None if offset is None else json.dumps({"offset": offset}).encode()


def test_the_newest_offset_of_each_partition_counts_and_none_where_it_was_forgotten() -> None:
    records = [record(0, 5), record(1, 6), record(0, 9), record(1, None), record(2, 1, "other")]
    found = read_offsets(records, "offsets", CONNECTOR, None)
    assert (found.alias, found.last) == ("a", {Partition("t", 0): 9})


def test_one_of_several_sources_must_be_chosen() -> None:
    records = [record(0, 5), record(0, 6, alias="b")]
    with pytest.raises(ConfigError, match=r"several sources: say which .*a, b"):
        read_offsets(records, "offsets", CONNECTOR, None)
    assert read_offsets(records, "offsets", CONNECTOR, "b").last == {Partition("t", 0): 6}
    with pytest.raises(ConfigError, match="no offsets of source c; it has those of a, b"):
        read_offsets(records, "offsets", CONNECTOR, "c")


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "no offsets of connector MirrorSourceConnector$"),
        ([record(0, 5, "jdbc")], "it has those of jdbc"),
        ([(b'["file", {"filename": "x"}]', b'{"position": 3}')], "it has those of file"),
        ([(b"no json", b"x"), (None, None)], "something else than offsets"),
    ],
)
def test_offsets_of_something_else_are_refused_by_name(records: list[Record], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_offsets(records, "offsets", CONNECTOR, None)


@pytest.mark.parametrize("value", [{"offset": -1}, {"offset": "3"}, {"offset": True}, {}, [], 3])
def test_a_value_that_is_no_offset_counts_as_none(value: Any) -> None:
    key, _ = record(0, 0)
    assert read_offsets([(key, json.dumps(value).encode())], "offsets", CONNECTOR, None).last == {}


def test_its_own_topics_are_known_under_any_alias() -> None:
    own = ["heartbeats", "a.heartbeats", "a.checkpoints.internal", "mm2-offset-syncs.b.internal"]
    others = ["orders", "a.orders", "mm2-orders", "my-heartbeats", "internal"]
    assert [name for name in own if not is_own_topic(name)] == []
    assert [name for name in others if is_own_topic(name)] == []
