"""What operators have paused of a flow, and how fast it may copy: one object for all lanes of a flow, which ask it.

Pure but for a lock: every call that depends on time is given it. Token buckets: what was copied is taken from the
bucket, which may go below zero, and nothing more is read until it is at zero again. So the average is exact, however
large a transaction was; and nothing is read that would have to be kept until its time comes.

Invariants
- Over any time of T seconds no more is copied than rate * (T + BURST_S), and what one transaction of each lane holds.
- That holds for all processes that share the flow together: each keeps to the part that its lanes have, of the flow's
  limit by their number, of a topic's by its partitions. A lane that another process takes over counts here until it
  ends, and a process hears of new partitions at its own next listing: for so long a little more may be copied.
- An older state of the settings never replaces a newer one, whoever has read it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from replicator.lane.plan import LanePlan
from replicator.state.run_settings import FLOW, NO_SETTINGS, Paused, RateLimit, RunSettings

BURST_S = 1.0
"""So much is saved up while there is nothing to copy."""
RESUMED_AT = 0.5
"""A topic that is held back is read again when its bucket holds so many seconds of its rate: to begin and end takes a
fetch each, which would be one for each transaction else."""
FIRST_RECORDS = 32
"""In one poll while it isn't known how large records are."""
TRANSACTION_S_MAX = 1.0
TOPIC_RECORDS_MIN = 100
"""In one poll while a topic's rate is lower: other topics of the lane come with the same polls."""


@dataclass(slots=True)
class TokenBucket:
    """Of one limit, `rate` a second. `level` is below zero while more was taken than there was. Pure."""

    rate: float
    level: float
    at_s: float

    @classmethod
    def full(cls, rate: float, now_s: float) -> TokenBucket:
        """Make it as it is when nothing was copied for long."""
        return cls(rate, rate * BURST_S, now_s)

    def fill(self, now_s: float) -> None:
        """Let it take in what has come since it was looked at last."""
        self.level = min(self.rate * BURST_S, self.level + max(0.0, now_s - self.at_s) * self.rate)
        self.at_s = max(self.at_s, now_s)

    def take(self, now_s: float, amount: float) -> None:
        """Take what was copied."""
        self.fill(now_s)
        self.level -= amount

    def left_s(self, now_s: float, level: float = 0.0) -> float:
        """Return the seconds until it holds `level`; 0 where it does."""
        self.fill(now_s)
        return max(0.0, (level - self.level) / self.rate)


class _Limiter:
    """The buckets of the flow, or of one topic."""

    def __init__(self, limit: RateLimit, now_s: float) -> None:
        self.limit = limit
        self.records = None if limit.records_per_s is None else TokenBucket.full(limit.records_per_s, now_s)
        self.bytes = None if limit.bytes_per_s is None else TokenBucket.full(limit.bytes_per_s, now_s)
        self.held, self.share = False, 1.0

    def scale(self, share: float, now_s: float) -> None:
        """Keep to this part of the limit from now on; what was copied too much before still counts."""
        self.share = share
        for bucket, rate in ((self.records, self.limit.records_per_s), (self.bytes, self.limit.bytes_per_s)):
            if bucket is not None and rate is not None:
                bucket.fill(now_s)
                bucket.rate = rate * share
                bucket.level = min(bucket.level, bucket.rate * BURST_S)

    def take(self, now_s: float, records: int, size: int) -> None:
        if self.records is not None:
            self.records.take(now_s, records)
        if self.bytes is not None:
            self.bytes.take(now_s, size)

    def left_s(self, now_s: float, saved_s: float = 0.0) -> float:
        buckets = [bucket for bucket in (self.records, self.bytes) if bucket is not None]
        return max((bucket.left_s(now_s, bucket.rate * saved_s) for bucket in buckets), default=0.0)

    def holds(self, now_s: float) -> bool:
        """Say whether it is held back now: from when it is empty until it has saved something up."""
        self.held = self.left_s(now_s, RESUMED_AT if self.held else 0.0) > 0
        return self.held


