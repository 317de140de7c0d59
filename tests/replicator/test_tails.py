"""What the end of a target partition says about the position that vouches for it."""

from __future__ import annotations

import pytest

from replicator.planes.records.reading import Tail
from replicator.tails import ADVICE, judge

SOUND = [
    pytest.param(0, 0, 0, Tail([], 0), id="nothing was written"),
    pytest.param(10, 0, 11, Tail([9], 11), id="the last record and its marker"),
    pytest.param(10, 0, 14, Tail([9], 14), id="aborted records behind it"),
    pytest.param(10, 10, 11, Tail([], 11), id="retention took what was vouched for"),
    pytest.param(10, 0, 11, Tail([9], 20), id="the partition has grown since its end was read"),
]
WRONG = [
    pytest.param(10, 0, 13, Tail([9, 11], -1), "target_has_later_records", id="another record behind the last"),
    pytest.param(0, 5, 9, Tail([7], 9), "target_has_later_records", id="records where none were written"),
    pytest.param(10, 0, 13, Tail([9], 11), "target_transaction_open", id="open behind the last record"),
    pytest.param(10, 0, 10, Tail([], 6), "target_transaction_open", id="the commit's marker was lost"),
    pytest.param(10, 0, 14, Tail([], 14), "target_records_hidden", id="lost marker, then an abort"),
]


@pytest.mark.parametrize(("next_target", "log_start", "end", "tail"), SOUND)
def test_sound(next_target: int, log_start: int, end: int, tail: Tail) -> None:
    assert judge(next_target, log_start, end, tail) is None


@pytest.mark.parametrize(("next_target", "log_start", "end", "tail", "name"), WRONG)
def test_wrong(next_target: int, log_start: int, end: int, tail: Tail, name: str) -> None:
    found = judge(next_target, log_start, end, tail)
    assert found is not None
    assert found.name == name
    assert name in ADVICE
