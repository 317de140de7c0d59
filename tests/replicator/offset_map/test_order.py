"""Which copies are out of order: by the plainest reading, a longest sequence that ascends on both sides."""

from __future__ import annotations

import random
from array import array

import pytest

from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.order import out_of_order, stands_behind
from replicator.offset_map.run_index import MappedRun, RunIndex

pytestmark = pytest.mark.tier("default")


def mapped_of(places: dict[int, int]) -> PartitionMap:
    runs = list[MappedRun]()
    for source, place in sorted(places.items()):
        if runs and runs[-1].end == source and runs[-1].place + runs[-1].length == place:
            runs[-1] = runs[-1]._replace(length=runs[-1].length + 1)
        else:
            runs.append(MappedRun(source, 1, place))
    turned = sorted(run.turned() for run in runs)
    by_source = RunIndex.of_runs(runs, (run.turned() for run in turned))
    return PartitionMap(
        source_topic_id=bytes(16),
        begun=0,
        begin=0,
        begin_target=0,
        passed=1_000,
        next_target=1_000,
        by_source=by_source,
        by_target=RunIndex.of_runs(turned, runs),
    )


def behind_of(mapped: PartitionMap) -> list[tuple[int, int]]:
    return [
        (run.first + nth, run.place + nth)
        for run in mapped.by_source
        if stands_behind(mapped, run)
        for nth in range(run.length)
    ]


def test_what_was_repaired_is_out_of_order_and_what_it_stands_behind_is_not() -> None:
    places = {source: source for source in range(20) if source not in (5, 6)} | {5: 30, 6: 31}
    mapped = mapped_of(places)
    assert out_of_order(mapped, behind_of(mapped), []) == [(5, 30), (6, 31)]


def test_what_was_repaired_at_the_end_is_in_order() -> None:
    mapped = mapped_of({source: source for source in range(18)} | {18: 30, 19: 31})
    assert out_of_order(mapped, behind_of(mapped), []) == []


def test_a_run_that_the_map_has_elsewhere_is_in_order_where_it_truly_stands() -> None:
    mapped = mapped_of({source: source + (2 if 5 <= source < 10 else 0) for source in range(20) if source < 10})
    displaced = [(source, source) for source in range(5, 10)]
    assert out_of_order(mapped, displaced, [source for source, _ in displaced]) == []


def test_a_record_that_stands_before_its_neighbours_is_out_of_order() -> None:
    mapped = mapped_of({source: source + 10 for source in range(20)})
    assert out_of_order(mapped, [(7, 3)], [7]) == [(7, 3)]
    assert out_of_order(mapped, [(7, 17)], [7]) == []


def test_what_is_said_to_be_in_order_is_and_nothing_more_could_be() -> None:
    for seed in range(300):
        drawn = random.Random(seed)
        targets = drawn.sample(range(40), 30)
        ascending = sorted(targets[:15])
        places = dict(zip(sorted(drawn.sample(range(60), 15)), ascending, strict=True))
        mapped = mapped_of(places)
        others = sorted(drawn.sample([at for at in range(60) if at not in places], 8))
        pairs = list(zip(others, targets[15:23], strict=True))
        moved = set(out_of_order(mapped, pairs, []))
        kept = sorted([*places.items(), *(pair for pair in pairs if pair not in moved)])
        assert [target for _, target in kept] == sorted(target for _, target in kept)
        for pair in moved:  # none fits by itself and could have been kept beside all others
            assert sorted(target for _, target in sorted([*kept, pair])) != [
                target for _, target in sorted([*kept, pair])
            ]


def test_the_columns_of_a_plain_map_need_no_look_at_order() -> None:
    column = array("q", [0, 5])
    index = RunIndex(column, array("q", [5, 5]), column, ())
    assert index.ascending
    assert not mapped_of({0: 9, 1: 2}).by_source.ascending
