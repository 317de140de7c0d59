"""A generation of a flow, as records of the control topic hold it. Pure. `control_topic` has all of them.

A generation fixes how the flow's partitions are cut into lanes and what runs them. The control topic is the
only truth about it: compacted, one partition, nothing else in it, written only under the flow's control id.

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

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import Any

from replicator.state.envelope import FORMAT_VERSION, NewerFormat, unwrap, wrap
from replicator.workers.balance import BalancedLanes
from replicator.workers.settings import canonical, settings_hash

GENERATION = "generation"
_KINDS = frozenset({GENERATION})
WITH_SETTINGS = 2
"""The format version of a generation that has its flow's settings: a program that doesn't know it must not run the flow
by its own file."""
WITH_FROZEN = 3
"""The format version of one that copies nothing: a program that doesn't know it would replace it and go on."""
WITH_TOPICS = 4
"""The format version of one that leaves out topics that were failed over: a program that doesn't know it would copy
them."""
HASHED = "crc32(topic/partition) mod lanes"
BALANCED = "first listing dealt out by topic, topics by crc32"
LISTED = "one lane for each listed partition"


class Kind(StrEnum):
    """What runs a generation."""

    LIVE = "live"  # the daemon
    ROUNDS = "rounds"  # the daemon on Spark
    BACKFILL = "backfill"
    REPAIR = "repair"
    FROZEN = "failover"  # nothing is copied, the positions are kept, until a command undoes it
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


class BadControl(ValueError):
    """The control topic holds something that this program did not write, or in an order that it rules out."""


@dataclass(frozen=True)
class LaneAssignment:
    """How source partitions are cut into lanes: dealt out (`dealt`), one lane for each partition of `listed`, or, where
    both are empty, by a hash, as versions did that couldn't deal them out.

    `dealt` and `listed` count partitions by source topic. A partition that the listing doesn't have falls into some
    lane, too, so that its position has one that keeps it alive.
    """

    lanes: int
    listed: Mapping[str, int] = field(default_factory=dict)
    dealt: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def by_partition(cls, listing: Mapping[str, int]) -> LaneAssignment:
        """Assign a lane to each partition of a listing, one at least."""
        return cls(max(1, sum(listing.values())), dict(listing))

    @cached_property
    def _first(self) -> Mapping[str, int]:
        """The lane of each listed topic's partition 0."""
        topics = sorted(self.listed)
        return dict(zip(topics, accumulate((self.listed[name] for name in topics), initial=0), strict=False))

    @cached_property
    def _balanced(self) -> BalancedLanes:
        return BalancedLanes(self.lanes, self.dealt)

    def lane_of(self, topic: str, partition: int) -> int:
        """Return the lane of a source partition: stable over processes and versions, it is part of the format."""
        if self.dealt:
            return self._balanced.lane_of(topic, partition)
        if 0 <= partition < self.listed.get(topic, 0):
            return self._first[topic] + partition
        return zlib.crc32(f"{topic}/{partition}".encode()) % self.lanes

    def partitions(self) -> Iterator[tuple[str, int]]:
        """Yield topic and partition of every lane of a listing, in the order of the lanes."""
        return ((name, number) for name in sorted(self.listed) for number in range(self.listed[name]))


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation as its latest record says it.

    `partitions` counts the first listing's, by source topic; they are dealt out to the lanes if it is `balanced`.
    `listed` see `LaneAssignment`. `by` is the
    process that began it. `start_records` counts the records that say where the first listing's partitions begin; None
    before that was resolved, and for good in a flow that was opened by a version that didn't store it.

    `settings`: of the flow, as canonical JSON (`workers.settings`); empty where a version opened it that stored none.
    A job's generation has those of the one before it. `revision`: of the flow file, the highest that the flow has had.
    `source_cluster`: the id of the cluster that it copies from, where there are settings.

    `failed_over`: source topics that were failed over, each with the generation that did it. Every later one has them
    as well, until a command gives them back: nothing of them is copied, their positions are kept.

    `decided_by`: who has decided it, where a person has, and not only the process that began it.
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
    settings: str = ""
    revision: int | None = None
    balanced: bool = False
    source_cluster: str = ""
    failed_over: Mapping[str, int] = field(default_factory=dict)
    decided_by: str = ""

    @property
    def who(self) -> str:
        """Who began it, for people: whoever has decided it, or the process."""
        return self.decided_by or self.by

    @property
    def begun_said(self) -> str:
        """Its number, by whom and when it was begun, for people."""
        at = f", at {datetime.fromtimestamp(self.at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if self.at_ms else ""
        by = f", by {self.who}" if self.who else ""
        return f"generation {self.number}{by}{at}"

    @property
    def settings_hash(self) -> str:
        """The hash of `settings`; empty where there are none."""
        return settings_hash(self.settings) if self.settings else ""

    @property
    def assignment(self) -> LaneAssignment:
        """How partitions are cut into its lanes."""
        return LaneAssignment(self.lanes, self.listed, self.partitions if self.balanced else {})

    @property
    def key(self) -> bytes:
        """Key in the compacted control topic."""
        return f"{GENERATION}/{self.number}".encode()

    def encode(self) -> bytes:
        """Return the value in the control topic."""
        content = {
            "number": self.number,
            "phase": self.phase.value,
            "lanes": self.lanes,
            "runs": self.kind.value,
            "assignment": BALANCED if self.balanced else LISTED if self.listed else HASHED,
            "listed": dict(self.listed),
            "partitions": dict(self.partitions),
            "at_ms": self.at_ms,
            "by": self.by,
            "start_records": self.start_records,
        }
        version = FORMAT_VERSION
        if self.settings:
            content |= {"settings": json.loads(self.settings), "revision": self.revision}
            content["source_cluster"] = self.source_cluster
            version = WITH_SETTINGS
        if self.kind is Kind.FROZEN:
            version = WITH_FROZEN
        if self.failed_over:
            content["failed_over"] = dict(self.failed_over)
            version = WITH_TOPICS
        if self.decided_by:
            content["decided_by"] = self.decided_by
        return wrap(GENERATION, content, version=version)


