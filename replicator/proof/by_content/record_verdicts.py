"""What became of each record of an opened range: the records of both sides, compared one by one. Pure.

Runs in Spark's Python workers, one range at a time; nothing here knows Spark or Kafka.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from replicator.proof.by_content.names import names
from replicator.proof.by_content.sequences import IndexPairs, matched
from replicator.proof.verdicts import DOUBLED, EXTRA, MISSING, REORDERED, SAME


class ReadRecord(NamedTuple):
    """One record of one side. Hashes are None where the field is null (headers: where there are none).

    `rank` counts the committed records of the side's partition from the start of the compared range.
    """

    rank: int
    offset: int
    timestamp_ms: int
    digest: int
    key_hash: int | None
    value_hash: int | None
    headers_hash: int | None
    key: bytes | None


class Finding(NamedTuple):
    """A verdict on one record; with SAME on `records` of them, the ranks being those of the first pair.

    Offsets and ranks are None on the side that does not have the record. For one that only one side has,
    `other_after` and `other_before` are the offsets on the other side between which it would stand, -1 where nothing
    stands there. `guessed`: another verdict is as likely, see `alterations`.

    For `alterations` only: hashes of value and headers; `place`, the same number for what stands between the same two
    matches, of both sides; `keys_repeat`: there a common key alone does not make two records one that was altered;
    `repeats`: which of its SIGNS another record of its side of the range has, a bit each.
    """

    verdict: str
    records: int
    fields: str = ""
    source_offset: int | None = None
    target_offset: int | None = None
    source_rank: int | None = None
    target_rank: int | None = None
    timestamp_ms: int | None = None
    digest: int | None = None
    key_hash: int | None = None
    tombstone: bool = False
    key: bytes | None = None
    other_after: int = -1
    other_before: int = -1
    reason: str = ""
    guessed: bool = False
    value_hash: int | None = None
    headers_hash: int | None = None
    place: int = -1
    keys_repeat: bool = False
    repeats: int = 0


RECORD, FINDING = names(ReadRecord), names(Finding)
"""The fields' names, by which frames have them as columns."""
ONLY_ALTERATIONS = (FINDING.value_hash, FINDING.headers_hash, FINDING.place, FINDING.keys_repeat, FINDING.repeats)
"""Fields of a finding that nobody needs any more once altered records are known."""
SIDES = (FINDING.source_offset, FINDING.target_offset, FINDING.source_rank, FINDING.target_rank)
"""Fields of a finding that one side has by itself."""
SIGNS = (
    (FINDING.key_hash, FINDING.value_hash),
    (FINDING.key_hash, FINDING.timestamp_ms),
    (FINDING.value_hash, FINDING.timestamp_ms),
)
"""Two fields that two records have in common if one of them is the other with its third field altered."""
PLACES_BITS = 32
"""The number of a range, and so many bits for the number of a gap between two matches in it."""
Edges = tuple[tuple[int, int], tuple[int, int]]
"""Offsets of the records before and behind a range, of the source and of the target; -1 where there is none."""
NO_EDGES: Edges = ((-1, -1), (-1, -1))


def compare(
    source: Sequence[ReadRecord],
    target: Sequence[ReadRecord],
    edges: Edges = NO_EDGES,
    *,
    number: int = 0,
    from_end: bool = False,
    compacted: bool = False,
    prefix_cut: bool = False,
) -> list[Finding]:
    """Give verdicts on all records of a range that both sides should have alike, by equality alone.

    A record that stands elsewhere in the range is reordered; one more that equals a record of the source is
    doubled. What is left is missing and extra, until all ranges of the partition are known: see `resolve` and
    `alterations`.

    Args:
        number: of the range in its partition.
        from_end: of several equal records the last ones correspond, as where the beginning of a side was cut off.
        compacted: a cleaner takes a record because a later one has its key: a common key alone then does not make two
            records one that was altered. And the offsets between which a record would stand are those of records that
            no other one equals: between two of them empty offsets say whether something was compacted.
        prefix_cut: the range is at the beginning, and records were removed from there: so it is with common keys before
            the first match.
    """
    source, target = sorted(source), sorted(target)
    pairs = _pairs([record.digest for record in source], [record.digest for record in target], from_end)
    findings = []
    if pairs:
        first = source[pairs[0][0]], target[pairs[0][1]]
        findings.append(Finding(SAME, len(pairs), source_rank=first[0].rank, target_rank=first[1].rank))
    gone, come = _left_over(source, [left for left, _ in pairs]), _left_over(target, [right for _, right in pairs])
    moved_away, moved_here = _moved(gone, come)
    findings += [_both(REORDERED, was, now) for was, now in zip(moved_away, moved_here, strict=True)]
    digests = {record.digest for record in source}
    away, here = set(moved_away), set(moved_here)
    known = _unlike(pairs, source, target) if compacted else [True] * len(pairs)
    around = (
        _around([source[index].offset for index, _ in pairs], known, edges[0]),
        _around([target[index].offset for _, index in pairs], known, edges[1]),
    )
    repeats = _repeats(source), _repeats(target)
    for gap, record in gone:
        if record not in away:
            after, before = around[1][gap]
            found = on_source(MISSING, record)._replace(other_after=after, other_before=before)
            findings.append(_placed(found, number, gap, compacted or (prefix_cut and not gap), repeats[0]))
    for gap, record in come:
        if record not in here:
            after, before = around[0][gap]
            verdict = DOUBLED if record.digest in digests else EXTRA
            found = on_target(verdict, record)._replace(other_after=after, other_before=before)
            findings.append(_placed(found, number, gap, compacted or (prefix_cut and not gap), repeats[1]))
    return findings


