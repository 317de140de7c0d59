"""What a failover's verdict says of partitions, and what it doesn't claim to know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from replicator.config import Flow, load_text
from replicator.coupling.source_transactions import RecordRange, SourceTransaction
from replicator.failover.contradicted import compared
from replicator.failover.facts import failed_partitions, half_copied_transactions, still_selected
from replicator.failover.said import headline
from replicator.failover.verdict import FailedGroup, FailedPartition, FailoverVerdict
from replicator.model.checkpoint import Evidence, Position, Stored, Unreadable
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.state.claims import Claim, Claims
from replicator.state.occurrences import Closing, Ending, Occurrence
from replicator.state.transaction_notes import TransactionNotes

pytestmark = pytest.mark.tier("default")

FIRST, SECOND, THIRD = (Partition("a", number) for number in range(3))
COPIES = {at: Partition("b", at.partition) for at in (FIRST, SECOND, THIRD)}


def claim(at: Partition) -> Claim:
    return Claim(COPIES[at], at, "s", "t", 0, 0, 1, "me", 1)


def position(offset: int) -> Position:
    evidence = Evidence(
        generation=1, owner="me", source_topic="a", source_cluster="c", source_topic_id="s", target_topic_id="t"
    )
    return Position(offset, evidence)


def occurrence(at: Partition, name: str, offset: int) -> Occurrence:
    return Occurrence(
        id=f"{name}-{at}", target=COPIES[at], source=at, name=name, detail="what was seen", offset=offset, end=-1,
        found_by="me", found_ms=1, generation=1, at_ms=1,
    )  # fmt: skip


def make_flow(**settings: Any) -> Flow:
    file = {"clusters": {n: {"properties": {"bootstrap.servers": f"{n}:1"}} for n in ("x", "y")}}
    flow = {"source": "x", "target": "y", "topics": ["^.*"], **settings}
    return load_text(yaml.safe_dump({**file, "flows": {"f": flow}}), env={}).flows["f"]


def verdict(*rows: FailedPartition) -> FailoverVerdict:
    return FailoverVerdict(
        flow="f", source="x", target="y", generation=4, by="me", at_ms=9, ends_seen_ms=8, partitions=rows,
        groups=[FailedGroup("g", 3, 0, 0, False)],
    )  # fmt: skip


def test_each_partition_that_was_claimed_has_a_row_whatever_is_left_of_its_position() -> None:
    claims = Claims({COPIES[at]: claim(at) for at in (FIRST, SECOND, THIRD)}, ())
    found: dict[Partition, Stored] = {
        COPIES[FIRST]: position(7),
        COPIES[SECOND]: Unreadable(Committed(3, "x"), "position_unreadable", "not ours"),
    }
    other = Partition("x.c", 0)
    rows = failed_partitions(make_flow(), claims, found, {COPIES[FIRST]: 10, COPIES[SECOND]: 5, other: 4})
    assert [(row.source, row.position, row.not_copied) for row in rows] == [
        (FIRST, 7, 3),
        (SECOND, None, None),
        (THIRD, None, None),
        (Partition("c", 0), None, None),
    ]
    assert [row.problem for row in rows] == ["", "not ours", "it has no position any more", "it was never copied"]


def test_what_the_flow_file_excludes_by_now_is_left_out_unless_it_was_named() -> None:
    rows = failed_partitions(make_flow(), Claims({}, ()), {}, {Partition("a", 0): 4, Partition("b", 0): 4})
    excluding = make_flow(exclude=["b"])
    assert [row.source.topic for row in still_selected(make_flow(), rows)] == ["a", "b"]
    assert [row.source.topic for row in still_selected(excluding, rows)] == ["a"]
    assert [row.source.topic for row in still_selected(excluding, rows, ("b",))] == ["a", "b"]


@pytest.mark.parametrize(
    ("rename", "target", "source"),
    [("{topic}", "a.b", "a.b"), ("{topic}-copy", "a-copy", "a"), ("{topic}-copy", "a", "a")],
)
def test_a_partition_that_was_never_copied_has_the_name_that_it_has_at_the_source(
    rename: str, target: str, source: str
) -> None:
    at = Partition(target, 1)
    (row,) = failed_partitions(make_flow(rename=rename), Claims({}, ()), {}, {at: 4})
    assert (row.source, row.target) == (Partition(source, 1), at)


@pytest.mark.parametrize(
    ("name", "end", "known"),
    [
        ("source_topic_recreated", 10, None),
        ("source_truncated", 950, None),
        ("target_lost_data", 1_000, None),
        ("record_too_large", 1_003, 3),
        ("source_topic_deleted", None, None),
    ],
)
def test_a_partition_that_an_incident_stops_is_never_complete_and_says_why(
    name: str, end: int | None, known: int | None
) -> None:
    """Offsets of another topic, or of a log that was cut, can't be compared with the position."""
    claims = Claims({COPIES[FIRST]: claim(FIRST)}, (), (occurrence(FIRST, name, 1_000),))
    ends = {} if end is None else {COPIES[FIRST]: end}
    (row,) = failed_partitions(make_flow(), claims, {COPIES[FIRST]: position(1_000)}, ends)
    assert (row.position, row.not_copied, row.complete) == (1_000, known, False)
    assert row.problem.startswith(f"{name}: what was seen (found by me at ")
    assert not verdict(row).complete
    assert verdict(row).unknown == (known is None)
    assert FailedPartition.of_json(row.as_json()) == row


