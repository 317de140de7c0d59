"""Maps of one partition, drawn by seed, as a fold would make them."""

from __future__ import annotations

import random

from replicator.model.partition import Partition, Span
from replicator.offset_map.mapped import ExpiredRange, OffsetRanges, PartitionMap, UnmappedRange
from replicator.offset_map.run_index import MappedRun, RunIndex
from replicator.proof.pairs import Pair

END = 400
PAIR = Pair(source=Partition("t", 0), target=Partition("t.copy", 0), source_range=(0, END), target_range=(0, END + 50))


def drawn_map(draw: random.Random) -> PartitionMap:
    """Runs with gaps, some of which were repaired and stand behind later ones, and all else that a map may say."""
    runs, first, place = list[MappedRun](), draw.randrange(20), draw.randrange(20)
    while first < END - 60:
        length = draw.choice((1, 1, 2, 7, 40))
        runs.append(MappedRun(first, length, place))
        first, place = first + length + draw.randrange(4), place + length + draw.randrange(4)
    for at in sorted(draw.sample(range(len(runs)), draw.choice((0, 0, 1, 3)))):  # repaired
        runs[at] = runs[at]._replace(place=place)
        place += runs[at].length
    by_target = sorted(run.turned() for run in runs)
    return PartitionMap(
        source_topic_id=bytes(16),
        begun=0,
        begin=draw.choice((0, 0, 30)),
        begin_target=draw.choice((0, 0, 30)),
        passed=draw.choice((END, END, END - 50)),
        next_target=draw.choice((END + 50, place)),
        by_source=RunIndex.of_runs(runs, [run.turned() for run in by_target]),
        by_target=RunIndex.of_runs(by_target, runs),
        unmapped=[UnmappedRange(*span, 0, END) for span in spans(draw)],
        expired=[ExpiredRange(*span, None) for span in spans(draw)],
        aside=OffsetRanges(spans(draw)),
        dropped=OffsetRanges(spans(draw)),
        gaps=OffsetRanges(spans(draw)),
        lost=OffsetRanges(spans(draw)),
        others=OffsetRanges(spans(draw)),
        truncated=OffsetRanges(spans(draw)),
        ahead=OffsetRanges(spans(draw)),
    )


def spans(draw: random.Random) -> list[Span]:
    """A few disjoint ranges, ascending; mostly none."""
    edges = sorted(draw.sample(range(END), draw.choice((0, 0, 2, 4))))
    return list(zip(edges[::2], edges[1::2], strict=True))
