"""Which generations have copied to the target partition that is looked at, and which to one that it had before."""

from __future__ import annotations

import pytest

from replicator.model.partition import Partition
from replicator.offset_map.varints import OFFSET_MAX
from replicator.proof.former_targets import NOT_RENAMED, FormerTarget, Generations

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
