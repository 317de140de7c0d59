"""Rows kept as columns are those that were put in."""

from __future__ import annotations

from random import Random

import pytest

from replicator.groups.decision import GroupVerdict
from replicator.groups.ownership import GroupOffset
from replicator.groups.row_columns import PartitionSeen, RowColumns, SourceRead
from replicator.groups.rows import GroupRow
from replicator.groups.shown_groups import GroupShown
from replicator.model.partition import Partition

pytestmark = pytest.mark.tier("default")


def drawn(draw: Random) -> PartitionSeen:
    read = draw.choice((GroupOffset(0), GroupOffset(2**62, "m"), GroupVerdict.NO_OFFSET, GroupVerdict.UNSTABLE))
    return PartitionSeen(
        read,
        draw.choice((GroupVerdict.IN_SYNC, *GroupVerdict)),
        draw.choice((None, 0, 2**60)),
        draw.choice((None, 0, 3)),
        draw.random() < 0.5,
        draw.choice(((), ("ahead",))),
        draw.choice(("", "why")),
    )


def row(at: int, it: PartitionSeen) -> GroupRow:
    source = it.read.offset if isinstance(it.read, GroupOffset) else None
    _, verdict, target, again, exact, notes, detail = it
    return GroupRow(Partition("t", at), Partition("t.copy", at), source, target, verdict, again, exact, notes, detail)


@pytest.mark.parametrize("seed", range(50))
def test_rows_are_as_they_were_put_in_and_each_is_replaced_by_the_next_one(seed: int) -> None:
    draw = Random(seed)
    columns, expected = RowColumns("t", "t.copy"), dict[int, PartitionSeen]()
    for _ in range(5):
        before, rows = list(columns), {at: drawn(draw) for at in draw.sample(range(20), draw.randrange(9))}
        after = columns.with_rows(rows)
        assert list(columns) == before  # whoever shows them sees what he took
        columns, expected = after, expected | rows
        assert list(columns) == [row(at, it) for at, it in sorted(expected.items())]
        reads: dict[int, SourceRead] = {at: drawn(draw).read for at in range(22)}
        differing = {at for at, read in reads.items() if at not in expected or expected[at].read != read}
        assert columns.differing(reads) == {at: reads[at] for at in differing}
        assert all(columns.target(at) == it.target for at, it in expected.items())
        assert columns.target(21) is None
    shown = GroupShown("g", "g", (columns, RowColumns("u", "u")))
    rows_shown = shown.rows
    assert (shown.partitions, shown.in_sync) == (len(expected), sum(it.in_sync for it in rows_shown))
    assert shown.again == sum(it.again or 0 for it in rows_shown if it.in_sync)
    assert all(sum(it.verdict is verdict for it in rows_shown) == n for verdict, n in shown.counts.items())
    assert sum(shown.counts.values()) == len(expected)


def test_what_would_be_moved_is_held() -> None:
    rows = {at: PartitionSeen(GroupOffset(5), verdict, 4) for at, verdict in enumerate(GroupVerdict)}
    before = RowColumns("t", "t.copy").with_rows(rows)
    after = {row.at.partition: row for row in before.held("why")}
    for at, row in enumerate(before):
        held = row.verdict is GroupVerdict.TO_COMMIT
        assert after[at] == (row._replace(verdict=GroupVerdict.HELD, detail="why") if held else row)
