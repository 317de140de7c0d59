"""Where a flow stands, read from the target's positions and the source's ends. Nothing is changed.

Called by `eos-replicate status`. Positions are compared with the clusters by the
function that lanes use (`lane.judge.compare`).

Lag in records is a distance of offsets: on the source it also counts markers, aborted and compacted records.
Lag in seconds is the age of the oldest record that is not copied yet, by its own timestamp. Records of an open source
transaction, and all behind it, are no lag of the flow's: they are shown by themselves, with the time since when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from replicator.config import Flow, routing
from replicator.flow.topics import ControlPlane
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import checkpoint, names
from replicator.model.checkpoint import Evidence, Position
from replicator.model.contradictions import compare
from replicator.model.errors import Incident, NotAllowed
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.state.claims import Claim

TIMES_WAIT_S = 5.0
STALLED_MS_MIN = 60_000

State = Literal[
    "in_sync",  # nothing to copy
    "behind",  # copying
    "source_waits",  # an open transaction at the source has held back records for long: does it hang?
    "stalled",  # something to copy, and the position hasn't moved for long: does the daemon run, does it wait?
    "not_started",  # no position yet
    "topic_missing",  # the source topic does not exist
    "records_lost",  # the source deleted records before they were copied
    "source_truncated",  # the source ends before the position
    "source_recreated",  # the source topic is another one than the position was written for
    "other_source",  # the position was written for another cluster or topic
    "target_recreated",  # the target topic is another one than was written
    "target_deleted",  # the target topic was there, and is not any more
    "position_expired",  # it was copied to, but has no position any more
    "target_lost_data",  # the target ends below what was written
    "foreign_position",  # the position was not written by this program
]

CONTROL_LOST = "control_topic_lost"
CONTRADICTIONS: Mapping[str, State] = {
    "source_cluster_changed": "other_source",
    "source_topic_changed": "other_source",
    "source_topic_recreated": "source_recreated",
    "source_records_gone": "records_lost",
    "source_truncated": "source_truncated",
    "target_topic_recreated": "target_recreated",
    "target_topic_deleted": "target_deleted",
    "target_lost_data": "target_lost_data",
    "position_expired": "position_expired",
}
"""States by the incidents that lanes make of the same facts (`lane.judge.compare`, `Claim.without_position`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition. None where nothing is known: offsets without a position, seconds without a record."""

    source_topic: str
    partition: int
    target_topic: str
    position: int | None = None
    source_end: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    last_commit_ms: int | None = None
    generation: int | None = None
    owner: str | None = None
    records_copied: int | None = None
    held_back_records: int = 0
    held_back_since_ms: int | None = None
    state: State


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """All partitions of one flow. `incident`: the name of one that keeps the whole flow from starting."""

    flow: str
    source: str
    target: str
    delivery: str
    partitions: tuple[PartitionStatus, ...]
    incident: str = ""


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """What both clusters say about one source partition. `oldest_ms` is the time of the first record not copied
    (None: no such record); `oldest_known` is False when it could not be read in time. `high_watermark` is above `end`,
    the last stable offset, while a transaction is open at the source; its first record was written at `open_ms`.
    `source_cluster` and `target` (topic id and ends) are compared with the position where they are known."""

    topic: TopicInfo
    partition: int
    target_topic: str
    committed: Committed | None
    start: int
    end: int
    oldest_ms: int | None = None
    oldest_known: bool = True
    high_watermark: int = -1
    open_ms: int | None = None
    source_cluster: str = ""
    target: LogEnds | None = None
    claim: Claim | None = None


def status(flow: Flow, *, now_ms: int, connect_timeout_ms: int) -> FlowStatus:
    """Asks both clusters.

    Args:
        now_ms: wall clock, for ages.
        connect_timeout_ms: how long to wait for each cluster.

    Raises:
        Unreachable, NotAllowed, Retriable: the cluster's name and the missing right are in the message.
    """
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        source_cluster = clusters.connect()[0].cluster_id
        named = clusters.named()
        sources = clusters.list_source(configs=False)
        targets = clusters.list_target(sources)
        clusters.target.group_rights(names.position_group(flow.name))  # NotAllowed now, not a time-out below
        partitions = [Partition(name, n) for name, info in sources.items() for n in range(info.partitions)]
        starts = clusters.source.offsets(partitions, end=False)
        ends = clusters.source.offsets(partitions, end=True, committed_only=True)
        marks = clusters.source.offsets(partitions, end=True)
        there = _target_ends(clusters, {at: _target(flow, at) for at in partitions}, targets)
        claims, incident = _own_topics(clusters)
    committed = _positions(flow, partitions, targets)
    behind = {
        at: position.offset
        for at, position in committed.items()
        if position is not None and starts[at] <= position.offset < ends[at]
    }
    times = offset_reader.times_at(flow.source, flow, behind, TIMES_WAIT_S)
    held = {at: ends[at] for at in partitions if marks[at] > ends[at]}
    opened = offset_reader.times_at(flow.source, flow, held, TIMES_WAIT_S, committed=False)
    rows = [
        describe(
            flow,
            StatusFacts(
                topic=sources[at.topic],
                partition=at.partition,
                target_topic=routing.target_topic(flow, at.topic),
                committed=committed[at],
                start=starts[at],
                end=ends[at],
                oldest_ms=times.get(at),
                oldest_known=at in times or at not in behind,
                high_watermark=marks[at],
                open_ms=opened.get(at),
                source_cluster=source_cluster,
                target=there.get(at),
                claim=claims.get(_target(flow, at)),
            ),
            now_ms,
        )
        for at in partitions
    ]
    rows += [_missing(flow, name) for name in named - sources.keys()]
    rows.sort(key=lambda row: (row.source_topic, row.partition))
    has_run = bool(claims) or any(found is not None for found in committed.values())
    return FlowStatus(
        flow.name, flow.source.name, flow.target.name, flow.delivery.value, tuple(rows), incident if has_run else ""
    )


def _own_topics(clusters: ControlPlane) -> tuple[Mapping[Partition, Claim], str]:
    """The flow's claims, and the name of an incident that keeps a flow that has run from starting.

    Who may not read the flow's own topics is shown the rest.
    """
    try:
        control, claims = clusters.state.control_if_any(), clusters.state.claims_if_any()
    except NotAllowed:
        return {}, ""
    except Incident as incident:
        return {}, incident.name
    lost = control is None or not control.begun
    return claims.claims if claims is not None else {}, CONTROL_LOST if lost else ""


def describe(flow: Flow, facts: StatusFacts, now_ms: int) -> PartitionStatus:
    """One partition's status. Pure."""
    base = {
        "source_topic": facts.topic.name,
        "partition": facts.partition,
        "target_topic": facts.target_topic,
        "source_end": facts.end,
        "held_back_records": max(0, facts.high_watermark - facts.end),
        "held_back_since_ms": _known_ms(facts.open_ms),
    }
    if facts.committed is None:
        waiting = facts.end - facts.start
        state: State = "not_started"
        if facts.claim is not None:
            state = CONTRADICTIONS[facts.claim.without_position(facts.target and facts.target.topic_id)]
        return PartitionStatus(**base, lag_records=waiting, state=state)  # type: ignore[arg-type]
    position = facts.committed.offset
    found = checkpoint.read(facts.committed)
    if not isinstance(found, Position):
        return PartitionStatus(**base, position=position, state="foreign_position")  # type: ignore[arg-type]
    evidence = found.evidence
    nothing_left = facts.oldest_known and facts.oldest_ms is None
    lag_records = 0 if nothing_left else max(0, facts.end - position)
    lag_seconds = _age_s(facts, now_ms, lag_records)
    return PartitionStatus(
        **base,  # type: ignore[arg-type]
        position=position,
        lag_records=lag_records,
        lag_seconds=lag_seconds,
        last_commit_ms=evidence.committed_ms or None,
        generation=evidence.generation,
        owner=evidence.owner or None,
        records_copied=evidence.count,
        state=_state(flow, facts, evidence, now_ms, lag_records, lag_seconds),
    )


def _age_s(facts: StatusFacts, now_ms: int, lag_records: int) -> float | None:
    if lag_records == 0:
        return 0.0
    oldest_ms = _known_ms(facts.oldest_ms)
    return None if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000)


