"""Where the first listing's partitions begin, as records of the control topic."""

from __future__ import annotations

import json
import random

import pytest

from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.state import starts
from replicator.state.control_topic import Control, fold
from replicator.state.generation import Kind, LaneAssignment
from replicator.state.starts import TopicStarts, start_of

LISTING = {"t": 2, "u": 1}
STARTS = {"t": TopicStarts("t-1", (7, None)), "u": TopicStarts("u-1", (0,))}
Record = tuple[bytes | None, bytes | None]


def change(control: Control, kind: Kind = Kind.LIVE, **written: int) -> tuple[Control, list[Record]]:
    """The control topic after a change, and what it has written."""
    prepared = control.prepare(LaneAssignment(1), LISTING, 1, kind)
    records = [prepared, *control.apply(prepared).finish(2, **written)]
    for record in records:
        control = control.apply(record)
    return control, [(record.key, record.encode()) for record in records]


def opened(found: dict[str, TopicStarts]) -> list[Record]:
    """A control topic whose first generation was opened with these starts."""
    written: list[Record] = list(starts.encode(found))
    return change(Control(), start_records=len(written))[1] + written


def test_starts_come_back_whatever_is_changed_later() -> None:
    records = opened(STARTS)
    assert fold(records).starts() == STARTS
    for _ in range(3):
        records += change(fold(records), Kind.BACKFILL)[1]
    assert fold(records).newest == 4
    assert fold(records).starts() == STARTS
    newest = dict(records)
    assert fold(newest.items()).starts() == STARTS, "compaction keeps the last record of each key"


def test_a_flow_that_was_opened_without_them_has_none() -> None:
    """By a version that resolved them when a partition was admitted: its records don't have the field."""
    written = [(key, json.loads(value)) for key, value in change(Control())[1] if value is not None]
    old = [(key, json.dumps({k: v for k, v in body.items() if k != "start_records"}).encode()) for key, body in written]
    control = fold(old)
    assert control.starts() is None
    assert fold([*old, *change(control)[1]]).starts() is None, "nor does a later generation make them up"


def test_a_flow_that_starts_at_earliest_has_none_to_store() -> None:
    assert starts.encode({}) == []
    assert fold(opened({})).starts() == {}


@pytest.mark.parametrize("missing", [0, -1])
def test_a_record_that_is_missing_is_found_out(missing: int) -> None:
    many = {f"t{number}": TopicStarts("id", (1,) * 2_000) for number in range(40)}
    written = starts.encode(many, 20_000)
    assert len(written) > 3
    lost = written[missing]
    records = [*change(Control(), start_records=len(written))[1], *(record for record in written if record != lost)]
    with pytest.raises(Incident, match="control_topic_unreadable"):
        fold(records).starts()


@pytest.mark.parametrize(
    "value", [b"x", b"{}", b'{"v":1,"kind":"starts","must_understand":true,"topics":[["t","i",5,[1]]]}']
)
def test_what_somebody_else_wrote_is_unreadable(value: bytes) -> None:
    records = [*change(Control(), start_records=1)[1], (b"starts/0", value)]
    assert fold(records).open is not None, "who needs no start isn't kept from reading the generation"
    with pytest.raises(Incident, match="control_topic_unreadable"):
        fold(records).starts()


def test_a_newer_format_is_told() -> None:
    (key, value), *_ = starts.encode(STARTS)
    newer = json.dumps({**json.loads(value), "v": 2}).encode()
    with pytest.raises(Incident, match="newer_format"):
        fold([*change(Control(), start_records=1)[1], (key, newer)]).starts()


@pytest.mark.tier("default")
@pytest.mark.parametrize("seed", range(20))
def test_records_are_no_larger_than_the_topic_takes(seed: int) -> None:
    drawn = random.Random(seed)
    bytes_max = drawn.choice((1_000, 5_000, 100_000, starts.RECORD_BYTES_MAX))
    found = {
        "n" * drawn.randint(1, 249) + str(number): TopicStarts(
            "i" * 22,
            tuple(
                drawn.choice((None, drawn.randrange(10), drawn.randrange(2**63))) for _ in range(drawn.randrange(3_000))
            )
            or (0,),
        )
        for number in range(drawn.randrange(1, 30))
    }
    written = starts.encode(found, bytes_max)
    assert max(len(value) for _, value in written) <= bytes_max
    assert starts.decode(drawn.sample(written, len(written))) == found


def test_a_start_is_that_of_one_topic_and_not_of_its_name() -> None:
    assert start_of(STARTS, Partition("t", 0), "t-1") == 7
    assert start_of(STARTS, Partition("t", 0), "t-2") is None, "it was deleted and created again"
    assert start_of(STARTS, Partition("t", 1), "t-1") is None, "it could not be resolved"
    assert start_of(STARTS, Partition("t", 2), "t-1") is None, "it was added later"
    assert start_of(STARTS, Partition("v", 0), "v-1") is None
