"""Where a flow stands, read from the target's positions and the source's ends. Nothing is changed.

Called by `eos-replicate status`. What becomes of partitions is decided by the functions that lanes use
(`expected_starts`); what can't be asked of one partition is shown there, and hides no other.

Lag in records is the source's end minus the position, in every state: it also counts markers, aborted and compacted
records. Of a topic that was created again, on either side, it is all that the source has. Lag in seconds is the age
of the oldest record that is not copied yet, by its own timestamp. Records of an open source transaction, and all
behind it, are no lag of the flow's: they are shown by themselves, with the time since when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from replicator.config import Config, Flow, routing
from replicator.config.engine import chosen_engine
from replicator.flow.frozen import being_failed_over, failed_over
from replicator.flow.listing import Listing
from replicator.flow.offsets_topic import map_note
from replicator.flow.topic_rules import ListedTopic
from replicator.flow.topics import ControlPlane
from replicator.flow.unclaimed import unclaimed
from replicator.inspect.expected_starts import (
    ExpectedStart,
    ExpectedStarts,
    StartForecast,
    list_topics,
    no_topic,
    routes_of,
)
from replicator.inspect.flow_status import (
    STATES,
    FlowStatus,
    PartitionStatus,
    State,
    assembled,
    with_decision,
    with_evidence,
    with_failover,
    with_pause,
)
from replicator.inspect.heartbeat import newest_heartbeat_ms
from replicator.inspect.limited import with_limits
from replicator.inspect.map_incidents import map_incidents
from replicator.inspect.missing_rights import with_rights
from replicator.inspect.target_status import own_topics, target_status, told_of_flow
from replicator.kafka import offset_reader
from replicator.lane.partition import Reason
from replicator.model import names
from replicator.model.commands import RECREATED
from replicator.model.contradictions import OF_ANOTHER_SOURCE
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claims
from replicator.state.decisions import OperatorDecision
from replicator.state.occurrences import Occurrence
from replicator.state.run_settings import NO_SETTINGS, RunSettings, rate_of

TIMES_WAIT_S = 5.0
STALLED_MS_MIN = 60_000
WAITS: Mapping[Reason, State] = {
    Reason.GONE: "topic_missing",
    Reason.KEPT: "kept",
    Reason.FAILED_OVER: "failed_over",
}
"""States of partitions that wait for these reasons; all others are `waiting`."""


LOST_SINCE = "what was lost since then is the next incident"


@dataclass(frozen=True, slots=True)
class Times:
    """When records of one partition were written, in ms: the first that isn't copied, and the first of an open
    transaction at the source. None: there is no such record. `oldest_known` is False where the first could not be read
    in time."""

    oldest_ms: int | None = None
    oldest_known: bool = True
    open_ms: int | None = None


def status(flow: Flow, config: Config, *, now_ms: int, connect_timeout_ms: int) -> FlowStatus:
    """Ask both clusters. While the source doesn't answer, it is what the target knows, with `source_error`.

    Args:
        config: the whole file: what other flows of it make a conflict.
        now_ms: wall clock, for ages.
        connect_timeout_ms: how long to wait for each cluster.

    Raises:
        Unreachable, NotAllowed, Retriable: nothing can be known of any partition; the cluster's name and the missing
            right are in the message.
    """
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        source, target = clusters.connect_if_any()
        if isinstance(source, Unreachable):
            return target_status(flow, clusters, str(source), now_ms)
        ids = {flow.source.name: source.cluster_id, flow.target.name: target.cluster_id}
        clusters.target.group_rights(names.position_group(flow.name))  # NotAllowed now, not a time-out below
        sources, listing, _ = list_topics(flow, config, clusters, ids)
        wanted = [routing.target_topic(flow, name) for name in listing.topics if name not in listing.conflicts]
        targets = clusters.listed_target(wanted, rights=True)
        control, claims, incident = own_topics(clusters)
        known = claims or Claims({}, ())
        forecast = StartForecast(flow, clusters, source.cluster_id, control, lambda: now_ms)
        first = {} if control is None else control.first_listing()
        left_out = {} if control is None else control.failed_over
        growing = unclaimed(flow, listing, targets, known, first, clusters.target_logs)
        expected = forecast.decide(routes_of(flow, listing, targets, known, growing, left_out), known)
        no_map = map_note(flow, clusters) if known.claims else ""
        positions = {at: it.position.evidence for at, it in expected.items() if it.position is not None}
        own = [positions[at] for at in positions if not _of_another_source(expected[at])]
        of_map = map_incidents(flow, clusters, own, now_ms)
        heartbeat_ms = newest_heartbeat_ms(flow, clusters, targets)
    times = _times(flow, expected)
    open_, decided = known.open_occurrences(), {} if control is None else control.decisions
    settings = NO_SETTINGS if control is None else control.settings
    rows = [
        with_occurrence(
            describe(flow, it, times.get(at, Times()), now_ms), it, open_.get(it.route.target, ()), decided, settings
        )
        for at, it in expected.items()
    ]
    rows = with_limits(rows, settings.effective(rate_of(flow)), positions, now_ms - _stalled_ms(flow))
    nothing = ListedTopic()
    rows = [
        with_rights(flow, row, sources.get(row.source_topic, nothing), targets.get(row.target_topic, nothing))
        for row in rows
    ]
    rows = [with_pause(row, settings) for row in rows]
    if frozen := failed_over(control):
        rows = [with_failover(row) for row in rows]
    rows += _unlisted(flow, listing, expected)
    has_run = bool(known.claims) or any(it.stored_offset is not None for it in expected.values())
    told = "" if rows else no_topic(flow), chosen_engine(flow).told(), no_map, frozen or being_failed_over(control)
    return replace(
        assembled(flow, rows, control, known, positions),
        incident=told_of_flow(incident, has_run=has_run),
        notes=tuple(note for note in told if note),
        map_incidents=tuple(of_map),
        heartbeat_ms=heartbeat_ms,
    )


def _of_another_source(it: ExpectedStart) -> bool:
    return it.decision.stopped is not None and it.decision.stopped.name in OF_ANOTHER_SOURCE


def with_occurrence(
    row: PartitionStatus,
    it: ExpectedStart,
    open_: Sequence[Occurrence],
    decided: Mapping[str, OperatorDecision],
    settings: RunSettings,
) -> PartitionStatus:
    """Return a partition's status with the occurrence of what stops it, if a lane has written that down. Pure."""
    stopped = it.decision.stopped
    found = next((one for one in open_ if stopped is not None and one.is_of(stopped)), None)
    if found is None or stopped is None:
        return row
    if stopped.name == "source_records_gone" and 0 <= found.end < stopped.end:
        row = replace(row, detail=f"{row.detail}; --skip leaves out those before {found.end} only: {LOST_SINCE}")
    return with_decision(row, found, decided, settings)


