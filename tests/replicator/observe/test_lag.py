"""Lag: what is known of the source's ends, in records and in seconds since an end was first seen."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.kafka.offset_questions import EARLIEST, ListedOffset, ListedOffsets, Wanted
from replicator.model.errors import Unreachable
from replicator.model.partition import Partition
from replicator.observe.lag import KNOWN_INTERVALS, SAMPLES_MAX, EndSamples, Lag, LagWatch

A, B = Partition("t", 0), Partition("t", 1)
INTERVAL_S = 5.0


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.s = 100.0

    def now_s(self) -> float:
        return self.s

    def now_ms(self) -> int:
        return round(self.s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.s += timeout_s
        return event.is_set()


class Source:
    """Answers for the ends of its partitions: last stable offset, high watermark; an error where there are none."""

    def __init__(self) -> None:
        self.ends: dict[Partition, tuple[int, int]] = {}
        self.starts: dict[Partition, int] = {}
        self.closed = False

    def list_offsets(self, partitions: Collection[Partition], wanted: Sequence[Wanted], **_: Any) -> Source:
        self._asked, self._wanted = partitions, wanted
        return self

    def poll(self, timeout_s: float) -> bool:
        return True

    def values(self) -> Sequence[ListedOffsets]:
        return [
            {
                at: ListedOffset(self._offset(at, each), -1) if at in self.ends else Unreachable("away")
                for at in self._asked
            }
            for each in self._wanted
        ]

    def _offset(self, at: Partition, wanted: Wanted) -> int:
        return self.starts[at] if wanted == EARLIEST else self.ends[at][0 if wanted.stable else 1]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source() -> Source:
    return Source()


def watch(source: Source, clock: Clock, positions: Mapping[Partition, int | None]) -> LagWatch:
    return LagWatch(lambda: source, lambda: positions, clock, INTERVAL_S)  # type: ignore[arg-type, return-value]


def ask(watched: LagWatch, source: Source) -> None:
    watched.ask(source, threading.Event())  # type: ignore[arg-type]


def test_records_up_to_the_stable_end_are_lag_and_those_behind_it_are_held_back(source: Source, clock: Clock) -> None:
    source.ends = {A: (100, 130), B: (7, 7)}
    watched = watch(source, clock, {A: 90, B: 7})
    ask(watched, source)
    clock.s += 3
    assert watched.lags({A: 90, B: 7}) == {A: Lag(10, 3.0, 30), B: Lag(0, 0.0, 0)}


def test_seconds_are_since_the_end_was_seen_that_is_not_copied(source: Source, clock: Clock) -> None:
    positions: dict[Partition, int | None] = {A: 0}
    watched = watch(source, clock, positions)
    for end in (0, 10, 20, 30):
        source.ends = {A: (end, end)}
        ask(watched, source)
        clock.s += 5
    assert watched.lags({A: 0})[A].seconds == 15.0  # 10 was seen 15 s ago
    assert watched.lags({A: 10})[A].seconds == 10.0
    assert watched.lags({A: 19})[A].seconds == 10.0
    assert watched.lags({A: 30})[A].seconds == 0.0


def test_what_is_not_answered_is_unknown(source: Source, clock: Clock) -> None:
    source.ends = {A: (5, 5), B: (5, 5)}
    watched = watch(source, clock, {A: 5, B: 4})
    ask(watched, source)
    del source.ends[A]
    ask(watched, source)
    assert watched.lags({A: 5, B: 4}) == {B: Lag(1, 0.0, 0)}
    source.ends = {}
    clock.s += INTERVAL_S * KNOWN_INTERVALS + 1
    ask(watched, source)
    assert watched.lags({A: 5, B: 4}) == {}


def test_an_old_answer_is_forgotten(source: Source, clock: Clock) -> None:
    source.ends = {A: (5, 5)}
    watched = watch(source, clock, {A: 5})
    ask(watched, source)
    clock.s += INTERVAL_S * KNOWN_INTERVALS + 1
    assert watched.lags({A: 5}) == {}


def test_without_a_position_all_of_the_log_is_left(source: Source, clock: Clock) -> None:
    source.ends, source.starts = {A: (105, 106), B: (9, 9)}, {A: 100}
    watched = watch(source, clock, {A: None, B: 7})
    ask(watched, source)
    clock.s += 2
    assert watched.lags({A: None, B: 7}) == {A: Lag(5, 2.0, 1), B: Lag(2, 2.0, 0)}
    assert watched.lags({A: None, B: None}) == {A: Lag(5, 2.0, 1)}, "whose position has just gone"


def test_a_bug_ends_the_watch_and_is_told(source: Source, clock: Clock) -> None:
    told: list[str] = []

    class Log:
        def exception(self, event: str) -> None:
            told.append(event)

    watched = LagWatch(lambda: source, lambda: 1 / 0, clock, INTERVAL_S)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        watched.run(threading.Event(), Log())  # type: ignore[arg-type]
    assert told == ["lag_unknown"]
    assert source.closed


@given(steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=60))
def test_samples_say_when_an_end_was_first_seen(steps: list[tuple[int, int]]) -> None:
    """Against all that was seen: ends grow, the position follows, each by any number at a time."""
    samples, end, position = EndSamples(), 0, 0
    seen: list[tuple[float, int]] = []
    for now, (grown, copied) in enumerate(steps):
        end += grown
        samples.add(float(now), end, position)
        seen.append((float(now), end))
        position = min(end, position + copied)
        assert samples.behind_since_s(position) == next((at for at, each in seen if each > position), None)


@pytest.mark.tier("default")
def test_samples_are_bounded_and_the_oldest_stays_exact() -> None:
    samples = EndSamples()
    for now in range(10 * SAMPLES_MAX):
        samples.add(float(now), now + 1, 0)
    assert len(samples.seen) <= SAMPLES_MAX
    assert samples.behind_since_s(0) == 0.0
    newest = samples.behind_since_s(10 * SAMPLES_MAX - 1)
    assert newest == 10 * SAMPLES_MAX - 1


def test_a_log_that_was_cut_begins_anew() -> None:
    samples = EndSamples()
    samples.add(1.0, 100, 50)
    samples.add(2.0, 20, 10)
    assert samples.behind_since_s(10) == 2.0


class OneAway(Source):
    """A source of which one broker gives no answer: what the others say is there at once, and that is awaited."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def poll(self, timeout_s: float) -> bool:
        self._clock.s += timeout_s
        return False


def test_a_broker_without_an_answer_leaves_the_lag_of_others_known_all_the_time(clock: Clock) -> None:
    away = OneAway(clock)
    away.ends = {A: (5, 5)}
    watched = watch(away, clock, {A: 3, B: 3})
    ask(watched, away)
    for _ in range(3):
        clock.s += INTERVAL_S
        assert A in watched.lags({A: 3, B: 3})
        before_s = clock.s
        ask(watched, away)
        assert clock.s - before_s + INTERVAL_S < INTERVAL_S * KNOWN_INTERVALS
