"""Records of notes are written by hand: they are as json writes them."""

from __future__ import annotations

import json
from random import Random

import pytest

from replicator.groups.ownership import DIGEST, METADATA_MAX, GroupOffset, OwnershipNote, UnansweredCommit, noted
from replicator.state.group_notes import PARTITIONS_MAX, GroupNotes

pytestmark = pytest.mark.tier("default")

METADATA = ("", "", "m", 'say "é\\\n\0\U0001f600', "m" * (METADATA_MAX + 1))


def drawn(draw: Random) -> OwnershipNote:
    def value() -> GroupOffset:
        return noted(GroupOffset(draw.choice((0, 7, 2**62)), draw.choice(METADATA)))

    commits = tuple(UnansweredCommit(value(), draw.randrange(2**42)) for _ in range(draw.choice((0, 0, 1, 3))))
    return OwnershipNote(draw.choice((None, value())), commits)


@pytest.mark.parametrize("seed", range(20))
def test_records_are_written_as_json_writes_them(seed: int) -> None:
    draw = Random(seed)
    notes = {number: drawn(draw) for number in draw.sample(range(PARTITIONS_MAX), draw.choice((0, 1, 40)))}
    for _, value in GroupNotes().take("g", "t", notes, notes):
        body = json.loads(value)
        assert value == json.dumps(body, separators=(",", ":")).encode()
        said = {
            str(number): [last and [*last], [[*commit.value, commit.until_ms] for commit in unanswered]]
            for number, (last, unanswered) in notes.items()
        }
        assert body["partitions"] == said
        assert list(body["partitions"]) == list(said)
        assert body["v"] == (2 if DIGEST in value.decode() else 1)
