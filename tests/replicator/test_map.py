"""Claims in the map topic."""

from __future__ import annotations

import pytest

from replicator.map import BadMap, Claim, claims
from replicator.planes.contract import Partition

CLAIM = Claim(Partition("a.or/ders", 3), Partition("orders", 3), "id", 42, 1, "me", 99)


def test_a_claim_round_trips() -> None:
    assert claims([CLAIM.encode()]) == {CLAIM.target: CLAIM}


def test_the_latest_claim_counts_and_a_tombstone_withdraws_it() -> None:
    key, value = CLAIM.encode()
    later = Claim(CLAIM.target, CLAIM.source, "id", 50, 2, "you", 100)
    assert claims([(key, value), later.encode()])[CLAIM.target] == later
    assert claims([(key, value), (key, None)]) == {}


@pytest.mark.parametrize("record", [(None, b"x"), (b"other", b"x"), (CLAIM.encode()[0], b"{}"), (b"claim/t/x", b"{}")])
def test_foreign_records_are_refused(record: tuple[bytes | None, bytes]) -> None:
    with pytest.raises(BadMap):
        claims([record])
