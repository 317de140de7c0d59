"""What groups wait for: no longer than it is there."""

from __future__ import annotations

from replicator.groups.hold import Hold
from replicator.model.partition import Partition

OUT, OTHER = Partition("out", 0), Partition("other", 0)


def test_what_was_read_waits_until_all_is_copied() -> None:
    hold = Hold[str]()
    hold.take("first", {OUT: 10, OTHER: 5})
    hold.take("second", {OUT: 20, OTHER: 5})
    assert hold.released({OUT: 9, OTHER: 5}) is None
    assert hold.released({OUT: 10, OTHER: 5}) == "first"


def test_nothing_is_taken_while_it_is_not_known_where_a_partition_ends() -> None:
    """What was read meanwhile may follow from what stands behind the end that was known."""
    hold = Hold[str]()
    hold.take("first", {OUT: 10}, {OTHER: "no leader"})
    assert hold.released({OUT: 10, OTHER: 5}) is None
    assert hold.why({OUT: 10}, lambda ats: {}) == "where other[0] ends at the source isn't known: no leader"
    hold.take("second", {OUT: 10, OTHER: 6})
    for _ in range(3):
        hold.take("third", {OUT: 10}, {OTHER: "no leader"})
        assert hold.behind({OUT: 10, OTHER: 5}) == [OTHER], "it isn't taken for deleted"
    assert hold.released({OUT: 10, OTHER: 6}) == "second"


def test_a_topic_that_was_deleted_is_waited_for_no_longer() -> None:
    """A broker that has just started may not know of it: so it must be missing twice in a row."""
    hold = Hold[str]()
    hold.take("first", {OUT: 10, OTHER: 5})
    hold.take("second", {OTHER: 5})
    assert hold.behind({OTHER: 5}) == [OUT]
    hold.take("third", {OUT: 10, OTHER: 5})
    hold.take("fourth", {OTHER: 5})
    assert hold.released({OTHER: 5}) is None
    hold.take("fifth", {OTHER: 5})
    assert hold.released({OTHER: 5}) == "first"
