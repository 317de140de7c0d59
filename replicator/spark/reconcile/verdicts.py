"""What became of each record of an opened stretch: the records of both sides, compared one by one. Pure.

Runs in Spark's Python workers, one stretch at a time; nothing here knows Spark or Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from replicator.spark.reconcile.sequences import Pairs, matched

SAME, MISSING, EXTRA, ALTERED, REORDERED = "same", "missing", "extra", "altered", "reordered"
DOUBLED = "doubled"
"""An extra record that equals one of the source."""
EXPIRED = "expired_on_target"
NEVER_MINE = "expired_on_source"
COMPACTED = "compacted_on_target"
COMPACTED_SOURCE = "compacted_on_source"

UNPROVEN = "unproven"
"""Nothing that either cluster still has tells whether this is a loss; `Finding.reason` says why."""

LOSSES = (MISSING, EXTRA, DOUBLED, ALTERED, REORDERED)
"""Verdicts that say the sides disagree."""
REMOVED = (EXPIRED, NEVER_MINE, COMPACTED, COMPACTED_SOURCE)
"""Verdicts about records that retention or compaction took away on one side: no disagreement."""

PAIRS_MAX = 250_000
"""Comparisons that one gap between matches is worth, to tell altered records from missing and extra ones."""

FIELDS = ("key", "value", "headers", "timestamp")


class Record(NamedTuple):
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
    stands there.
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


Edges = tuple[tuple[int, int], tuple[int, int]]
"""Offsets of the records before and behind a stretch, of the source and of the target; -1 where there is none."""
NO_EDGES: Edges = ((-1, -1), (-1, -1))


def compare(
    source: Sequence[Record],
    target: Sequence[Record],
    edges: Edges = NO_EDGES,
    *,
    from_end: bool = False,
    compacted: bool = False,
    head_cut: bool = False,
) -> list[Finding]:
    """Verdicts on all records of a stretch that both sides should have alike.

    A record that stands elsewhere in the stretch is reordered; one more that equals a record of the source is
    doubled; of what is left between the same two matches, records that share a field are one record that was altered.

    Args:
        from_end: of several equal records the last ones correspond, as where the head of a side was cut off.
        compacted: a cleaner takes a record because a later one has its key: a common key alone then does not make two
            records one that was altered.
        head_cut: the stretch is at the beginning, and records were removed from there: so it is with common keys before
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
    lacking: dict[int, list[Record]] = defaultdict(list)
    added: dict[int, list[Record]] = defaultdict(list)
    around = (
        _around([source[index].offset for index, _ in pairs], edges[0]),
        _around([target[index].offset for _, index in pairs], edges[1]),
    )
    for gap, record in gone:
        if record not in away:
            lacking[gap].append(record)
    for gap, record in come:
        if record in here:
            continue
        if record.digest in digests:
            after, before = around[0][gap : gap + 2]
            findings.append(on_target(DOUBLED, record)._replace(other_after=after, other_before=before))
        else:
            added[gap].append(record)
    for gap in sorted({*lacking, *added}):
        for finding in _gap(lacking[gap], added[gap], compacted or (head_cut and not gap)):
            if finding.verdict in (MISSING, EXTRA):
                after, before = around[finding.verdict == MISSING][gap : gap + 2]
                finding = finding._replace(other_after=after, other_before=before)
            findings.append(finding)
    return findings


def _around(matches: Sequence[int], edges: tuple[int, int]) -> list[int]:
    """Offsets of one side between which the gaps lie."""
    return [edges[0], *matches, edges[1]]


def _pairs(source: list[int], target: list[int], from_end: bool) -> Pairs:
    if not from_end:
        return matched(source, target)
    last, last_target = len(source) - 1, len(target) - 1
    found = [(last - here, last_target - there) for here, there in reversed(matched(source[::-1], target[::-1]))]
    return _latest(found, source, target)


def _latest(pairs: Pairs, source: Sequence[int], target: Sequence[int]) -> Pairs:
    """The same pairs, each of the last records before the next pair that are equal to it: stretches are matched at both
    of their ends, and there the first of several may have been taken."""
    found: Pairs = []
    end, target_end = len(source), len(target)
    for here, there in reversed(pairs):
        digest = source[here]
        end = next(index for index in range(end - 1, here - 1, -1) if source[index] == digest)
        target_end = next(index for index in range(target_end - 1, there - 1, -1) if target[index] == digest)
        found.append((end, target_end))
    return found[::-1]


