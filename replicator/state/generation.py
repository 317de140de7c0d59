"""Generations of a flow: what the control topic says, folded into one state, and what may be written next. Pure.

A generation fixes how the flow's partitions are cut into lanes and what runs them. The control topic is the
only truth about it: compacted, one partition, nothing else in it, written only under the flow's control id.
Read by `flow_state`, changed by `control`; lanes, and the flow's discovery, ask `check_generation` if they may go on.

Invariants 2 and 4 (the latter for what is stored with the `open` record)
- A change is two records: `preparing n`: nobody may start; then `open n`. Between them every transactional id
  of every generation that is not recorded as closed is fenced, and only once a read_committed read shows
  `preparing n`. Whoever finds a change half done finishes it.
- A worker starts only under `open` of its own generation, read *after* its InitProducerId.
- `start` covers the partitions listed when the flow was first opened; those that appear later start at
  earliest. That list is in the first `open` record and is carried along by every later one. Where they begin is
  resolved once and stands in records of its own, written in the transaction of that record (`starts`): whoever admits
  a partition later, in whatever generation, begins there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import Any

from replicator.model.errors import Incident, TakenOver
from replicator.state import decisions, run_settings, starts
from replicator.state.decisions import OperatorDecision
from replicator.state.envelope import NewerFormat, NotOurs, unwrap, wrap
from replicator.state.run_settings import NO_SETTINGS, RunSettings
from replicator.state.starts import Starts

GENERATION = "generation"
_KINDS = frozenset({GENERATION})
HASHED = "crc32(topic/partition) mod lanes"
LISTED = "one lane for each listed partition"


class Kind(StrEnum):
    """What runs a generation."""

    LIVE = "live"  # the daemon
    ROUNDS = "rounds"  # the daemon on Spark
    BACKFILL = "backfill"
    REPAIR = "repair"
    POSITION_SET = "position set"  # over in one transaction: whoever begins another generation finds it done or not

    @property
    def bounded(self) -> bool:
        """Whether it is a job that ends by itself, and that a daemon's start must not cut short."""
        return self in (Kind.BACKFILL, Kind.REPAIR)


class Phase(StrEnum):
    """Where a generation stands."""

    PREPARING = "preparing"
    OPEN = "open"
    CLOSED = "closed"


# Which phase a generation may be in before it enters the one on the left; None: it doesn't exist yet.
TRANSITIONS: Mapping[Phase, frozenset[Phase | None]] = {
    Phase.PREPARING: frozenset({None}),
    Phase.OPEN: frozenset({Phase.PREPARING}),
    Phase.CLOSED: frozenset({Phase.PREPARING, Phase.OPEN}),
}


class BadControl(ValueError):
    """The control topic holds something that this program did not write, or in an order that it rules out."""