def test_each_incident_of_a_partition_is_named_also_where_it_has_no_position_or_was_never_copied() -> None:
    open_ = occurrence(FIRST, "position_expired", -1), occurrence(FIRST, "record_too_large", 7)
    claims = Claims({COPIES[FIRST]: claim(FIRST)}, (), (*open_, occurrence(SECOND, "target_not_empty", 0)))
    ends = {COPIES[FIRST]: 10, COPIES[SECOND]: 4}
    first, second = failed_partitions(make_flow(), claims, {}, ends)
    assert ("position_expired: " in first.problem, "record_too_large: " in first.problem) == (True, True)
    assert second.problem.startswith("it was never copied; target_not_empty: ")
    notes = TransactionNotes()
    parts = {FIRST: RecordRange(5, 9), second.source: RecordRange(None, 4)}
    notes.ended[0] = SourceTransaction("id", 7, 1, 5, committed=True, parts=parts)
    (found,), _ = half_copied_transactions(notes, [first._replace(position=9), second], {})
    assert found.certain


def test_an_incident_that_was_resolved_stops_nothing() -> None:
    skipped = Closing(effect=Ending.SKIPPED, by="me", at_ms=2, moved=(999, 1_000))
    closed = occurrence(FIRST, "record_too_large", 999).closed(skipped, 1)
    claims = Claims({COPIES[FIRST]: claim(FIRST)}, (), (closed,))
    (row,) = failed_partitions(make_flow(), claims, {COPIES[FIRST]: position(1_000)}, {COPIES[FIRST]: 1_000})
    assert (row.problem, row.complete) == ("", True)


@pytest.mark.parametrize(
    ("source_id", "target_id", "target_end", "problem"),
    [
        ("s", "t", 900, "target_lost_data: "),
        ("s", "other", 1_000, "target_topic_recreated: "),
        ("other", "t", 1_000, "source_topic_recreated: "),
        ("s", "t", 1_000, ""),
        ("", "t", 1_000, ""),
        (None, "t", 1_100, ""),
    ],
)
def test_a_position_that_does_not_fit_is_found_also_where_no_lane_has_looked_since(
    source_id: str | None, target_id: str, target_end: int, problem: str
) -> None:
    stands = position(1_000)
    stands = replace(stands, evidence=replace(stands.evidence, next_target_offset=1_000))
    row = FailedPartition(FIRST, COPIES[FIRST], 1_000, 1_000)
    logs = {COPIES[FIRST]: LogEnds(target_id, 0, target_end, target_end)}
    ids = {} if source_id is None else {"a": source_id}
    (found,) = compared([row], {COPIES[FIRST]: stands}, ids, logs)
    assert found.problem.startswith(problem)
    assert found.complete == (not problem)


def test_a_log_whose_end_is_not_told_is_not_known_and_what_is_known_already_is_kept() -> None:
    untold: dict[Partition, LogEnds | ReplicatorError] = {COPIES[FIRST]: Retriable("nobody leads it")}
    row, stands = FailedPartition(FIRST, COPIES[FIRST], 10, 10), {COPIES[FIRST]: position(10)}
    (found,) = compared([row], stands, {}, untold)
    assert (found.problem, found.not_copied) == ("the target doesn't say where its log ends: nobody leads it", None)
    known = [row._replace(problem="why"), FailedPartition(SECOND, COPIES[SECOND], None, 4, "it was never copied")]
    also = known[0]._replace(problem=f"why; {found.problem}")
    assert compared(known, stands, {}, untold) == [also, known[1]]


def test_that_copies_are_gone_is_found_also_where_another_incident_stops_the_partition() -> None:
    stands = position(1_000)
    stands = replace(stands, evidence=replace(stands.evidence, next_target_offset=1_000))
    logs = {COPIES[FIRST]: LogEnds("t", 0, 900, 900)}
    row = FailedPartition(FIRST, COPIES[FIRST], 1_000, 1_003, "record_too_large: what was seen")
    (found,) = compared([row], {COPIES[FIRST]: stands}, {}, logs)
    assert found.problem.startswith("record_too_large: what was seen; target_lost_data: ")
    known = row._replace(problem="target_lost_data: what was seen")
    assert compared([known], {COPIES[FIRST]: stands}, {}, logs) == [known]


