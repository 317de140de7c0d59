"""Exported positions are taken as they were written, and anything else is named with its place."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from replicator.inspect.positions import FlowPositions, exported, held
from replicator.model.checkpoint import Evidence, Position, Unreadable
from replicator.model.errors import ConfigError, Unreachable
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.state.exported_positions import imported

pytestmark = pytest.mark.tier("default")

AT, TO = Partition("orders", 1), Partition("orders.copy", 1)
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
    rows = (held(AT, TO, Position(10, EVIDENCE), None), held(Partition("gone", 0), TO, None, None))
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
    position = Position(10, EVIDENCE)
    shown = held(AT, TO, position, LogEnds("S", 0, 14, 14))
    assert (shown.position, shown.lag_records, shown.owner, shown.wrong) == (10, 4, "me", "")
    again = held(AT, TO, position, LogEnds("S2", 0, 14, 14))
    assert (again.lag_records, "source_topic_recreated" in again.wrong) == (None, True)
    away = held(AT, TO, position, Unreachable("no answer"))
    assert (away.position, away.source_end, away.wrong) == (10, None, "no answer")
    assert "position_expired" in held(AT, TO, None, None).wrong
    assert "position_unreadable" in held(AT, TO, Unreadable(Committed(3, ""), "position_unreadable", "why"), None).wrong
    assert asdict(shown)["committed_ms"] is None