def _times(flow: Flow, expected: ExpectedStarts) -> dict[Partition, Times]:
    """Ask for the times of partitions that are behind, and of those that a transaction at the source holds back."""
    logs = {at: it.source for at, it in expected.items() if isinstance(it.source, LogEnds)}
    behind = {
        at: first
        for at, log in logs.items()
        if (first := _first_left(expected[at], log)) is not None and log.start <= first < log.stable
    }
    held = {at: log.stable for at, log in logs.items() if log.end > log.stable}
    oldest = offset_reader.times_at(flow.source, flow, behind, TIMES_WAIT_S)
    opened = offset_reader.times_at(flow.source, flow, held, TIMES_WAIT_S, committed=False)
    return {at: Times(oldest.get(at), at in oldest or at not in behind, opened.get(at)) for at in logs}


def describe(flow: Flow, it: ExpectedStart, times: Times, now_ms: int) -> PartitionStatus:
    """Describe one partition's status. Pure."""
    source, position, decision = it.source, it.position, it.decision
    end = source.stable if isinstance(source, LogEnds) else None
    state, lag_records = _state(flow, it, times, now_ms), _lag(it)
    first = _first_left(it, source) if isinstance(source, LogEnds) else None
    nothing_left = first is not None and isinstance(source, LogEnds) and _nothing_left(first, source, times)
    row = PartitionStatus(
        source_topic=it.route.source.topic,
        partition=it.route.source.partition,
        target_topic=it.route.target.topic,
        position=it.stored_offset,
        source_end=end,
        lag_records=lag_records,
        lag_seconds=0.0 if nothing_left else _age_s(times, now_ms) if first is not None else None,
        held_back_records=max(0, source.end - source.stable) if isinstance(source, LogEnds) else 0,
        held_back_since_ms=_known_ms(times.open_ms),
        state=state,
        incident=decision.stopped.name if decision.stopped else "",
        detail=_detail(it),
    )
    return with_evidence(row, None if position is None else position.evidence)