def sign(record: ReadRecord | Finding, fields: tuple[str, str]) -> tuple[int, int] | None:
    """Return what the record has of two fields; None where one of them is null."""
    one, other = (getattr(record, name) for name in fields)
    return None if one is None or other is None else (one, other)


def _repeats(records: Sequence[ReadRecord]) -> list[set[tuple[int, int]]]:
    """Return which signs of each kind several of these records have."""
    found: list[set[tuple[int, int]]] = []
    for fields in SIGNS:
        counts = Counter(one for record in records if (one := sign(record, fields)) is not None)
        found.append({one for one, times in counts.items() if times > 1})
    return found


def _placed(
    finding: Finding, number: int, gap: int, keys_repeat: bool, repeats: Sequence[set[tuple[int, int]]]
) -> Finding:
    bits = sum(1 << bit for bit, fields in enumerate(SIGNS) if sign(finding, fields) in repeats[bit])
    return finding._replace(place=number << PLACES_BITS | gap, keys_repeat=keys_repeat, repeats=bits)


def _unlike(pairs: IndexPairs, source: Sequence[ReadRecord], target: Sequence[ReadRecord]) -> list[bool]:
    """Tell which pairs are of records that no other one of the range equals: those of equal ones may be other pairs."""
    here, there = (Counter(record.digest for record in side) for side in (source, target))
    return [here[source[index].digest] == there[source[index].digest] == 1 for index, _ in pairs]


def _around(matches: Sequence[int], known: Sequence[bool], edges: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the offsets of one side between which each gap lies: those of the nearest matches that are `known`."""
    before, after = [edges[0]], [edges[1]]
    for offset, is_known in zip(matches, known, strict=True):
        before.append(offset if is_known else before[-1])
    for offset, is_known in zip(reversed(matches), reversed(known), strict=True):
        after.append(offset if is_known else after[-1])
    return list(zip(before, reversed(after), strict=True))


def _pairs(source: list[int], target: list[int], from_end: bool) -> IndexPairs:
    if not from_end:
        return matched(source, target)
    last, last_target = len(source) - 1, len(target) - 1
    found = [(last - here, last_target - there) for here, there in reversed(matched(source[::-1], target[::-1]))]
    return _latest(found, source, target)


def _latest(pairs: IndexPairs, source: Sequence[int], target: Sequence[int]) -> IndexPairs:
    """Return the same pairs, each of the last records before the next pair that are equal to it: ranges are matched at
    both of their ends, and there the first of several may have been taken."""
    found: IndexPairs = []
    end, target_end = len(source), len(target)
    for here, there in reversed(pairs):
        digest = source[here]
        end = next(index for index in range(end - 1, here - 1, -1) if source[index] == digest)
        target_end = next(index for index in range(target_end - 1, there - 1, -1) if target[index] == digest)
        found.append((end, target_end))
    return found[::-1]


def on_source(verdict: str, record: ReadRecord) -> Finding:
    """Make a finding about a record that only the source has."""
    return Finding(
        verdict,
        1,
        source_offset=record.offset,
        source_rank=record.rank,
        timestamp_ms=record.timestamp_ms,
        digest=record.digest,
        key_hash=record.key_hash,
        tombstone=record.value_hash is None,
        key=record.key,
        value_hash=record.value_hash,
        headers_hash=record.headers_hash,
    )


def on_target(verdict: str, record: ReadRecord) -> Finding:
    """Make a finding about a record that only the target has."""
    return on_source(verdict, record)._replace(
        source_offset=None, source_rank=None, target_offset=record.offset, target_rank=record.rank
    )


def _both(verdict: str, was: ReadRecord, now: ReadRecord) -> Finding:
    return on_source(verdict, was)._replace(target_offset=now.offset, target_rank=now.rank)


def _left_over(records: Sequence[ReadRecord], taken: Sequence[int]) -> list[tuple[int, ReadRecord]]:
    """Return the records without a pair, each with the number of pairs before it: the gap in which it stands."""
    left: list[tuple[int, ReadRecord]] = []
    gap = 0
    for index, record in enumerate(records):
        if gap < len(taken) and taken[gap] == index:
            gap += 1
        else:
            left.append((gap, record))
    return left


def _moved(
    gone: Sequence[tuple[int, ReadRecord]], come: Sequence[tuple[int, ReadRecord]]
) -> tuple[list[ReadRecord], list[ReadRecord]]:
    """Return the records that both sides have, but not in the same order: pairs, in two lists of one length."""
    waiting: dict[int, list[ReadRecord]] = defaultdict(list)
    for _, record in reversed(come):
        waiting[record.digest].append(record)
    away, here = [], []
    for _, record in gone:
        if waiting.get(record.digest):
            away.append(record)
            here.append(waiting[record.digest].pop())
    return away, here
