"""Which partitions a proof knows of."""

from __future__ import annotations

from dataclasses import replace

from replicator.model.partition import Partition
from replicator.proof.known_partitions import taken_out
from replicator.state.claims import read_claims
from tests.replicator.lane.fakes.world import World
from tests.replicator.state.test_claims import CLAIM


def test_a_topic_that_was_taken_out_was_copied_to_where_it_was_claimed_last_whatever_clocks_say() -> None:
    first = replace(CLAIM, source=Partition("gone", 0), target=Partition("a", 0))
    last = replace(first, target=Partition("b", 0), at_ms=first.at_ms - 60_000)
    claims = read_claims(it.encode() for it in (first, last))
    assert taken_out(World().flow, claims) == {"gone": {Partition("gone", 0): Partition("b", 0)}}