def _first_left(it: ExpectedStart, source: LogEnds) -> int | None:
    """Return the first source offset that isn't copied, None without a position. Of a topic that was created again, on
    either side, that is where the source's log begins: Kafka deletes the position together with a target topic."""
    if it.decision.stopped is not None and it.decision.stopped.name in RECREATED:
        return source.start
    return None if it.position is None else it.position.offset


def _lag(it: ExpectedStart) -> int | None:
    """Count what of the source isn't copied. Of a topic that was created again, on either side, that is all of it."""
    source, name = it.source, it.decision.stopped.name if it.decision.stopped else ""
    if not isinstance(source, LogEnds) or isinstance(it.stored, ReplicatorError):
        return None
    if it.stored is None or name in RECREATED:
        return source.stable - source.start
    return None if it.position is None else max(0, source.stable - it.position.offset)


def _nothing_left(position: int, source: LogEnds, times: Times) -> bool:
    """Return whether there is no record to copy: markers and aborted records may still stand behind the position."""
    return position >= source.stable or (position >= source.start and times.oldest_known and times.oldest_ms is None)


def _age_s(times: Times, now_ms: int) -> float | None:
    oldest_ms = _known_ms(times.oldest_ms)
    return None if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000)


def _known_ms(timestamp_ms: int | None) -> int | None:
    """Return a record's time, or None: some producers write 0 or -1 for no time at all."""
    return timestamp_ms if timestamp_ms is not None and timestamp_ms > 0 else None


def _detail(it: ExpectedStart) -> str:
    if it.decision.stopped is not None:
        return it.decision.stopped.detail
    return "" if it.decision.waits is None or it.to_be_made else it.decision.waits[1]


def _state(flow: Flow, it: ExpectedStart, times: Times, now_ms: int) -> State:
    """Return the first state that holds; what needs a decision comes before what only takes time."""
    source, position = it.source, it.position
    if it.decision.stopped is not None:
        return STATES.get(it.decision.stopped.name, "stopped")
    if it.decision.waits is not None and not it.to_be_made:
        return WAITS.get(it.decision.waits[0], "waiting")
    if position is None or not isinstance(source, LogEnds):
        return "not_started"
    limit_ms = _stalled_ms(flow)
    if _nothing_left(position.offset, source, times):
        open_ms = _known_ms(times.open_ms)
        hangs = open_ms is not None and now_ms - open_ms > limit_ms
        return "source_waits" if hangs else "in_sync"
    evidence, lag_seconds = position.evidence, _age_s(times, now_ms)
    quiet_ms = now_ms - (evidence.moved_ms or evidence.committed_ms)  # a restart commits positions that stand still
    waited_long = lag_seconds is None or lag_seconds * 1000 > limit_ms
    return "stalled" if quiet_ms > limit_ms and waited_long else "behind"


def _stalled_ms(flow: Flow) -> int:
    """Return how long a position stands still before that is told."""
    return max(STALLED_MS_MIN, 2 * flow.limits.transaction_timeout_ms, 10 * flow.commit.interval_ms)


def _unlisted(flow: Flow, listing: Listing, expected: ExpectedStarts) -> list[PartitionStatus]:
    """List topics that the flow names or has seen, and of which no partition can be shown."""
    shown = {at.topic for at in expected}
    found = [_topic(flow, missing.topic, "topic_missing", missing.name, missing.detail) for missing in listing.missing]
    found += [_topic(flow, name, "waiting", "", str(denied)) for name, denied in listing.hidden.items()]
    return [row for row in found if row.source_topic not in shown]


def _topic(flow: Flow, name: str, state: State, incident: str, detail: str) -> PartitionStatus:
    target = routing.target_topic(flow, name)
    return PartitionStatus(
        source_topic=name, partition=-1, target_topic=target, state=state, incident=incident, detail=detail
    )
