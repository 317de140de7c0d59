"""What was left out, and what of that was copied again after all: by generations, whatever clocks say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.model.commands import Command
from replicator.model.partition import Partition
from replicator.state.claims import read_claims
from replicator.state.decisions import AdoptedSides, OperatorDecision
from replicator.state.occurrences import Closing, Ending, Occurrence
from replicator.state.signed_gaps import POSITION_SET, Adoption, adoptions, signed_gaps

AT, TO = Partition("t", 0), Partition("t.copy", 0)


def moved(number: int, first: int, end: int, generation: int, at_ms: int, name: str = POSITION_SET) -> Occurrence:
    """A position that was moved from `first` to `end`."""
    command = Command.SKIP if end > first else Command.ADOPT
    effect = Ending.SKIPPED if end > first else Ending.ADOPTED
    sides = None if end > first else AdoptedSides(source_topic_id="S", target_topic_id="T", target_end=9)
    decision = OperatorDecision(
        occurrence=f"{number:012x}",
        command=command,
        name=name,
        offset=first,
        end=end,
        by="ann",
        why="w",
        at_ms=at_ms,
        token="x",
        adopted=sides,
    )
    return Occurrence(
        id=decision.occurrence,
        target=TO,
        source=AT,
        name=name,
        detail="",
        offset=first,
        end=end,
        found_by="o",
        found_ms=at_ms,
        generation=generation,
        at_ms=at_ms,
        closing=Closing(effect=effect, by="o", at_ms=at_ms, moved=(first, end), decision=decision),
    )


@pytest.mark.parametrize("clock_ms", [-5_000, 5_000])
def test_what_comes_later_is_told_by_the_generation(clock_ms: int) -> None:
    gap, back = moved(1, 10, 20, 3, 10_000, "source_records_gone"), moved(2, 30, 14, 4, 10_000 + clock_ms)
    assert [(it.first, it.end) for it in signed_gaps([gap, back])] == [(10, 14)]
    again = moved(3, 14, 18, 6, 10_000 - 2 * clock_ms)
    assert [(it.first, it.end) for it in signed_gaps([again, gap, back])] == [(10, 14), (14, 18)]


def test_within_a_generation_what_comes_later_is_told_by_the_order_of_their_records() -> None:
    gap, back = moved(1, 10, 20, 3, 10_000, "source_truncated"), moved(2, 30, 14, 3, 4_000, "source_truncated")
    assert [(it.first, it.end) for it in signed_gaps(read([gap, back]))] == [(10, 14)], "the clock was set back"
    assert [(it.first, it.end) for it in signed_gaps(read([back, gap]))] == [(10, 20)]
    found = replace(gap, closing=None)
    assert [(it.first, it.end) for it in signed_gaps(read([found, back, gap]))] == [(10, 20)], "by their ends"


def read(occurrences: list[Occurrence]) -> tuple[Occurrence, ...]:
    """As the claims topic gives them."""
    return read_claims(it.encode() for it in occurrences).occurrences


def test_of_another_partition_nothing_is_taken() -> None:
    gap, back = moved(1, 10, 20, 3, 1), moved(2, 30, 14, 4, 2)
    other = replace(back, source=Partition("t", 1), target=Partition("t.copy", 1))
    assert [(it.first, it.end) for it in signed_gaps([gap, other])] == [(10, 20)]


def test_it_says_that_a_position_was_set() -> None:
    (gap,) = signed_gaps([moved(1, 10, 20, 3, 1)])
    assert gap.said == "source offsets 10 to 19 were left out (position set), as ann has decided: w"
    (adopted,) = adoptions([moved(2, 30, 14, 4, 2)])
    assert (adopted.offset, "(position set)" in adopted.said) == (14, True)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("end", [0, 7])
def test_what_a_new_target_topic_had_before_it_is_copied_into_is_said(both: bool, end: int) -> None:
    said = Adoption(
        occurrence="aa11",
        topic="t",
        partition=0,
        target_topic="t.copy",
        offset=0,
        incident="target_topic_recreated",
        by="anna",
        why="cleaned up",
        decided_ms=1,
        acted_ms=2,
        target_end=end,
        former_topic_id="T1",
        former_other_id="S1" if both else "",
    ).said
    assert ("target offsets below 7 of the new one were there before and are not the flow's" in said) is (end == 7)
    assert said.startswith("the target topic with the id T1 was deleted")
