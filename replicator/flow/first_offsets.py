"""Resolves where a flow's partitions begin, when the flow is first opened. Used by `flow.setup`.

Invariant 4 (see `state.starts`). A partition that can't be asked now, because nobody leads it or its leader doesn't
answer, holds the flow back for a bounded time only. Then it is stored as beginning at earliest: of what is written from
now on nothing is lost, and what the flow's `start` would have left out is copied too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import structlog

from replicator.backoff import Backoff
from replicator.config import Flow
from replicator.lane.facts import offsets_of_time
from replicator.lane.ports import ClusterQuestions
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable
from replicator.model.partition import LogEnds, Partition
from replicator.state.starts import Starts, TopicStarts

PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
TOGETHER = 5_000
"""Partitions in one question, so that no question of a flow with 100,000 takes as long as a request may."""


@dataclass(slots=True)
class FirstOffsets:
    """What is known so far. `errors`: why a partition isn't known."""

    ids: dict[str, str] = field(default_factory=dict)
    offsets: dict[Partition, int] = field(default_factory=dict)
    errors: dict[Partition, ReplicatorError] = field(default_factory=dict)

    def starts(self, counts: Mapping[str, int]) -> Starts:
        """Return them as they are stored; partitions that aren't known begin at earliest."""
        return {
            name: TopicStarts(self.ids[name], tuple(self.offsets.get(Partition(name, n)) for n in range(count)))
            for name, count in counts.items()
            if name in self.ids
        }


def resolve_starts(
    flow: Flow,
    source: ClusterQuestions,
    counts: Mapping[str, int],
    asked: threading.Event,
    log: structlog.stdlib.BoundLogger,
) -> Starts:
    """Resolve the starts of these partitions (counts by topic); none for `start: earliest`, which means what the source
    has when a partition is admitted.

    Partitions that can't be asked are asked again until the connect timeout is over. `asked` cuts that short: then
    nothing is resolved.

    Raises Unreachable while the source doesn't answer at all, NotAllowed, and Retriable once `asked` is set.
    """
    if flow.start.kind == "earliest":
        return {}
    found, backoff = FirstOffsets(), Backoff(PAUSE_S, PAUSE_S_MAX)
    left = {Partition(name, number) for name, count in counts.items() for number in range(count)}
    give_up_s = time.monotonic() + flow.limits.connect_timeout_ms / 1000
    told: set[Partition] = set()
    while left:
        asked_for, found.errors = sorted(left), {}
        for first in range(0, len(asked_for), TOGETHER):
            _ask(flow, source, asked_for[first : first + TOGETHER], found)
        left = set(found.errors)
        for at in sorted(left - told):
            log.warning("start_not_resolved", topic=at.topic, partition=at.partition, reason=str(found.errors[at]))
        told |= left
        if not left or time.monotonic() >= give_up_s:
            break
        if asked.wait(backoff.next_s()):
            raise Retriable(f"flow {flow.name}: asked to stop while {len(left)} partitions could not be asked")
    for at in sorted(left):
        log.warning("starts_at_earliest", topic=at.topic, partition=at.partition, reason=str(found.errors[at]))
    return found.starts(counts)


def _ask(flow: Flow, source: ClusterQuestions, partitions: Collection[Partition], found: FirstOffsets) -> None:
    """Ask for the stable ends, and only then for the offsets of a time. Raises Unreachable where no broker answers at
    all."""
    logs = source.log_ends(partitions)
    found.errors |= {at: log for at, log in logs.items() if not isinstance(log, LogEnds)}
    for error in found.errors.values():
        if isinstance(error, NotAllowed):
            raise error  # a new flow doesn't start without the right to see what it copies
    known = {at: log for at, log in logs.items() if isinstance(log, LogEnds)}
    _forget_recreated(found, known)
    resolved: dict[Partition, int | ReplicatorError] = {at: log.stable for at, log in known.items()}
    if flow.start.kind == "timestamp" and known:
        ends = {at: log.stable for at, log in known.items()}
        resolved = offsets_of_time(source, ends, flow.start.timestamp_ms)
    for at, offset in resolved.items():
        if isinstance(offset, ReplicatorError):
            found.errors[at] = offset
        else:
            found.offsets[at] = offset


def _forget_recreated(found: FirstOffsets, logs: Mapping[Partition, LogEnds]) -> None:
    """Forget the offsets of topics that were created again since an earlier round: they begin at earliest."""
    for at, log in logs.items():
        if found.ids.setdefault(at.topic, log.topic_id) != log.topic_id:
            found.ids[at.topic] = log.topic_id
            found.offsets = {known: offset for known, offset in found.offsets.items() if known.topic != at.topic}