def test_of_a_transaction_nothing_is_copied_where_its_partition_never_was() -> None:
    there, never = Partition("a", 0), Partition("n", 0)
    rows = [FailedPartition(there, COPIES[FIRST], 9, 12)]
    rows += failed_partitions(make_flow(), Claims({}, ()), {}, {Partition("x.n", 0): 4})
    notes = TransactionNotes()
    parts = {there: RecordRange(5, 9), never: RecordRange(None, 4)}
    notes.ended[0] = SourceTransaction("id", 7, 1, 5, committed=True, parts=parts)
    (found,), _ = half_copied_transactions(notes, rows, {})
    assert found.certain
    notes.last.ids["a"] = "another"
    (found,), _ = half_copied_transactions(notes, rows, {COPIES[FIRST]: position(9)})
    assert not found.certain, "it was copied up to there in the topic that was there before"


@pytest.mark.parametrize(
    ("problem", "copied"),
    [
        ("target_lost_data: its offsets 900 to 999 are gone", None),
        ("record_too_large: what was seen; target_records_hidden: what was seen", None),
        ("target_topic_recreated: what was seen", None),
        ("target_topic_deleted: what was seen", None),
        ("source_truncated: what was seen", None),
        ("the target doesn't say where its log ends: nobody leads it", None),
        ("record_too_large: what was seen", True),
        ("", True),
    ],
)
def test_of_a_partition_that_has_lost_copies_its_position_says_only_what_is_not_copied(
    problem: str, copied: bool | None
) -> None:
    """A transaction isn't whole then, for all that is known, nor is it half copied for certain."""
    rows = [
        FailedPartition(FIRST, COPIES[FIRST], 1_000, 1_000, problem),
        FailedPartition(SECOND, COPIES[SECOND], 1_000, 1_000),
    ]
    notes = TransactionNotes()
    parts = {FIRST: RecordRange(900, 950), SECOND: RecordRange(900, 950)}
    notes.ended[0] = SourceTransaction("whole", 7, 1, 5, committed=True, parts=parts)
    parts = {FIRST: RecordRange(900, 950), SECOND: RecordRange(1_000, 1_050)}
    notes.ended[1] = SourceTransaction("half", 7, 1, 6, committed=True, parts=parts)
    parts = {FIRST: RecordRange(1_000, 1_050), SECOND: RecordRange(900, 950)}
    notes.ended[2] = SourceTransaction("other half", 7, 1, 7, committed=True, parts=parts)
    found, _ = half_copied_transactions(notes, rows, {})
    seen = {it.transactional_id: (it.certain, it.parts[0].copied) for it in found}
    half = {"half": (bool(copied), copied), "other half": (True, False)}
    assert seen == (half if copied else {"whole": (False, None), **half})


def test_a_transaction_is_not_whole_where_the_target_ends_below_what_was_copied_of_it() -> None:
    """No lane has looked since."""
    stands = {COPIES[at]: position(1_000) for at in (FIRST, SECOND)}
    stands = {at: replace(it, evidence=replace(it.evidence, next_target_offset=1_000)) for at, it in stands.items()}
    rows = [FailedPartition(at, COPIES[at], 1_000, 1_000) for at in (FIRST, SECOND)]
    logs = {COPIES[FIRST]: LogEnds("t", 0, 900, 900), COPIES[SECOND]: LogEnds("t", 0, 1_000, 1_000)}
    notes = TransactionNotes()
    parts = {FIRST: RecordRange(900, 950), SECOND: RecordRange(900, 950)}
    notes.ended[0] = SourceTransaction("id", 7, 1, 5, committed=True, parts=parts)
    (found,), _ = half_copied_transactions(notes, compared(rows, stands, {}, logs), dict(stands))
    assert [(part.position, part.copied) for part in found.parts] == [(1_000, None), (1_000, True)]
    assert not verdict(*compared(rows, stands, {}, logs)).complete


def test_it_is_complete_only_where_each_end_is_known_and_reached() -> None:
    reached = FailedPartition(FIRST, COPIES[FIRST], 10, 10)
    beyond, behind = reached._replace(position=12), reached._replace(position=9)
    unknown = reached._replace(end_seen=None)
    assert verdict(reached, beyond).complete
    assert not verdict(reached, behind).complete
    assert (verdict(behind, unknown).not_copied, verdict(behind, unknown).unknown) == (1, 1)
    assert not verdict(reached, unknown).complete
    assert not verdict().complete


def test_why_ends_were_never_noted_is_not_guessed() -> None:
    """The flow may sync groups, and lack a right for noting them."""
    unknown = FailedPartition(FIRST, COPIES[FIRST], 10, None)
    said = headline(replace(verdict(unknown), ends_seen_ms=0))
    assert (said.startswith("Where the source ended was never noted"), "because" in said) == (True, False)


def test_its_digest_is_of_the_rows_alone() -> None:
    one = verdict(FailedPartition(FIRST, COPIES[FIRST], 10, 10))
    assert replace(one, at_ms=99, by="you").digest == one.digest
    assert verdict(FailedPartition(FIRST, COPIES[FIRST], 9, 10)).digest != one.digest
    assert replace(one, groups=()).digest != one.digest
    assert one.as_json()["sha256"] == one.digest
