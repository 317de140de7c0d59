"""How often each record was processed over a failover."""

from __future__ import annotations

from cli.demo.compare import ReadRecord
from cli.demo.processed import Processed, processed, times_processed


def records(*names: int) -> list[ReadRecord]:
    return [ReadRecord(b"#%d" % name, None, b"value", (), name) for name in names]


def test_what_both_sides_have_processed_counts_twice() -> None:
    found = processed(
        records(1, 2, 3, 4), records(1, 2, 3), times_processed([b"#1\n", b"#2\n", b"#2\n", b"#3\n", b"#4\n"])
    )
    assert found.good
    assert (found.once, found.again, found.skipped) == (2, 1, ())
    assert (found.not_copied, found.seen_only_there) == (1, 1)


def test_a_record_of_the_target_that_nobody_has_processed_is_skipped() -> None:
    found = processed(records(1, 2), records(1, 2), times_processed([b"#1\n"]))
    assert not found.good
    assert found.skipped == (b"#2",)


def test_a_gap_in_the_copy_is_lost_and_not_just_behind() -> None:
    found = processed(records(1, 2, 3), records(1, 3), times_processed([b"#1\n", b"#3\n"]))
    assert not found.good
    assert not found.copied.exact


def test_a_line_that_was_cut_off_says_nothing() -> None:
    assert times_processed([b"#1\n", b"#2"]) == {b"#1": 1}


def test_partitions_add_up() -> None:
    one = processed(records(1, 2), records(1), {b"#1": 1})
    other = processed(records(3), records(3), {})
    both = one + other
    assert (both.once, both.again, both.not_copied, both.skipped) == (1, 0, 1, (b"#3",))
    assert (both.copied.source, both.copied.target) == (2, 2)
    assert not both.good
    assert Processed().good
