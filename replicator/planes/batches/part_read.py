"""One source partition that is read: where it stands, whom it is read from, since when that fails. Pure.

Used by `fetcher`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from replicator.model.errors import Incident, NotAllowed, TopicMissing
from replicator.model.fetches import FetchFrom
from replicator.model.partition import Partition, Seek
from replicator.planes.batches.committed import FetchedRange
from replicator.planes.batches.fetch_classes import code_name
from replicator.planes.contract import ReadPlan

_AGAIN_S, _AGAIN_S_MAX = 0.05, 1.0
"""Between two tries: doubled up to the second, as the Java client's retry.backoff.ms is."""

_NOTHING = FetchFrom(-1, -1, 0)


class ToldBy(NamedTuple):
    """Which broker has told who leads, and all that it knows of: by any names."""

    broker: object
    all: frozenset[object]


class TopicLeaders(NamedTuple):
    """What a broker's metadata say of a topic. `leaders`: error, leader and its epoch by partition."""

    code: int
    topic_id: bytes
    leaders: Mapping[int, tuple[int, int, int]]


class ReadState(Enum):
    """What is to be done next."""

    LOOK_UP = "find its leader"
    CHECK = "ask where the position's leader epoch ends (KIP-320)"
    READ = "fetch"
    DONE = "nothing until it is sought again"


@dataclass(slots=True)
class PartRead:
    """`epoch`: leader epoch of the last batch before `offset` (-1: unknown). `nearer`: the replica that the leader has
    named (KIP-392; -1: none), until `nearer_until_s`; none is taken before `leader_only_until_s`. `at_end`: its last
    answer left nothing committed behind. `alone`: it is asked for by itself, because an answer was too large. `behind`:
    brokers that have told older leader epochs than those that are known, since any has told one of those.
    """

    at: Partition
    plan: ReadPlan
    state: ReadState = ReadState.LOOK_UP
    offset: int = field(init=False)
    epoch: int = field(init=False)
    bound: int | None = field(init=False)
    leader: int = -1
    leader_epoch: int = -1
    nearer: int = -1
    nearer_until_s: float = 0.0
    leader_only_until_s: float = 0.0
    not_before_s: float = 0.0
    failing_since_s: float | None = None
    at_end: bool = False
    alone: bool = False
    behind: set[object] = field(default_factory=set)
    _again_s: float = _AGAIN_S
    _named: FetchFrom = _NOTHING

    def __post_init__(self) -> None:
        """Begin at the plan's start; nothing is wanted behind its last span either."""
        self.offset, self.epoch = self.plan.start
        ends = [self.plan.spans[-1][1]] if self.plan.spans else []
        self.bound = min(ends + ([] if self.plan.until is None else [self.plan.until]), default=None)

    @property
    def reached(self) -> bool:
        """Whether all that is wanted has been read."""
        return self.bound is not None and self.offset >= self.bound

    @property
    def stands(self) -> Seek:
        """Where it is read next."""
        return Seek(self.offset, self.epoch)

    def goes_on_at_the_end(self, before: PartRead) -> bool:
        """Tell whether it is read on from the offset where `before` had nothing committed behind: in a fetch session
        the broker names it again only when that changes."""
        known = ReadState.CHECK, ReadState.READ
        return self.state in known and before.state in known and before.at_end and before.offset == self.offset

    def outvoted(self, told: ToldBy, *, older: bool) -> bool:
        """Take note whether a broker tells an older leader epoch than those that are known, of this partition's leaders
        and of what was read; return whether all of them have done so since any knew it: the cluster itself has gone
        back. Then they begin anew."""
        if not older:
            self.behind.clear()
            return False
        self.behind.add(told.broker)
        if not told.all or not self.behind.issuperset(told.all):
            return False
        self.behind.clear()
        return True

    @property
    def counts(self) -> tuple[object, ...]:
        """All that `reading_summary` looks at."""
        return (
            self.state, self.at_end, self.failing_since_s, self.not_before_s, self.leader, self.nearer,
            self.nearer_until_s,
        )  # fmt: skip

    @property
    def asked(self) -> FetchedRange:
        """What is wanted from here on."""
        return FetchedRange(self.at, self.offset, self.bound, self.plan.spans)

    def incident(self, name: str, detail: str) -> Incident:
        """Return what stops it where it stands."""
        return Incident(name, detail, topic=self.at.topic, partition=self.at.partition, offset=self.offset)

    def missing(self, cluster: str, why: str) -> TopicMissing:
        """Return what is told where it isn't there."""
        return TopicMissing(f"cluster {cluster!r}: cannot read {self.at}: {why}")

    def not_allowed(self, cluster: str, code: int, rights: str) -> NotAllowed:
        """Return what is told where rights are missing."""
        needs = f"the user needs {rights} on topic {self.at.topic!r} ({code_name(code)})"
        return NotAllowed(f"cluster {cluster!r}: cannot read {self.at}: {needs}", [self.at])

    def named(self, bytes_max: int) -> FetchFrom:
        """Say from where it is asked for: the same object as the last time while nothing has changed."""
        offset, epoch, size = self._named
        if offset != self.offset or epoch != self.leader_epoch or size != bytes_max:
            self._named = FetchFrom(self.offset, self.leader_epoch, bytes_max)
        return self._named

    def source(self, now_s: float) -> int:
        """Say which broker it is read from."""
        return self.nearer if self.nearer >= 0 and now_s < self.nearer_until_s else self.leader

    def fails(self, now_s: float) -> float:
        """Take note of one more failure, and wait longer; return since how many seconds it fails."""
        self.failing_since_s = now_s if self.failing_since_s is None else self.failing_since_s
        self.not_before_s, self._again_s = now_s + self._again_s, min(_AGAIN_S_MAX, 2 * self._again_s)
        return now_s - self.failing_since_s

    def succeeds(self) -> None:
        """Take note that it was read."""
        self.failing_since_s, self.not_before_s, self._again_s = None, 0.0, _AGAIN_S
