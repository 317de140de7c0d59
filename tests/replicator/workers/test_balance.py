"""Lanes of partitions: balanced, and the same in every process and version."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.workers.balance import BalancedLanes, lanes_auto

LISTINGS = st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 40), max_size=12)


@pytest.mark.parametrize(
    ("partitions", "lanes"), [(0, 1), (1, 1), (32, 1), (33, 2), (64, 2), (65, 3), (256, 8), (257, 8), (100_000, 8)]
)
def test_lanes_auto(partitions: int, lanes: int) -> None:
    assert lanes_auto(partitions) == lanes


@given(LISTINGS, st.integers(1, 9))
def test_no_lane_has_more_than_one_more_than_another(listing: dict[str, int], lanes: int) -> None:
    """Of all partitions, and of each topic's."""
    balanced = BalancedLanes(lanes, listing)
    whole = Counter(dict.fromkeys(range(lanes), 0))
    for topic, count in listing.items():
        of_topic = Counter(dict.fromkeys(range(lanes), 0))
        of_topic.update(balanced.lane_of(topic, partition) for partition in range(count))
        assert max(of_topic.values()) - min(of_topic.values()) <= 1
        whole += of_topic
    counts = [whole[lane] for lane in range(lanes)]
    assert max(counts) - min(counts) <= 1


@given(LISTINGS, st.integers(1, 9), st.randoms())
def test_it_depends_on_nothing_but_the_listing(listing: dict[str, int], lanes: int, random: object) -> None:
    shuffled = list(listing.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = BalancedLanes(lanes, listing), BalancedLanes(lanes, dict(shuffled))
    assert all(one.lane_of(at, 0) == other.lane_of(at, 0) for at in [*listing, "of no listing"])


def test_topics_of_the_same_hash_have_an_order_of_their_own() -> None:
    one, other = BalancedLanes(2, {"plumless": 1, "buckeroo": 1}), BalancedLanes(2, {"buckeroo": 1, "plumless": 1})
    assert zlib.crc32(b"plumless") == zlib.crc32(b"buckeroo")
    assert one.lane_of("plumless", 0) == other.lane_of("plumless", 0)
    assert one.lane_of("plumless", 0) != one.lane_of("buckeroo", 0)


def test_partitions_that_come_later_change_nothing_and_are_spread_too() -> None:
    balanced = BalancedLanes(2, {"orders": 3, "payments": 4})
    assert Counter(balanced.lane_of("payments", number) for number in range(8)) == {0: 4, 1: 4}
    assert Counter(balanced.lane_of("new", number) for number in range(4)) == {0: 2, 1: 2}


def test_it_is_what_it_was() -> None:
    """Part of the format: positions stay in their lanes over an upgrade."""
    balanced = BalancedLanes(3, {"orders": 4, "payments": 2, "users": 1})
    lanes = {topic: [balanced.lane_of(topic, number) for number in range(4)] for topic in ("orders", "payments", "new")}
    assert lanes == {"orders": [0, 1, 2, 0], "payments": [1, 2, 0, 1], "new": [0, 1, 2, 0]}


def test_a_flow_without_lanes_is_refused() -> None:
    with pytest.raises(ValueError, match="0 lanes"):
        BalancedLanes(0, {})
