"""Which generations have copied to the target partition that is looked at, and which to one that it had before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.model.partition import Partition
from replicator.offset_map.varints import OFFSET_MAX
from replicator.proof.former_targets import NOT_RENAMED, FormerTarget, Generations, claimed_since
from replicator.state.claims import Claims
from tests.replicator.state.test_claims import CLAIM
from tests.replicator.state.test_signed_gaps import AT, TO, moved

OTHER = Partition("other", 0)


def elsewhere(claimed: int, copied: int, *former: tuple[int, int]) -> list[int]:
    found = Generations(claimed, copied, tuple(FormerTarget(OTHER, *it) for it in former))
    return [number for number in range(1, 8) if found.elsewhere(number)]


@pytest.mark.parametrize(
    ("ours", "former", "expected"),
    [
        ((3, 7), (1, 2), [1, 2]),  # renamed once
        ((1, 7), (3, 4), [3, 4]),  # and back
        ((1, 2), (3, 4), [3, 4, 5, 6, 7]),  # and it hasn't run since
        ((1, 5), (2, 4), [2, 3, 4, 6, 7]),  # some of it may be ours
        ((2, 4), (1, 3), [1, 3, 5, 6, 7]),  # each of four generations is one's own
        ((1, 7), (3, OFFSET_MAX), [3, 4, 5, 6]),  # the other position is gone
        ((-1, 7), (1, 3), [1, 2, 3]),  # without a claim
    ],
)
def test_what_lies_between_anothers_claim_and_position_is_not_ours(
    ours: tuple[int, int], former: tuple[int, int], expected: list[int]
) -> None:
    assert elsewhere(*ours, former) == expected


def test_a_flow_that_was_never_renamed_has_all() -> None:
    assert not any(NOT_RENAMED.elsewhere(number) for number in range(9))
    assert elsewhere(2, 4) == []


def test_a_claim_that_a_decision_has_renewed_says_nothing_of_when_it_began() -> None:
    claim = replace(CLAIM, target=TO, source=AT, generation=6)
    assert claimed_since(Claims({TO: claim}, ()), TO) == 6
    one = moved(1, 10, 20, 4, 1_000)
    assert claimed_since(Claims({TO: claim}, (), (one,)), TO) == -1
    assert claimed_since(Claims({TO: claim}, (), (replace(one, target=OTHER),)), TO) == 6
    assert elsewhere(1, 7, (-1, 6)) == [2, 3, 4, 5, 6]