def on_source(verdict: str, record: Record) -> Finding:
    """A finding about a record that only the source has."""
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
    )


def on_target(verdict: str, record: Record) -> Finding:
    """A finding about a record that only the target has."""
    return on_source(verdict, record)._replace(
        source_offset=None, source_rank=None, target_offset=record.offset, target_rank=record.rank
    )


def _both(verdict: str, was: Record, now: Record, fields: str = "") -> Finding:
    return on_source(verdict, was)._replace(fields=fields, target_offset=now.offset, target_rank=now.rank)


def _left_over(records: Sequence[Record], taken: Sequence[int]) -> list[tuple[int, Record]]:
    """Records without a pair, each with the number of pairs before it: the gap in which it stands."""
    left: list[tuple[int, Record]] = []
    gap = 0
    for index, record in enumerate(records):
        if gap < len(taken) and taken[gap] == index:
            gap += 1
        else:
            left.append((gap, record))
    return left


def _moved(gone: Sequence[tuple[int, Record]], come: Sequence[tuple[int, Record]]) -> tuple[list[Record], list[Record]]:
    """Records that both sides have, but not in the same order: pairs, in two lists of one length."""
    waiting: dict[int, list[Record]] = defaultdict(list)
    for _, record in reversed(come):
        waiting[record.digest].append(record)
    away, here = [], []
    for _, record in gone:
        if waiting.get(record.digest):
            away.append(record)
            here.append(waiting[record.digest].pop())
    return away, here


def _gap(lacking: Sequence[Record], added: Sequence[Record], keys_repeat: bool) -> Iterator[Finding]:
    """Pairs up what an alteration may have made of one another, in order; the rest is missing or extra."""
    pairs = dict(_alike(lacking, added, keys_repeat))
    altered = set(pairs.values())
    for index, was in enumerate(lacking):
        if index in pairs:
            now = added[pairs[index]]
            yield _both(ALTERED, was, now, ",".join(_changed(was, now)))
        else:
            yield on_source(MISSING, was)
    yield from (on_target(EXTRA, record) for index, record in enumerate(added) if index not in altered)


def _alike(lacking: Sequence[Record], added: Sequence[Record], keys_repeat: bool) -> Iterator[tuple[int, int]]:
    """Index pairs in order that together share the most fields; by position where that is too much to find out."""
    rows, columns = len(lacking), len(added)
    if rows * columns > PAIRS_MAX:
        yield from (
            (index, index) for index in range(min(rows, columns)) if _shared(lacking[index], added[index], keys_repeat)
        )
        return
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    shared = [[_shared(was, now, keys_repeat) for now in added] for was in lacking]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            pair = shared[row][column]
            paired = best[row + 1][column + 1] + pair if pair else 0
            best[row][column] = max(best[row + 1][column], best[row][column + 1], paired)
    row = column = 0
    while row < rows and column < columns:
        if best[row][column] == best[row + 1][column]:
            row += 1
        elif best[row][column] == best[row][column + 1]:
            column += 1
        else:
            yield row, column
            row, column = row + 1, column + 1


def _shared(was: Record, now: Record, keys_repeat: bool) -> int:
    """How much they share of what tells records apart; absent keys and headers do not, nor keys where there may be many
    records of each."""
    value = was.value_hash is not None and was.value_hash == now.value_hash
    key = was.key_hash is not None and was.key_hash == now.key_hash
    headers = was.headers_hash is not None and was.headers_hash == now.headers_hash
    time = was.timestamp_ms == now.timestamp_ms
    return 4 * value + 2 * (key + time) + headers if value or time or (key and not keys_repeat) else 0


def _changed(was: Record, now: Record) -> list[str]:
    differ = (
        was.key_hash != now.key_hash,
        was.value_hash != now.value_hash,
        was.headers_hash != now.headers_hash,
        was.timestamp_ms != now.timestamp_ms,
    )
    return [name for name, changed in zip(FIELDS, differ, strict=True) if changed]