def _known_ms(timestamp_ms: int | None) -> int | None:
    """A record's time, or None: some producers write 0 or -1 for no time at all."""
    return timestamp_ms if timestamp_ms is not None and timestamp_ms > 0 else None


def _state(
    flow: Flow, facts: StatusFacts, evidence: Evidence, now_ms: int, lag_records: int, lag_seconds: float | None
) -> State:
    """The first that holds; what needs a decision comes before what only takes time."""
    assert facts.committed is not None
    position = Position(facts.committed.offset, evidence)
    source = LogEnds(facts.topic.topic_id, facts.start, facts.end, max(facts.end, facts.high_watermark))
    target = facts.target or LogEnds(evidence.target_topic_id, 0, 0, evidence.next_target_offset)
    source_cluster = facts.source_cluster or evidence.source_cluster
    wrong = compare(position, source_cluster, facts.topic.name, source, target, evidence.generation)
    if wrong is not None:
        return CONTRADICTIONS[wrong[0]]
    limit_ms = max(STALLED_MS_MIN, 2 * flow.limits.transaction_timeout_ms, 10 * flow.commit.interval_ms)
    if lag_records == 0:
        open_ms = _known_ms(facts.open_ms)
        hangs = open_ms is not None and now_ms - open_ms > limit_ms
        return "source_waits" if hangs else "in_sync"
    quiet_ms = now_ms - (evidence.moved_ms or evidence.committed_ms)  # a restart commits positions that stand still
    waited_long = lag_seconds is None or lag_seconds * 1000 > limit_ms
    return "stalled" if quiet_ms > limit_ms and waited_long else "behind"


def _positions(
    flow: Flow, partitions: Iterable[Partition], targets: Mapping[str, TopicInfo]
) -> dict[Partition, Committed | None]:
    """Positions by source partition; None also where the target does not have the partition yet."""
    keys = {at: _target(flow, at) for at in partitions}
    there = [key for key in keys.values() if key.topic in targets and key.partition < targets[key.topic].partitions]
    found = offset_reader.positions(flow, there)
    return {at: found.get(key) for at, key in keys.items()}


def _target(flow: Flow, at: Partition) -> Partition:
    return Partition(routing.target_topic(flow, at.topic), at.partition)


def _target_ends(
    clusters: ControlPlane, keys: Mapping[Partition, Partition], targets: Mapping[str, TopicInfo]
) -> dict[Partition, LogEnds]:
    """The target's logs by source partition, of those that exist."""
    there = {
        at: key for at, key in keys.items() if key.topic in targets and key.partition < targets[key.topic].partitions
    }
    ends = clusters.target.offsets(there.values(), end=True)
    return {at: LogEnds(targets[key.topic].topic_id, 0, ends[key], ends[key]) for at, key in there.items()}


def _missing(flow: Flow, name: str) -> PartitionStatus:
    target = routing.target_topic(flow, name)
    return PartitionStatus(source_topic=name, partition=-1, target_topic=target, state="topic_missing")