class FlowThrottle:
    """Of one flow. From any thread."""

    def __init__(self, from_file: RateLimit = RateLimit()) -> None:  # noqa: B008 - it is immutable
        """`from_file`: the flow's own `rate`, which counts until an operator sets another."""
        self._from_file, self._settings = from_file, NO_SETTINGS
        self._generation = 0  # under which they were read
        self._lock = threading.Lock()
        self._limiters: dict[str, _Limiter] = {}
        self._stale = from_file.limits  # whether the buckets aren't those of the settings yet
        self._record_bytes = 0.0
        self._lanes: dict[tuple[int, int], LanePlan] = {}  # that run here, by generation and number
        self._partitions: Mapping[str, int] = {}  # of each source topic, in all lanes

    def runs(self, plan: LanePlan) -> None:
        """Note that a lane runs here, with these routes."""
        with self._lock:
            self._stale = self._stale or self._lanes.get((plan.generation, plan.lane)) is not plan
            self._lanes[plan.generation, plan.lane] = plan

    def ended(self, plan: LanePlan) -> None:
        """Note that it does no more."""
        with self._lock:
            self._stale = self._lanes.pop((plan.generation, plan.lane), None) is not None or self._stale

    def listed(self, partitions: Mapping[str, int]) -> None:
        """Note how many partitions each source topic has by now. Not by the lanes: those whose own routes are as before
        go on, and hear of no others."""
        with self._lock:
            self._stale = self._stale or self._partitions != partitions
            self._partitions = partitions

    def _share(self, at: str) -> float:
        """Return which part of a limit is this process's. While no lane runs here nothing is copied."""
        newest = max((generation for generation, _ in self._lanes), default=0)
        here = [plan for (generation, _), plan in self._lanes.items() if generation == newest]
        if not here:
            return 1.0
        if at == FLOW:
            return min(1.0, len(here) / here[0].assignment.lanes)
        own = sum(route.source.topic == at for plan in here for route in plan.routes)
        known = self._partitions.get(at, 0)
        return own / known if 0 < own < known else 1.0

    @property
    def settings(self) -> RunSettings:
        """As they were read last."""
        return self._settings

    def take(self, settings: RunSettings, generation: int) -> bool:
        """Take settings that were read by who runs this generation; return whether they are newer than those that are
        known.

        Their number counts from one where the control topic was lost and made anew: then nothing is set, and the
        generation is a higher one than any that has run before.
        """
        with self._lock:
            known = self._generation, self._settings.number
            if (generation, settings.number) <= known:
                return False
            changed = settings != self._settings
            self._generation, self._settings, self._stale = generation, settings, self._stale or changed
            return changed

    def paused(self, topic: str) -> Paused | None:
        """Say why a source topic is paused; None: it isn't."""
        return self._settings.paused_at(topic)

    @property
    def any_paused(self) -> bool:
        """Whether anything of the flow is."""
        return bool(self._settings.paused)

    def rates(self) -> Mapping[str, RateLimit]:
        """Return what limits there are, by topic; `FLOW` for all of them together."""
        return self._settings.effective(self._from_file)

    def limited(self, topic: str) -> bool:
        """Say whether a source topic is copied no faster than some limit: its own, or that of the whole flow."""
        return not self.rates().keys().isdisjoint((FLOW, topic))

    def _current(self, now_s: float) -> dict[str, _Limiter]:
        """Return the buckets, made anew where a limit is another than before; others keep what they hold."""
        if self._stale:
            before = self._limiters
            self._limiters = {
                at: before[at] if at in before and before[at].limit == limit else _Limiter(limit, now_s)
                for at, limit in self.rates().items()
            }
            for at, limiter in self._limiters.items():
                limiter.scale(self._share(at), now_s)
            self._stale = False
        return self._limiters

    def spent(self, now_s: float, copied: Mapping[str, tuple[int, int]]) -> None:
        """Note a committed transaction: records and bytes by source topic."""
        with self._lock:
            limiters = self._current(now_s)
            if not limiters:
                return
            records, size = sum(count for count, _ in copied.values()), sum(size for _, size in copied.values())
            if records:
                self._record_bytes = size / records
            if FLOW in limiters:
                limiters[FLOW].take(now_s, records, size)
            for topic, (count, of_topic) in copied.items():
                if topic in limiters:
                    limiters[topic].take(now_s, count, of_topic)

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the flow may write the next record; 0 when it is time."""
        with self._lock:
            found = self._current(now_s).get(FLOW)
            return 0.0 if found is None else found.left_s(now_s)

    def held(self, now_s: float) -> frozenset[str]:
        """Return the source topics that are to be read no further for now."""
        with self._lock:
            limiters = self._current(now_s)
            return frozenset(topic for topic, it in limiters.items() if topic != FLOW and it.holds(now_s))

    def records_left(
        self, now_s: float, interval_s: float, records: int, size: int, heard: Collection[str]
    ) -> int | None:
        """Say how many records more the next poll may add to a transaction; None: any number.

        A transaction holds what may be copied in `interval_s`, or one record. A topic's limit bounds those that hold
        records of it, and each poll, which may bring its first ones; a topic that is held back anyway bounds nothing.

        Args:
            records: how many it holds, of `size` bytes.
            heard: the source topics of which it may hold any.
        """
        with self._lock:
            limiters = dict(self._current(now_s))
        if not limiters:
            return None
        seconds, average = min(interval_s, TRANSACTION_S_MAX), size / records if records else self._record_bytes
        left: list[int] = []
        for topic, limiter in limiters.items():
            if limiter.held:
                continue
            most = _most(limiter.limit, seconds * limiter.share, average, 1 if topic == FLOW else TOPIC_RECORDS_MIN)
            left.append(most - records if topic == FLOW or topic in heard else most)
        return min(left, default=None)


def _most(limit: RateLimit, seconds: float, record_bytes: float, records_min: int) -> int:
    """Say how many records may be copied in so many seconds: one at least. `records_min`: no fewer for their number."""
    found: list[int] = []
    if limit.records_per_s is not None:
        found.append(max(records_min, int(limit.records_per_s * seconds)))
    if limit.bytes_per_s is not None:
        found.append(max(1, int(limit.bytes_per_s * seconds / record_bytes)) if record_bytes else FIRST_RECORDS)
    return min(found)
