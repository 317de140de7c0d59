"""Exported positions are taken as they were written, and anything else is named with its place."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from replicator.inspect.positions import FlowPositions, exported, held
from replicator.model.checkpoint import Evidence, Position, Unreadable
from replicator.model.errors import ConfigError, TopicMissing, Unreachable
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.state.claims import Claim
from replicator.state.exported_positions import imported

pytestmark = pytest.mark.tier("default")

AT, TO, GONE = Partition("orders", 1), Partition("orders.copy", 1), Partition("gone", 0)
CLAIM = Claim(TO, AT, "S", "T", 0, 5, 3, "me", 0, source_cluster="c")
EVIDENCE = Evidence(
    generation=3,
    owner="me",
    source_topic="orders",
    source_cluster="c",
    source_topic_id="S",
    target_topic_id="T",
    next_target_offset=20,
    count=15,
)


def document(**changes: Any) -> dict[str, Any]:
    rows = (held(CLAIM, Position(10, EVIDENCE), None, None), held(replace(CLAIM, source=GONE), None, None, None))
    found = FlowPositions(
        flow="f", source="a", target="b", generation=3, runs="live", target_cluster="C", partitions=rows
    )
    return {**exported(found, 7), **changes}


def test_what_is_written_is_read() -> None:
    (it,) = imported(document(), "f", "x.json")
    assert (it.source, it.offset, it.source_topic_id, it.target_topic_id) == (AT, 10, "S", "T")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "holds no exported positions"),
        (document(format="other"), "holds no exported positions"),
        (document(version=2), "version 2, this program knows 1"),
        (document(flow="g"), "flow 'g', not of f"),
        (document(positions=[]), "positions has none"),
        (document(positions=[3]), r"positions\[0\] is no object"),
        (document(positions=[{**document()["positions"][0], "offset": -1}]), r"positions\[0\].offset is -1"),
        (document(positions=[{**document()["positions"][0], "offset": True}]), r"positions\[0\].offset is True"),
        (document(positions=[{"topic": "t"}]), r"positions\[0\].source_topic_id is None"),
    ],
)
def test_anything_else_is_refused(found: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(found, "f", "x.json")


def test_a_partition_is_shown_with_what_is_known_of_it() -> None:
    position, here, there = Position(10, EVIDENCE), LogEnds("S", 2, 14, 14), LogEnds("T", 0, 20, 20)
    shown = held(CLAIM, position, here, there, "c")
    assert (shown.position, shown.lag_records, shown.owner, shown.wrong) == (10, 4, "me", "")
    again = held(CLAIM, position, here._replace(topic_id="S2"), there, "c")
    assert (again.lag_records, "source_topic_recreated" in again.wrong) == (12, True)
    again = held(CLAIM, position, here, there._replace(topic_id="T2"), "c")
    assert (again.lag_records, "target_topic_recreated" in again.wrong) == (12, True)
    away = held(CLAIM, position, Unreachable("no answer"), there)
    assert (away.position, away.source_end, away.lag_records, away.wrong) == (10, None, None, "no answer")
    foreign = held(CLAIM, Unreadable(Committed(3, ""), "position_unreadable", "why"), here, there, "c")
    assert (foreign.position, foreign.lag_records, "position_unreadable" in foreign.wrong) == (None, None, True)
    assert asdict(shown)["committed_ms"] is None


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (LogEnds("S", 2, 14, 14), LogEnds("T", 0, 20, 20), "position_expired: "),
        (LogEnds("S", 2, 14, 14), LogEnds("T2", 0, 0, 0), "target_topic_recreated: "),
        (LogEnds("S2", 2, 14, 14), LogEnds("T2", 0, 0, 0), "target_topic_recreated: "),
        (LogEnds("S2", 2, 14, 14), LogEnds("T", 0, 20, 20), "source_topic_recreated: "),
        (LogEnds("S", 2, 14, 14), TopicMissing("no such topic"), "target_topic_deleted: "),
        (LogEnds("S", 2, 14, 14), Unreachable("no answer"), "there is none, and why isn't known: no answer"),
    ],
)
def test_a_partition_without_a_position_is_shown_with_what_status_says_of_it(
    source: LogEnds, target: object, said: str
) -> None:
    shown = held(CLAIM, None, source, target, "c")
    assert (shown.position, shown.source_end, shown.lag_records) == (None, 14, 12)
    assert shown.wrong.startswith(said)
    assert held(CLAIM, None, Unreachable("away"), target).lag_records is None
