"""What a comparison by the map has to say of a partition of which everything is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from integration_tests.proof.truth import Truth, multiset
from integration_tests.spark.planted import Content
from replicator.proof import verdicts as v
from replicator.proof.local_findings import ReportedRecord
from replicator.proof.outcome import PartitionOutcome

OF_OTHERS = (v.EXTRA, v.DOUBLED, v.ALTERED, v.REORDERED)
"""What somebody else's record may be called: in the place of a lost one; the only copy of another one."""
NAMED = ("shifted", "left_out", "one_place")
"""Errors of the map that show wherever contents differ."""


def wrongs(truth: Truth, outcome: PartitionOutcome, records: Sequence[ReportedRecord]) -> Iterator[str]:
    """Everything that isn't as it should be."""
    here, there = truth.here, truth.there
    lost, left = multiset(here) - multiset(there), multiset(there) - multiset(here)
    said_lost, said_left = Counter[Content](), Counter[Content]()
    for one in records:
        if one.source is not None and one.verdict != v.REORDERED:
            said_lost[here[one.source]] += 1
        if one.target is not None and one.verdict != v.REORDERED:
            said_left[there[one.target]] += 1
    copies = outcome.verdicts[v.SAME] + outcome.verdicts.get(v.REORDERED, 0)
    if truth.unmapped:
        missing = Counter(here[one.source] for one in records if one.verdict == v.MISSING and one.source is not None)
        if more := missing - lost:
            yield f"called lost, and stands: {more}"
        if outcome.agrees and truth.uncovered:
            yield "agrees, though the map doesn't cover it"
    else:
        if said_lost != lost:
            yield f"lost {said_lost}, expected {lost}"
        if said_left != left:
            yield f"left {said_left}, expected {left}"
        if copies != (multiset(here) & multiset(there)).total():
            yield f"{copies} copies"
        if outcome.unproven:
            yield f"unproven: {outcome.reasons}"
    if outcome.source_records != len(here) or outcome.target_records != len(there):
        yield f"{outcome.source_records} and {outcome.target_records} records, of {len(here)} and {len(there)}"
    yield from _each(truth, outcome, records)


def _each(truth: Truth, outcome: PartitionOutcome, records: Sequence[ReportedRecord]) -> Iterator[str]:
    """Of contents that occur once each verdict is known, where the map says what is so."""
    whole, target = multiset(truth.source), multiset(truth.target)
    unique = max(whole.values(), default=0) <= 1
    shows = truth.wrong in NAMED and unique and not truth.unmapped and truth.contradicted
    if shows and not any("doubted" in note for note in outcome.notes):
        yield f"{truth.wrong}: the map isn't doubted"
    if truth.wrong or truth.unmapped:
        return
    by_source = {one.source: one for one in records if one.source is not None}
    by_target = {one.target: one for one in records if one.target is not None}
    for at, one in truth.here.items():
        if whole[one] > 1 or target[one] > 1:
            continue
        said = by_source[at].verdict if at in by_source else v.SAME
        allowed = expected(truth, at) | ({v.SAME, v.REORDERED} if target[one] and at not in truth.places else set())
        if said not in allowed:
            yield f"source offset {at} is {said}, not {allowed}"
        if said == v.ALTERED and by_source[at].fields != truth.altered[at]:
            yield f"source offset {at}: {by_source[at].fields} altered, not {truth.altered[at]}"
    for at in truth.foreign & truth.there.keys():
        content = truth.target[at]
        if target[content] == 1 and at in by_target and by_target[at].verdict not in OF_OTHERS:
            yield f"target offset {at} is {by_target[at].verdict}"
        if target[content] == 1 and not whole[content] and at not in by_target:
            yield f"target offset {at} is nobody's, and not named"
    copied = {place: at for at, place in truth.places.items()}
    for place, at in copied.items():
        if place >= truth.target_start and at < truth.source_start and whole[truth.source[at]] == 1:
            said = by_target[place].verdict if place in by_target else "not named"
            if said != v.NEVER_MINE:
                yield f"target offset {place} is {said}: its source record has expired"


def expected(truth: Truth, at: int) -> set[str]:
    """What may be said of a source record."""
    place = truth.places.get(at)
    if at in truth.skipped:
        return {v.MISSING}
    if at in truth.lost:  # a loss that retention has overtaken can't be told
        return {v.MISSING, v.EXPIRED} if truth.target_start else {v.MISSING}
    if at in truth.altered:
        return {v.ALTERED, v.EXPIRED} if truth.target_start else {v.ALTERED}
    assert place is not None
    if place < truth.target_start:
        return {v.EXPIRED}
    if at not in truth.again:
        return {v.SAME}
    passed = any(
        other > at and there < place and other not in truth.again and there >= truth.target_start
        for other, there in truth.places.items()
        if other >= truth.source_start
    )
    return {v.REORDERED} if passed else {v.SAME, v.REORDERED}
