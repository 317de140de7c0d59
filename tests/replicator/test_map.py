"""Claims and repairs in the map topic."""

from __future__ import annotations

import pytest

from replicator.map import BadMap, Claim, Repair, claims, repairs
from replicator.planes.contract import Partition

CLAIM = Claim(Partition("a.or/ders", 3), Partition("orders", 3), "id", 42, 1, "me", 99)
REPAIR = Repair(CLAIM.target, CLAIM.source, ((10, 12), (15, 16)), 700, 2, 99)


def test_a_claim_round_trips() -> None:
    assert claims([CLAIM.encode()]) == {CLAIM.target: CLAIM}


def test_the_latest_claim_counts_and_a_tombstone_withdraws_it() -> None:
    key, value = CLAIM.encode()
    later = Claim(CLAIM.target, CLAIM.source, "id", 50, 2, "you", 100)
    assert claims([(key, value), later.encode()])[CLAIM.target] == later
    assert claims([(key, value), (key, None)]) == {}


def test_claims_and_repairs_stand_side_by_side() -> None:
    again = Repair(REPAIR.target, REPAIR.source, REPAIR.runs, 900, 5, 100)
    records = [REPAIR.encode(), CLAIM.encode(), again.encode()]
    assert claims(records) == {CLAIM.target: CLAIM}
    assert repairs(records) == [REPAIR, again]
    assert REPAIR.records == 3


@pytest.mark.parametrize(
    "record",
    [
        (None, b"x"),
        (b"other", b"x"),
        (REPAIR.encode()[0], None),
        (b"repair/t/0/9", REPAIR.encode()[1]),
        (REPAIR.encode()[0], REPAIR.encode()[1].replace(b"[15,16]", b"[15,15]")),
        (REPAIR.encode()[0], REPAIR.encode()[1].replace(b'"v":1', b'"v":2')),
    ],
)
def test_repairs_that_nobody_wrote_so_are_refused(record: tuple[bytes | None, bytes | None]) -> None:
    with pytest.raises(BadMap):
        repairs([record])


@pytest.mark.parametrize("record", [(None, b"x"), (b"other", b"x"), (CLAIM.encode()[0], b"{}"), (b"claim/t/x", b"{}")])
def test_foreign_records_are_refused(record: tuple[bytes | None, bytes]) -> None:
    with pytest.raises(BadMap):
        claims([record])
