"""Columns of offsets are compared as single ones are."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from replicator.offset_map.order import stands_behind
from replicator.offset_map.places import is_compared
from replicator.offset_map.verdicts import ComparedRecord
from replicator.proof.coverage import Coverage
from replicator.proof.row_places import NOWHERE, RowPlaces, inside
from tests.replicator.spark.reconcile.by_map.drawn_maps import END, PAIR, drawn_map, spans

OFFSETS = np.arange(0, END + 60, dtype=np.int64)


def test_places_and_what_is_judged_are_those_of_single_records() -> None:
    for seed in range(60):
        mapped = drawn_map(random.Random(seed))
        found = RowPlaces(PAIR, mapped, ()).source(OFFSETS)
        own, compared = RowPlaces(PAIR, mapped, ()).target(OFFSETS)
        runs = list(mapped.by_source)
        assert own.all()
        for offset in OFFSETS.tolist():
            place = mapped.by_source.place(offset)
            counts = offset < mapped.passed and (place is not None or offset >= mapped.begin)
            run = next((run for run in runs if run.first <= offset < run.end), None)
            assert found.compared[offset] == counts
            assert found.places[offset] == (place if counts and place is not None else NOWHERE)
            assert found.behind[offset] == (run is not None and stands_behind(mapped, run))
            assert compared[offset] == is_compared(mapped, offset)


def test_what_is_not_covered_is_counted_as_without_spark() -> None:
    for seed in range(60):
        mapped = drawn_map(random.Random(seed))
        if mapped.unmapped:  # where uncovered ranges overlap, a record counts in one of them
            mapped = replace(mapped, unmapped=mapped.unmapped[:1], begin=0, begin_target=0, passed=END)
        coverage = Coverage(PAIR, mapped)
        rows = RowPlaces(PAIR, mapped, coverage.uncovered)
        records = [ComparedRecord(offset, b"") for offset in range(END)]
        list(coverage.of_source(records))
        list(coverage.of_target(records))
        offsets = np.arange(END, dtype=np.int64)
        others, ahead = rows.apart(offsets)
        assert (others.sum(), ahead.sum()) == (coverage.others.records, coverage.ahead.records)
        for number, one in enumerate(coverage.uncovered):
            assert rows.unsaid_source(number, offsets).sum() == one.source.records
        unsaid = np.zeros(END, dtype=bool)
        for number in range(len(coverage.uncovered)):
            unsaid |= rows.unsaid_target(number, offsets)
        assert unsaid.any() == any(one.target.records for one in coverage.uncovered)


def test_copies_of_what_lies_before_the_flow_are_not_its_own() -> None:
    mapped = drawn_map(random.Random(1))
    rows = RowPlaces(replace(PAIR, source_origin=100), mapped, ())
    own, compared = rows.target(OFFSETS)
    for offset in OFFSETS.tolist():
        source = mapped.by_target.place(offset)
        assert own[offset] == (source is None or source >= 100)
    assert not (compared & ~own).any()


def test_offsets_in_ranges() -> None:
    for seed in range(20):
        found = spans(random.Random(seed))
        expected = [any(first <= offset < end for first, end in found) for offset in OFFSETS.tolist()]
        assert inside(OFFSETS, found).tolist() == expected
