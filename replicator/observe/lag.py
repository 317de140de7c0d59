"""How far a flow is behind its source, in records and in seconds: asks the source's brokers for the ends of its logs.

One thread for each flow, also where metrics are off: the log's summaries tell it. Lag in seconds doesn't come from the
records' timestamps, which producers choose: it is how long ago the source had an end that isn't copied yet, as this
process saw it. So it is exact to the interval between two questions, and begins at zero when the process begins.

Invariant: what couldn't be asked is unknown, never zero. An answer that is older than `KNOWN_INTERVALS` intervals is
forgotten.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import structlog

from replicator.kafka.offset_questions import EARLIEST, LATEST, STABLE, ListedOffset, Wanted
from replicator.kafka.topic_questions import TopicQuestions
from replicator.lane.ports import Clock
from replicator.model.partition import Partition

KNOWN_INTERVALS = 3
ANSWER_INTERVALS = 1.5
"""For so long an answer is awaited: a broker that gives none must not let those of the others grow too old."""
SAMPLES_MAX = 512
"""Ends that are kept of a partition; of two that are closest in time one goes, so that the oldest stays exact."""
SLICE_S = 0.2  # between two looks at whether the process ends


@dataclass(frozen=True, slots=True)
class Ends:
    """The last stable offset and the high watermark of a source partition."""

    stable: int
    high: int


@dataclass(frozen=True, slots=True)
class Lag:
    """Of one partition: what a read_committed consumer would still have to read, since when, and how many records an
    open transaction holds back. `seconds` is 0 where nothing is left."""

    records: int
    seconds: float
    held_back: int


@dataclass(slots=True)
class EndSamples:
    """Ends of one partition in the order in which they were seen: `(monotonic seconds, last stable offset)`, each
    larger than the one before. Pure."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now_s: float, stable: int, position: int | None) -> None:
        """Note an end. What lies at or below `position` is needed no more."""
        while len(self.seen) > 1 and position is not None and self.seen[0][1] <= position:
            self.seen.popleft()
        if self.seen and stable < self.seen[-1][1]:
            self.seen.clear()  # the log was cut, or is another one
        if not self.seen or stable > self.seen[-1][1]:
            self.seen.append((now_s, stable))
        if len(self.seen) > SAMPLES_MAX:
            gaps = [self.seen[n + 1][0] - self.seen[n - 1][0] for n in range(1, len(self.seen) - 1)]
            del self.seen[1 + gaps.index(min(gaps))]

    def behind_since_s(self, position: int) -> float | None:
        """Return when the first end above `position` was seen; None: everything seen is copied."""
        return next((at_s for at_s, stable in self.seen if stable > position), None)


class LagWatch:
    """Asks for the ends of one flow's source partitions again and again."""

    def __init__(
        self,
        topics: Callable[[], TopicQuestions],
        partitions: Callable[[], Mapping[Partition, int | None]],
        clock: Clock,
        interval_s: float,
    ) -> None:
        """
        Args:
            topics: makes what asks the source; closed when the watch ends.
            partitions: all of the flow, with their positions, None where there is none in the log that is there now:
                then all of it is left to copy.
            interval_s: between two questions.
        """
        self._topics, self._partitions, self._clock, self._interval_s = topics, partitions, clock, interval_s
        self._lock = threading.Lock()
        self._ends: dict[Partition, Ends] = {}
        self._starts: dict[Partition, int] = {}  # of those without position
        self._samples: dict[Partition, EndSamples] = {}
        self._asked_s: float | None = None  # when the ends were last known

    def run(self, ended: threading.Event, log: structlog.stdlib.BoundLogger) -> None:
        """Ask until `ended` is set. A bug ends the watch, not the copying: lag is unknown from then on, and `log` says
        why."""
        try:
            with closing(self._topics()) as topics:
                while not ended.is_set():
                    self.ask(topics, ended)
                    self._clock.wait(ended, self._interval_s)
        except BaseException:
            log.exception("lag_unknown")
            raise

    def ask(self, topics: TopicQuestions, ended: threading.Event) -> None:
        """Ask once. Partitions that aren't answered for have no ends until the next answer."""
        partitions = self._partitions()
        if not partitions:
            return
        high, stable = self._answers(topics, partitions, (LATEST, STABLE), ended)
        unplaced = [at for at, position in partitions.items() if position is None]
        (starts,) = self._answers(topics, unplaced, (EARLIEST,), ended) if unplaced else ({},)
        self._note(partitions, stable, high, starts)

    def _answers(
        self,
        topics: TopicQuestions,
        partitions: Collection[Partition],
        wanted: Sequence[Wanted],
        ended: threading.Event,
    ) -> list[dict[Partition, int]]:
        asked = topics.list_offsets(sorted(partitions), wanted)
        give_up_s = self._clock.now_s() + self._interval_s * ANSWER_INTERVALS
        while not asked.poll(SLICE_S) and self._clock.now_s() < give_up_s and not ended.is_set():
            pass
        return [_answered(found) for found in asked.values()]

    def _note(
        self,
        partitions: Mapping[Partition, int | None],
        stable: Mapping[Partition, int],
        high: Mapping[Partition, int],
        starts: Mapping[Partition, int],
    ) -> None:
        now_s = self._clock.now_s()
        with self._lock:
            self._starts = dict(starts)
            self._ends = {at: Ends(offset, max(offset, high[at])) for at, offset in stable.items() if at in high}
            self._samples = {at: self._samples.get(at, EndSamples()) for at in partitions}
            for at, ends in self._ends.items():
                self._samples[at].add(now_s, ends.stable, partitions[at])
            if self._ends:
                self._asked_s = now_s

    def lags(self, positions: Mapping[Partition, int | None]) -> dict[Partition, Lag]:
        """Return the lag of each of these partitions whose end is known, from its position or, where that is None, from
        the start of its log. From any thread."""
        now_s = self._clock.now_s()
        with self._lock:
            if self._asked_s is None or now_s > self._asked_s + KNOWN_INTERVALS * self._interval_s:
                return {}
            return {
                at: self._lag(at, ends, position, now_s)
                for at, placed in positions.items()
                if (ends := self._ends.get(at)) is not None
                and (position := self._starts.get(at) if placed is None else placed) is not None
            }

    def _lag(self, at: Partition, ends: Ends, position: int, now_s: float) -> Lag:
        since_s = self._samples[at].behind_since_s(position)
        return Lag(max(0, ends.stable - position), 0.0 if since_s is None else now_s - since_s, ends.high - ends.stable)


def _answered(found: Mapping[Partition, object]) -> dict[Partition, int]:
    return {at: value.offset for at, value in found.items() if isinstance(value, ListedOffset)}
