"""Which range is next: claims first, then the most work; one of a partition at a time; joined while nobody waits."""

from __future__ import annotations

import random

from replicator.jobs.ranges import Range
from replicator.jobs.schedule import Schedule
from replicator.model.partition import Partition

A, B, C = Partition("a", 0), Partition("b", 0), Partition("c", 0)
SEED, CASES = 7, 200


def ranges(at: Partition, offsets: int, size: int = 10, *, claimed: bool = True) -> list[Range]:
    claim = [] if claimed else [Range(at, 0, 0)]
    return claim + [Range(at, low, min(low + size, offsets)) for low in range(0, offsets, size)]


def test_the_partition_with_the_most_left_is_next_and_none_runs_twice() -> None:
    schedule = Schedule([*ranges(A, 20), *ranges(B, 30), *ranges(C, 10)])
    assert schedule.next() == Range(B, 0, 20), "behind 20 it would be A's turn"
    assert schedule.next() == Range(A, 0, 20), "behind 20 nothing is left of it"
    assert schedule.next() == Range(C, 0, 10)
    assert (schedule.next(), schedule.waiting) == (None, 0)
    schedule.ended(B, 20)
    assert schedule.next() == Range(B, 20, 30)


def test_ranges_are_joined_only_as_long_as_no_other_partition_has_more_left() -> None:
    schedule = Schedule([*ranges(A, 1_000), *ranges(B, 100)])
    assert schedule.next() == Range(A, 0, 910)
    assert schedule.next(joined=False) == Range(B, 0, 10)
    schedule.ended(A, 910)
    assert schedule.next() == Range(A, 910, 1_000), "nobody waits"


def test_nothing_is_copied_until_all_are_claimed() -> None:
    schedule = Schedule([Range(A, 0, 0), Range(B, 0, 0), *ranges(A, 50), *ranges(B, 90), *ranges(C, 70)])
    first, second = schedule.next(), schedule.next()
    assert (first, second) == (Range(B, 0, 0), Range(A, 0, 0))
    assert (schedule.next(), schedule.waiting) == (None, 0)
    schedule.ended(A, 0)
    assert schedule.next() is None, "B is not claimed yet"
    schedule.release(B)
    assert schedule.next() == Range(B, 0, 0), "its claim failed, and is tried again"
    schedule.drop(B)
    assert schedule.next() == Range(C, 0, 30), "B is left out, and holds back nobody"


def test_a_partition_to_be_looked_at_comes_first_and_holds_back_nobody() -> None:
    """It has a position, so that it is claimed; its lane is to do what follows from what was found or decided."""
    schedule = Schedule([*ranges(A, 50), *ranges(B, 90), Range(C, 7, 7)], {C})
    assert schedule.waiting == 3
    assert schedule.next() == Range(C, 7, 7)
    assert schedule.next() == Range(B, 0, 50)
    schedule.release(C)
    assert schedule.next() == Range(A, 0, 50), "what can't be done now is tried again when nothing else is left"
    assert schedule.next() == Range(C, 7, 7)
    schedule.ended(C, 7)
    assert not schedule.has(C)


def test_what_an_attempt_left_is_tried_again_from_where_it_stands() -> None:
    schedule = Schedule(ranges(A, 30))
    assert schedule.next() == Range(A, 0, 30)
    schedule.ended(A, 17)
    assert schedule.next(joined=False) == Range(A, 17, 20)
    schedule.ended(A, 20)
    assert schedule.next() == Range(A, 20, 30)
    schedule.ended(A, 31)
    assert schedule.next() is None


def test_a_partition_whose_position_is_kept_is_not_copied_meanwhile() -> None:
    schedule = Schedule([*ranges(A, 30), *ranges(B, 10)])
    schedule.hold(A)
    assert schedule.next() == Range(B, 0, 10)
    assert schedule.next() is None
    schedule.ended(A, -1)
    assert schedule.next() == Range(A, 0, 30)


def test_a_position_that_gets_old_goes_first_and_is_not_waited_for_by_a_joined_range() -> None:
    schedule = Schedule([*ranges(A, 300), *ranges(B, 200), *ranges(C, 100)])
    schedule.urge(C)
    schedule.urge(B)
    assert [schedule.next(), schedule.next(), schedule.next()] == [Range(B, 0, 10), Range(C, 0, 10), Range(A, 0, 300)]
    schedule.ended(C, 10)
    schedule.ended(B, 10)
    assert schedule.next() == Range(B, 10, 120), "it was urgent once"


def test_everything_is_copied_once_and_no_slot_is_idle_while_something_waits() -> None:
    """Tasks that take as long as their offsets: the end is never later than a task after the ideal one."""
    chance = random.Random(SEED)
    for _ in range(CASES):
        slots, sizes = chance.randint(1, 4), [chance.randint(1, 400) for _ in range(chance.randint(1, 8))]
        partitions = [Partition("t", number) for number in range(len(sizes))]
        schedule = Schedule([cut for at, size in zip(partitions, sizes, strict=True) for cut in ranges(at, size)])
        busy: dict[Partition, tuple[int, Range]] = {}
        copied = dict.fromkeys(partitions, 0)
        now = 0
        while True:
            while len(busy) < slots and (cut := schedule.next()) is not None:
                assert cut.start == copied[cut.at]
                busy[cut.at] = now + cut.end - cut.start, cut
            if not busy:
                break
            now, ended = min(busy.values())
            del busy[ended.at]
            copied[ended.at] = ended.end
            schedule.ended(ended.at, ended.end)
        assert list(copied.values()) == sizes
        assert now <= max(max(sizes), sum(sizes) / slots) + 10, (slots, sizes)