def failed_over_said(topic: str, since: int, begun: Generation | None = None) -> str:
    """Say that a source topic was failed over, by the generation `since`, and by whom and when where that is known."""
    said = f"generation {since}" if begun is None else begun.begun_said
    return f"topic {topic} was failed over ({said}): nothing of it is copied until failover --undo --topics"


def decode(key: bytes | None, value: bytes | None) -> Generation | None:
    """Decode one control record; None for one that this version may ignore.

    Raises BadControl when it is not ours, and NewerFormat (see `envelope`).
    """
    if value is None and key is not None and not key.startswith(f"{GENERATION}/".encode()):
        return None  # a tombstone of a kind that is not known: nothing stands there any more
    try:
        body = unwrap(key or b"", value or b"", _KINDS, WITH_TOPICS)
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
            canonical(body["settings"]) if "settings" in body else "",
            None if body.get("revision") is None else int(body["revision"]),
            body["assignment"] == BALANCED,
            str(body.get("source_cluster", "")),
            {str(name): int(since) for name, since in body.get("failed_over", {}).items()},
            str(body.get("decided_by", "")),
        )
    except NewerFormat:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadControl(f"unreadable control record {key!r}: {error}") from error
    if found.key != key:
        raise BadControl(f"control record {key!r} holds generation {found.number}")
    return found


def _listed(body: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the listing that cuts a generation into lanes; empty for the hash. Any other assignment is a newer
    program's.
    """
    listed = {str(name): int(count) for name, count in body["listed"].items()}
    known = {LISTED} if listed else {BALANCED, HASHED}
    if body["assignment"] not in known or (listed and sum(listed.values()) != body["lanes"]):
        raise BadControl(f"assignment {body['assignment']!r} of {body['lanes']} lanes is not known")
    return listed
