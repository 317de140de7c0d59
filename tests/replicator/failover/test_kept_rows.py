"""The rows of a verdict as records, and back: whatever their size, and nothing that was altered is taken."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from replicator.coupling.source_transactions import HalfCopied, PartCopied, RecordRange
from replicator.failover.kept_rows import CHUNK_BYTES_MAX, CUTOVER_ROWS, chunk_key, chunks, read_back, topics_of_rows
from replicator.failover.verdict import FailedGroup, FailedPartition, FailoverVerdict, TransactionsSeen
from replicator.model.errors import ConfigError, VerdictUnreadable
from replicator.model.partition import Partition
from replicator.state.envelope import wrap
from replicator.state.failover_note import FailoverNote, decode

pytestmark = pytest.mark.tier("default")

Records = list[tuple[bytes | None, bytes | None]]


def verdict(partitions: int, groups: int, problem: str = "") -> FailoverVerdict:
    return FailoverVerdict(
        flow="f",
        source="x",
        target="y",
        generation=4,
        by="me",
        at_ms=9,
        ends_seen_ms=8,
        partitions=[
            FailedPartition(
                Partition(f"a{number}", number), Partition(f"b{number}", number), number or None, 7, problem
            )
            for number in range(partitions)
        ],
        groups=[FailedGroup(f"gröup{number}", 1, 0, number, bool(number % 2)) for number in range(groups)],
    )


def torn(number: int) -> HalfCopied:
    parts = (
        PartCopied(Partition("ä", number), RecordRange(3, 9), 9, copied=True),
        PartCopied(Partition("b", 0), RecordRange(None, None), None, copied=None),
        PartCopied(Partition("c", 0), RecordRange(7, 8), 7, copied=False),
    )
    return HalfCopied(f"id-{number}", 7, 1, 5, committed=True, parts=parts)


def note_of(found: FailoverVerdict, count: int) -> FailoverNote:
    return FailoverNote(
        generation=4, at_ms=9, by="me", source="x", target="y", ends_seen_ms=8, complete=found.complete,
        not_copied=found.not_copied, partitions=len(found.partitions), groups=len(found.groups), chunks=count,
        digest=found.digest,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("partitions", "groups", "bytes_max"), [(0, 0, 2_000), (3, 2, 10**9), (300, 200, 2_000), (20_000, 0, 10**9)]
)
def test_what_was_kept_is_read_back(partitions: int, groups: int, bytes_max: int) -> None:
    found = verdict(partitions, groups, "ä\n" if groups else "")
    records = chunks(found, 4, bytes_max)
    room = min(bytes_max, CHUNK_BYTES_MAX)
    assert all(len(key) + len(value) + 200 <= room for key, value in records)
    assert len({key for key, _ in records}) == len(records)
    before: Records = [*chunks(verdict(400, 400), 4, 2_000), *chunks(verdict(1, 1), 3, 2_000)]
    assert read_back("f", note_of(found, len(records)), [*before, *records]) == found


def test_transactions_are_read_back_and_a_verdict_without_any_has_the_digest_that_it_had() -> None:
    found = verdict(3, 2)
    assert set(found.rows()) == {"partitions", "groups"}
    seen = TransactionsSeen(9, 8, 2, "why")
    found = replace(found, transactions=tuple(torn(number) for number in range(50)), transactions_seen=seen)
    records = chunks(found, 4, 2_000)
    assert len(records) > 5
    assert read_back("f", note_of(found, len(records)), records) == found
    assert not replace(found, partitions=[found.partitions[0]._replace(position=7)]).complete


def test_rows_of_an_older_version_are_read() -> None:
    found = verdict(2, 1)
    body = {"generation": 4, "of": 1, "sha256": found.digest, "chunk": 0, **found.rows()}
    old = wrap(CUTOVER_ROWS, body, must_understand=False)
    assert read_back("f", note_of(found, 1), [(chunk_key(4, 0), old)]) == found


def test_a_row_that_no_record_holds_is_said() -> None:
    with pytest.raises(ConfigError, match=r"max\.message\.bytes"):
        chunks(verdict(1, 0, "x" * 5_000), 4, 4_000)


def test_what_is_gone_or_altered_is_not_taken() -> None:
    found = verdict(100, 3)
    records = chunks(found, 4, 3_000)
    note = note_of(found, len(records))
    with pytest.raises(VerdictUnreadable, match=f"part 2 of {len(records)}.* is gone"):
        read_back("f", note, [*records[:1], *records[2:]])
    with pytest.raises(VerdictUnreadable, match="is gone"):
        read_back("f", note, [*records, (records[0][0], None)])
    key, value = records[1]
    body = json.loads(value)
    body["partitions"][0]["position"] += 1
    with pytest.raises(VerdictUnreadable, match="SHA-256"):
        read_back("f", note, [*records, (key, json.dumps(body).encode())])
    for wrong in (
        b"",
        b"{}",
        json.dumps({**body, "kind": "other"}).encode(),
        json.dumps({**body, "groups": 3}).encode(),
    ):
        with pytest.raises(VerdictUnreadable, match="part 2"):
            read_back("f", note, [*records, (key, wrong)])
    with pytest.raises(VerdictUnreadable, match="SHA-256"):
        read_back("f", replace(note, digest="0"), list(records))


def test_the_summary_is_read_back() -> None:
    note = note_of(verdict(2, 1), 1)
    assert decode(note.encode()[1]) == note


def test_rows_without_a_note_say_what_topics_they_are_of() -> None:
    records: Records = [*chunks(verdict(3, 1), 7, 10**6), *chunks(verdict(1, 0), 4, 10**6)]
    records += [(b"cutover/9/0", b"of somebody"), (b"cutover/10/0", None), (None, b"x")]
    assert topics_of_rows(records) == {4: {"a0"}, 7: {"a0", "a1", "a2"}}
    assert topics_of_rows([]) == {}
