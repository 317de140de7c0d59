"""What the end of a target partition says about the position that covers it."""

from __future__ import annotations

import pytest

from replicator.lane.target_check import compare_end
from replicator.model.partition import EndRecords

SOUND = [
    pytest.param(0, 0, 0, EndRecords((), 0), id="nothing was written"),
    pytest.param(10, 0, 11, EndRecords((9,), 11), id="the last record and its marker"),
    pytest.param(10, 0, 14, EndRecords((9,), 14), id="aborted records behind it"),
    pytest.param(10, 10, 11, EndRecords((), 11), id="retention took what was covered"),
    pytest.param(10, 0, 11, EndRecords((9,), 20), id="the partition has grown since its end was read"),
]
WRONG = [
    pytest.param(
        10,
        0,
        13,
        EndRecords(
            (
                9,
                11,
            ),
            -1,
        ),
        "target_has_later_records",
        id="another record behind the last",
    ),
    pytest.param(0, 5, 9, EndRecords((7,), 9), "target_has_later_records", id="records where none were written"),
    pytest.param(10, 0, 13, EndRecords((9,), 11), "target_transaction_open", id="open behind the last record"),
    pytest.param(10, 0, 10, EndRecords((), 6), "target_transaction_open", id="the commit's marker was lost"),
    pytest.param(10, 0, 14, EndRecords((), 14), "target_records_hidden", id="lost marker, then an abort"),
]


@pytest.mark.parametrize(("next_target", "log_start", "end", "last"), SOUND)
def test_sound(next_target: int, log_start: int, end: int, last: EndRecords) -> None:
    assert compare_end(next_target, log_start, end, last) is None


@pytest.mark.parametrize(("next_target", "log_start", "end", "last", "name"), WRONG)
def test_wrong(next_target: int, log_start: int, end: int, last: EndRecords, name: str) -> None:
    found = compare_end(next_target, log_start, end, last)
    assert found is not None
    assert found[0] == name
