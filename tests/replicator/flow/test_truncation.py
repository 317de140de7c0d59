"""Where copying goes on after a truncation, by what the source answers: at the cut, or refused with the reason."""

from __future__ import annotations

import pytest

from replicator.flow.truncation import cut_at
from replicator.model.commands import Command
from replicator.model.errors import Incident
from replicator.model.fetches import EpochEnd
from replicator.model.partition import LogEnds, Partition
from replicator.state.decisions import AdoptedSides, NotDecided, decide
from replicator.state.occurrences import found

AT, TO = Partition("t", 0), Partition("t.copy", 0)
CUT = found(Incident("source_truncated", "", topic="t", partition=0, offset=100), TO, AT, "me", 1, 1, "id-t", "id-copy")
DECISION = decide(CUT.id, Command.SKIP, [CUT], {}, by="ann", why="w", now_ms=1)
SOURCE, TARGET = LogEnds("id-t", 20, 130, 130), LogEnds("id-copy", 0, 150, 150)


def test_it_goes_on_where_the_epoch_of_the_last_copied_record_ends() -> None:
    taken = cut_at(CUT, DECISION, 5, EpochEnd(0, 5, 80), (SOURCE, TARGET))
    assert (taken.offset, taken.end, taken.goes_back, taken.moves) == (100, 80, True, False)
    assert taken.adopted == AdoptedSides(source_topic_id="id-t", target_topic_id="id-copy", target_end=150)
    assert taken.fits(CUT)
    assert type(taken).of(taken.content()) == taken


@pytest.mark.parametrize(
    ("answer", "source", "said"),
    [
        (EpochEnd(0, 5, 100), SOURCE, "outdated: .*nothing is lost below the position 100"),
        (EpochEnd(0, 5, 130), SOURCE, "outdated"),
        (EpochEnd(0, -1, -1), SOURCE, "not_proven: .*no record of leader epoch 5"),
        (EpochEnd(0, 5, 10), SOURCE, "not_proven: .*was cut at 10, and begins at 20"),
        (EpochEnd(0, 4, 80), SOURCE._replace(leader_epoch=4), "not_proven: .*told under leader epoch 4.* position set"),
        (EpochEnd(0, 5, 80), SOURCE._replace(topic_id="another"), "outdated: .*not the topic any more"),
    ],
)
def test_what_is_no_cut_below_the_position_is_refused(answer: EpochEnd, source: LogEnds, said: str) -> None:
    with pytest.raises(NotDecided, match=said):
        cut_at(CUT, DECISION, 5, answer, (source, TARGET))


def test_a_decision_without_both_sides_fits_nothing() -> None:
    assert not DECISION.fits(CUT)
