"""Occurrences of incidents in the claims topic: open, brought up to date, closed; never open again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.model.commands import Command
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.state.claims import read_claims
from replicator.state.decisions import OperatorDecision
from replicator.state.envelope import NotOurs
from replicator.state.occurrences import Closing, Ending, Occurrence, found

SOURCE, TARGET = Partition("t", 3), Partition("a/copy", 3)
GONE = Incident("source_records_gone", "10 to 19", topic="t", partition=3, offset=10, end=20)
OPEN = found(GONE, TARGET, SOURCE, "me", 2, 1_000)
DECISION = OperatorDecision(
    occurrence=OPEN.id,
    command=Command.SKIP,
    name=OPEN.name,
    offset=10,
    end=20,
    by="ann",
    why="seen",
    at_ms=5,
    token="x",
)
SKIPPED = Closing(effect=Ending.SKIPPED, by="me", at_ms=2_000, moved=(10, 20), decision=DECISION)


def test_it_says_what_was_found_and_reads_back() -> None:
    assert read_claims([OPEN.encode()]).occurrences == (OPEN,)
    assert (OPEN.offset, OPEN.end, OPEN.is_open, OPEN.moved) == (10, 20, True, None)
    it = OPEN.incident
    assert (it.name, it.topic, it.partition, it.offset, it.end) == ("source_records_gone", "t", 3, 10, 20)
    assert it.detail == "10 to 19 (found by me at 1970-01-01T00:00:01+00:00)"


def test_closed_it_says_how_and_where_the_position_went_and_by_whose_decision() -> None:
    closed = OPEN.closed(SKIPPED, 3)
    assert (closed.id, closed.key, closed.generation, closed.at_ms) == (OPEN.id, OPEN.key, 3, 2_000)
    for records in ([OPEN, closed], [closed, OPEN]):  # lanes may write to different partitions
        (read,) = read_claims(it.encode() for it in records).occurrences
        assert (read, read.moved, read.closing) == (closed, (10, 20), SKIPPED)
    assert read_claims([closed.encode()]).open_occurrences() == {}


def test_what_has_ended_neither_ends_again_nor_is_found_again() -> None:
    closed = OPEN.closed(Closing(effect=Ending.GONE, by="me", at_ms=2_000), 2)
    with pytest.raises(ValueError, match="closed before"):
        closed.closed(SKIPPED, 2)
    assert not closed.is_of(GONE)
    with pytest.raises(ValueError, match="not source_records_gone"):
        closed.found_again(GONE, 2, 3_000)


@pytest.mark.parametrize(
    ("effect", "moved"), [(Ending.SKIPPED, None), (Ending.SET_ASIDE, None), (Ending.RETRIED, (1, 2))]
)
def test_what_moves_the_position_says_so_and_nothing_else_does(effect: Ending, moved: tuple[int, int] | None) -> None:
    with pytest.raises(ValueError, match="has moved"):
        Closing(effect=effect, by="me", at_ms=1, moved=moved)


def test_found_again_it_keeps_its_id_and_is_brought_up_to_date() -> None:
    assert OPEN.found_again(GONE, 2, 1_500) is None
    grown = Incident("source_records_gone", "10 to 29", topic="t", partition=3, offset=10, end=30)
    again = OPEN.found_again(grown, 3, 900)  # of a process whose clock is behind
    assert again is not None
    assert (again.id, again.detail, again.end, again.found_ms) == (OPEN.id, "10 to 29", 30, 1_000)
    assert read_claims([OPEN.encode(), again.encode()]).occurrences == (again,)
    elsewhere = Incident("source_records_gone", "11 to 29", topic="t", partition=3, offset=11, end=30)
    assert not OPEN.is_of(elsewhere)


def test_of_several_of_a_partition_the_last_one_comes_first() -> None:
    refused = found(Incident("record_refused", "no", topic="t", partition=3, offset=9), TARGET, SOURCE, "me", 2, 2_000)
    assert refused.end == 10, "of one record: what follows it"
    assert read_claims([OPEN.encode(), refused.encode()]).open_occurrences() == {TARGET: [refused, OPEN]}


def test_ids_are_never_the_same() -> None:
    assert len({found(GONE, TARGET, SOURCE, "me", 2, 1_000).id for _ in range(1_000)}) == 1_000


def test_a_record_that_is_not_of_this_program_is_told() -> None:
    key, value = OPEN.encode()
    with pytest.raises(NotOurs):
        read_claims([(key + b"0", value)])
    with pytest.raises(NotOurs):
        read_claims([(key, value.replace(b'"offset":10', b'"offset":"ten"'))])


def test_fields_are_part_of_the_format() -> None:
    closed = OPEN.closed(SKIPPED, 2)
    assert isinstance(closed, Occurrence)
    key, value = replace(closed, id="0123456789ab").encode()
    assert key == b"occurrence/a/copy/3/0123456789ab"
    assert b'"kind":"occurrence","must_understand":false' in value
    assert b'"closed":{"effect":"skipped","by":"me","at_ms":2000,"moved":[10,20],"decision":{"occurrence":' in value