@dataclass(frozen=True)
class LaneAssignment:
    """How source partitions are cut into lanes: by a hash, or one lane for each partition of `listed`.

    `listed` counts partitions by source topic; it is empty where a hash decides. A partition that a listing doesn't
    have falls into some lane by the hash, so that its position has one that keeps it alive.
    """

    lanes: int
    listed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def by_partition(cls, listing: Mapping[str, int]) -> LaneAssignment:
        """A lane for each partition of a listing, one at least."""
        return cls(max(1, sum(listing.values())), dict(listing))

    @cached_property
    def _first(self) -> Mapping[str, int]:
        """The lane of each listed topic's partition 0."""
        topics = sorted(self.listed)
        return dict(zip(topics, accumulate((self.listed[name] for name in topics), initial=0), strict=False))

    def lane_of(self, topic: str, partition: int) -> int:
        """The lane of a source partition: stable over processes and versions, it is part of the format."""
        if 0 <= partition < self.listed.get(topic, 0):
            return self._first[topic] + partition
        return zlib.crc32(f"{topic}/{partition}".encode()) % self.lanes

    def partitions(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of every lane of a listing, in the order of the lanes."""
        return ((name, number) for name in sorted(self.listed) for number in range(self.listed[name]))


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation as its latest record says it.

    `partitions` counts the first listing's, by source topic; `listed` see `LaneAssignment`. `by` is the
    process that began it. `start_records` counts the records that say where the first listing's partitions begin; None
    before that was resolved, and for good in a flow that was opened by a version that didn't store it.
    """

    number: int
    phase: Phase
    lanes: int
    kind: Kind = Kind.LIVE
    partitions: Mapping[str, int] = field(default_factory=dict)
    at_ms: int = 0
    listed: Mapping[str, int] = field(default_factory=dict)
    by: str = ""
    start_records: int | None = None

    @property
    def assignment(self) -> LaneAssignment:
        """How partitions are cut into its lanes."""
        return LaneAssignment(self.lanes, self.listed)

    @property
    def key(self) -> bytes:
        """Key in the compacted control topic."""
        return f"{GENERATION}/{self.number}".encode()

    def encode(self) -> bytes:
        """Value in the control topic."""
        content = {
            "number": self.number,
            "phase": self.phase.value,
            "lanes": self.lanes,
            "runs": self.kind.value,
            "assignment": LISTED if self.listed else HASHED,
            "listed": dict(self.listed),
            "partitions": dict(self.partitions),
            "at_ms": self.at_ms,
            "by": self.by,
            "start_records": self.start_records,
        }
        return wrap(GENERATION, content)


def decode(key: bytes | None, value: bytes | None) -> Generation | None:
    """One control record; None for one that this version may ignore.

    Raises BadControl when it is not ours, and NewerFormat (see `envelope`).
    """
    if value is None and key is not None and not key.startswith(f"{GENERATION}/".encode()):
        return None  # a tombstone of a kind that is not known: nothing stands there any more
    try:
        body = unwrap(key or b"", value or b"", _KINDS)
        if body is None:
            return None
        found = Generation(
            int(body["number"]),
            Phase(body["phase"]),
            int(body["lanes"]),
            Kind(body["runs"]),
            dict(body["partitions"]),
            int(body["at_ms"]),
            _listed(body),
            str(body["by"]),
            None if body.get("start_records") is None else int(body["start_records"]),
        )
    except NewerFormat:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadControl(f"unreadable control record {key!r}: {error}") from error
    if found.key != key:
        raise BadControl(f"control record {key!r} holds generation {found.number}")
    return found


def _listed(body: Mapping[str, Any]) -> Mapping[str, int]:
    """The listing that cuts a generation into lanes; empty for the hash. Any other assignment is a newer program's."""
    listed = {str(name): int(count) for name, count in body["listed"].items()}
    known = LISTED if listed else HASHED
    if body["assignment"] != known or (listed and sum(listed.values()) != body["lanes"]):
        raise BadControl(f"assignment {body['assignment']!r} of {body['lanes']} lanes is not known")
    return listed


@dataclass(frozen=True)
class Control:
    """All generations by number, as the control topic gives them, and what was decided, by occurrence, and set.

    `start_records` are kept as they were read: most readers need none of them, and a flow may have 100,000 partitions.
    """

    generations: Mapping[int, Generation] = field(default_factory=dict)
    start_records: Mapping[bytes, bytes] = field(default_factory=dict)
    decisions: Mapping[str, OperatorDecision] = field(default_factory=dict)
    settings: RunSettings = NO_SETTINGS

    def apply(self, record: Generation) -> Control:
        """The state after one more record. Compaction may have removed a generation's earlier phases."""
        before = self.generations.get(record.number)
        phase = before.phase if before else None
        compacted = before is None
        if not compacted and phase not in TRANSITIONS[record.phase]:
            raise BadControl(f"generation {record.number} goes from {phase} to {record.phase}")
        return replace(self, generations={**self.generations, record.number: record})

    @property
    def begun(self) -> bool:
        """Whether a generation is open or being prepared. A topic without one is as good as none."""
        return self.open is not None or self.preparing is not None

    @property
    def newest(self) -> int:
        """Highest generation that was ever begun; 0 when there is none."""
        return max(self.generations, default=0)

    @property
    def open(self) -> Generation | None:
        """The one generation that may run; None while a change is under way or before the first."""
        newest = self.generations.get(self.newest)
        return newest if newest and newest.phase is Phase.OPEN else None

    @property
    def preparing(self) -> Generation | None:
        """A change that is half done."""
        newest = self.generations.get(self.newest)
        return newest if newest and newest.phase is Phase.PREPARING else None

    def to_fence(self) -> list[tuple[int, int]]:
        """(generation, lane) of every id of all generations that are not recorded as closed."""
        return [
            (number, lane)
            for number, generation in sorted(self.generations.items())
            if generation.phase is not Phase.CLOSED
            for lane in range(generation.lanes)
        ]

    def claims_partition(self, lane: int) -> int | None:
        """The one partition of the claims topic that can hold anything about source partitions of a lane of the newest
        generation; None where others can, too.

        A lane of the daemon writes to the partition of its own number. So it is one as long as all generations were
        the daemon's, with the same number of lanes: then each source partition always had the same lane.
        """
        known = self.generations.values()
        complete = len(self.generations) == self.newest > 0  # a lost control topic doesn't say what came before it
        same = all(it.kind is Kind.LIVE and not it.listed and it.lanes == next(iter(known)).lanes for it in known)
        return lane if complete and same else None

    def first_listing(self) -> Mapping[str, int]:
        """Partition counts by source topic when the flow was first opened."""
        for _, generation in sorted(self.generations.items()):
            if generation.partitions:
                return generation.partitions
        return {}

    @property
    def never_open(self) -> bool:
        """Whether no generation was open yet, so that the change under way is the flow's first."""
        return all(generation.phase is Phase.PREPARING for generation in self.generations.values())

    def starts(self) -> Starts | None:
        """Where the first listing's partitions begin, see `starts.start_of`; None where the flow was opened by a
        version that didn't store it: then whoever admits a partition resolves it.

        Raises Incident `control_topic_unreadable`, `newer_format`.
        """
        return self._starts

    @cached_property
    def _starts(self) -> Starts | None:
        counts = [found.start_records for _, found in sorted(self.generations.items())]
        count = next((count for count in counts if count is not None), None)
        if count is None:
            return None
        try:
            if len(self.start_records) != count:
                raise NotOurs(f"{len(self.start_records)} records of starts, not {count}")
            return starts.decode(self.start_records.items())
        except NewerFormat as error:
            raise Incident("newer_format", str(error)) from error
        except NotOurs as error:
            raise Incident("control_topic_unreadable", str(error)) from error

    def prepare(
        self, assignment: LaneAssignment, listing: Mapping[str, int], now_ms: int, kind: Kind = Kind.LIVE, by: str = ""
    ) -> Generation:
        """The `preparing` record of the next generation; an earlier listing is carried along."""
        known = self.first_listing() if self.generations else listing
        before = self.generations.get(self.newest)
        return Generation(
            self.newest + 1,
            Phase.PREPARING,
            assignment.lanes,
            kind,
            known,
            now_ms,
            assignment.listed,
            by,
            None if before is None else before.start_records,
        )

    def finish(self, now_ms: int, start_records: int | None = None) -> list[Generation]:
        """The records that end the change under way: `closed` for all before, `open` for the prepared one.

        `start_records`: how many are written with them, where this opens the flow for the first time.
        """
        change = self.preparing
        if change is None:
            raise BadControl("no change is under way")
        before = [
            replace(generation, phase=Phase.CLOSED, at_ms=now_ms)
            for number, generation in sorted(self.generations.items())
            if generation.phase is not Phase.CLOSED and number != change.number
        ]
        count = start_records if self.never_open else change.start_records
        return [*before, replace(change, phase=Phase.OPEN, at_ms=now_ms, start_records=count)]


def fold(records: Iterable[tuple[bytes | None, bytes | None]]) -> Control:
    """The state that a whole control topic gives. Raises BadControl, NewerFormat."""
    control, start_records, decided = Control(), dict[bytes, bytes](), dict[str, OperatorDecision]()
    settings = NO_SETTINGS
    for key, value in records:
        if key is not None and value is not None and starts.holds_starts(key):
            start_records[key] = value
            continue
        if key is not None and value is not None and decisions.holds_decision(key):
            decided |= _decision(key, value)
            continue
        if key == run_settings.KEY and value is not None:
            settings = _settings(value) or settings
            continue
        found = decode(key, value)
        if found is not None:
            control = control.apply(found)
    return replace(control, start_records=start_records, decisions=decided, settings=settings)


def _decision(key: bytes, value: bytes) -> dict[str, OperatorDecision]:
    try:
        found = decisions.decode(key, value)
    except NotOurs as error:
        raise BadControl(str(error)) from error
    return {} if found is None else {found.occurrence: found}


def _settings(value: bytes) -> RunSettings | None:
    try:
        return run_settings.decode(value)
    except NotOurs as error:
        raise BadControl(str(error)) from error


def check_generation(control: Control, generation: int, assignment: LaneAssignment, *, running: bool = False) -> None:
    """Whether lanes of this generation, cut by `assignment`, may run under `control`.

    `running`: they do, and are not asked to start. Then another generation that is only being prepared doesn't matter
    yet: it fences them before it opens, and whoever prepares it may die before that.

    Raises TakenOver (`by_generation`) where the generation is closed, or another is open or being prepared; Incident
    `control_topic_behind` where the control topic doesn't know it.
    """
    newest = control.newest
    if newest < generation:
        why = f"lanes run under generation {generation}, the control topic knows {newest}"
        raise Incident("control_topic_behind", why)
    found = control.open
    if running and control.preparing is not None:
        before = control.generations.get(generation)
        found = before if before is not None and before.phase is Phase.OPEN else None
    if found is not None and (found.number, found.assignment) == (generation, assignment):
        return
    other = control.generations[newest]
    what = f"generation {newest} ({other.kind.value})"
    if newest == generation:
        raise TakenOver.of_generation(
            f"{what} is {other.phase.value} with {other.lanes} lanes, not open with {assignment.lanes}"
        )
    if other.phase is Phase.PREPARING:
        raise TakenOver.of_generation(f"{what} is being prepared, and takes over from {generation}")
    raise TakenOver.of_generation(f"{what} has taken over from {generation}")
