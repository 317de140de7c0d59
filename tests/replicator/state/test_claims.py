"""Claims and repairs in the claims topic."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from replicator.model.partition import Partition
from replicator.state.claims import Claim, Repair, read_claims
from replicator.state.config_fault import ConfigFault
from replicator.state.control_topic import Control
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.flow_end import FlowEnd
from replicator.state.generation import Generation, Kind, Phase
from replicator.state.kept_positions import KeptPositions, kept_now

CLAIM = Claim(Partition("a.or/ders", 3), Partition("orders", 3), "id", "target-id", 5, 42, 1, "me", 99)
REPAIR = Repair(CLAIM.target, CLAIM.source, ((10, 12), (15, 16)), 700, 2, 99, "id", "target-id")


def altered(record: tuple[bytes, bytes], **fields: object) -> tuple[bytes, bytes]:
    key, value = record
    return key, json.dumps(json.loads(value) | fields).encode()


def test_a_claim_round_trips() -> None:
    found = read_claims([CLAIM.encode()])
    assert found.claims == {CLAIM.target: CLAIM}
    assert found.of_topic("a.or/ders") == (CLAIM,)
    assert found.of_topic("other") == ()


def test_the_newest_claim_counts_whichever_partition_is_read_first() -> None:
    later = replace(CLAIM, offset=50, generation=2, owner="you", at_ms=100)
    for records in ([CLAIM.encode(), later.encode()], [later.encode(), CLAIM.encode()]):
        assert read_claims(records).claims == {CLAIM.target: later}


def test_within_a_generation_the_log_says_which_is_newer_whatever_clocks_say() -> None:
    """One lane has a partition in a generation, and writes to one partition of the claims topic."""
    later = replace(CLAIM, target_topic_id="again", owner="you", at_ms=CLAIM.at_ms - 60_000)
    assert read_claims([CLAIM.encode(), later.encode()]).claims == {CLAIM.target: later}
    fault = ConfigFault(owner="me", at_ms=500, detail="why")
    over = replace(fault, at_ms=400, detail="")
    assert read_claims([fault.encode(), over.encode()]).config_fault == over


def test_who_keeps_the_positions_counts_for_the_failover_that_stands() -> None:
    kept = KeptPositions(owner="host:1:a", at_ms=5, partitions=3, generation=2)
    later = replace(kept, owner="host:2:b", at_ms=6)
    assert read_claims([CLAIM.encode()]).kept is None
    assert read_claims([kept.encode(), CLAIM.encode(), later.encode()]).kept == later
    assert json.loads(kept.encode()[1])["must_understand"] is False, "older versions ignore it"
    frozen = Control({2: Generation(2, Phase.OPEN, 1, Kind.FROZEN)})
    again = Control({2: Generation(2, Phase.CLOSED, 1, Kind.FROZEN), 4: Generation(4, Phase.OPEN, 1, Kind.FROZEN)})
    assert [kept_now(it, kept) for it in (frozen, again, Control(), None)] == [kept, None, None, None]
    assert kept_now(frozen, None) is None


def test_a_tombstone_withdraws_a_claim_or_a_repair() -> None:
    for record in (CLAIM, REPAIR):
        key, value = record.encode()
        found = read_claims([(key, value), (key, None)])
        assert (found.claims, found.repairs) == ({}, ())


def test_claims_and_repairs_stand_side_by_side() -> None:
    again = replace(REPAIR, first_target=900, generation=5, at_ms=100)
    found = read_claims([REPAIR.encode(), CLAIM.encode(), again.encode()])
    assert found.claims == {CLAIM.target: CLAIM}
    assert found.repairs == (REPAIR, again)
    assert REPAIR.records == 3


def test_a_repair_of_a_version_that_named_no_topics_is_read() -> None:
    key, value = REPAIR.encode()
    body = json.loads(value)
    del body["source_topic_id"], body["target_topic_id"]
    found = read_claims([(key, json.dumps(body).encode())])
    assert found.repairs == (replace(REPAIR, source_topic_id="", target_topic_id=""),)


def test_no_two_transactions_of_repairs_share_a_key() -> None:
    """The topic is compacted."""
    keys = {replace(REPAIR, generation=g, runs=((first, 20),)).key for g in (2, 3) for first in (10, 11)}
    assert len(keys) == 4


def test_newer_records_are_ignored_unless_they_must_be_understood() -> None:
    newer = altered(CLAIM.encode(), v=2, must_understand=False)
    assert read_claims([(b"map/x", altered(CLAIM.encode(), kind="map", must_understand=False)[1]), newer]).claims == {}
    with pytest.raises(NewerFormat):
        read_claims([altered(CLAIM.encode(), kind="decision")])


@pytest.mark.parametrize(
    "record",
    [
        (None, b"x"),
        (b"other", b"x"),
        (b"claim/a.orders/4", CLAIM.encode()[1]),
        (b"repair/t/0/9", REPAIR.encode()[1]),
        altered(REPAIR.encode(), runs=[[10, 12], [15, 15]]),
        altered(REPAIR.encode(), runs=[]),
        altered(CLAIM.encode(), target=["t"]),
        altered(CLAIM.encode(), offset="x"),
        (CLAIM.encode()[0], b'{"v": 1, "kind": "claim", "must_understand": true}'),
    ],
)
def test_what_nobody_of_us_wrote_is_refused(record: tuple[bytes | None, bytes]) -> None:
    with pytest.raises(NotOurs):
        read_claims([record])


def test_the_end_of_a_flow_stands_beside_its_claims_and_the_newest_counts() -> None:
    end = FlowEnd(kind="Incident", detail="why", exit_code=4, owner="me", at_ms=100, incident="control_topic_lost")
    later = replace(end, detail="d" * 10_000, at_ms=200)
    assert read_claims([CLAIM.encode()]).ended is None
    assert read_claims([end.encode(), CLAIM.encode()]).ended == end
    found = read_claims([end.encode(), CLAIM.encode(), later.encode()])
    assert found.claims == {CLAIM.target: CLAIM}
    assert found.ended == replace(later, detail="d" * 4_000)
    assert json.loads(end.encode()[1])["must_understand"] is False, "older versions ignore it"
