"""What is wrong with a flow's offset map now, seen from outside. Called by `inspect.status`; changes nothing.

None of it stops copying: a lane that finds it goes on, and the map begins anew where it must. What is asked here is
what positions name: the topic's id, and where in it the block before theirs ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import names
from replicator.model.checkpoint import Evidence
from replicator.model.counting import counted
from replicator.model.errors import Incident, NotAllowed, Retriable, Unreachable
from replicator.model.partition import Partition, Span
from replicator.offset_map.topic import unfit
from replicator.wire.map_index import index_of

OPEN_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class MapIncident:
    """One incident of the map's topic. `partition`: of that topic; -1: the whole topic."""

    name: str
    topic: str
    partition: int
    detail: str


@dataclass(frozen=True, slots=True)
class MapTopicFacts:
    """The map's topic as the target has it. `bounds`: where the log of each partition begins and ends; `open_ms`: since
    when a transaction is open, by partition, where one is and that can be known; `covered`: below which offset of each
    partition the map's index has all."""

    info: TopicInfo
    bounds: Mapping[int, Span]
    open_ms: Mapping[int, int]
    covered: Mapping[int, int] = field(default_factory=dict)


def map_incidents(flow: Flow, clusters: ControlPlane, evidence: Collection[Evidence], now_ms: int) -> list[MapIncident]:
    """Find them, after the positions were read. What can't be asked is none: `flow.offsets_topic.map_note` says so.

    Args:
        evidence: of the flow's positions.
        now_ms: wall clock.
    """
    if not any(it.map_topic_id for it in evidence):
        return []
    try:
        info = clusters.offsets_topic()
        facts = None if info is None else _facts(flow, clusters, info)
    except (NotAllowed, Retriable, Unreachable):
        return []
    topic = names.offsets_topic(flow.name)
    return list(found(topic, facts, evidence, now_ms - flow.limits.transaction_timeout_ms))


def _facts(flow: Flow, clusters: ControlPlane, info: TopicInfo) -> MapTopicFacts:
    ats, target = [Partition(info.name, number) for number in range(info.partitions)], clusters.target
    starts = target.offsets(ats, end=False)
    ends = target.offsets(ats, end=True)
    stable = target.offsets(ats, end=True, committed_only=True)  # behind the ends, see `offset_questions.STABLE`
    held = {at: stable[at] for at in ats if stable[at] < ends[at]}
    opened = offset_reader.times_at(flow.target, flow, held, OPEN_WAIT_S, committed=False) if held else {}
    open_ms = {at.partition: time_ms for at, time_ms in opened.items() if time_ms is not None}
    covered = _covered(flow, info) if any(starts.values()) else {}
    return MapTopicFacts(info, {at.partition: (starts[at], ends[at]) for at in ats}, open_ms, covered)


def _covered(flow: Flow, info: TopicInfo) -> Mapping[int, int]:
    """Read up to where the index covers partitions, after the log starts: blocks are deleted behind the commit that
    covers them.
    """
    try:
        with index_of(flow) as (_, root):
            return dict(enumerate(root.covered)) if root is not None and root.is_of(info.topic_id) else {}
    except Incident:
        return {}


def found(
    topic: str, facts: MapTopicFacts | None, evidence: Collection[Evidence], open_before_ms: int
) -> Iterator[MapIncident]:
    """Yield what contradicts the positions. Pure.

    Args:
        facts: None where there is no such topic.
        open_before_ms: a transaction that was begun before that stays open.
    """
    named = [it for it in evidence if it.map_topic_id]
    if facts is None:
        partitions = counted(len(named), "partition")
        yield MapIncident("map_lost", topic, -1, f"it doesn't exist, and positions of {partitions} name blocks in it")
        return
    if why := unfit(facts.info.partitions, facts.info.configs):
        yield MapIncident("map_topic_unfit", topic, -1, why)
    if others := [it for it in named if it.map_topic_id != facts.info.topic_id]:
        partitions = counted(len(others), "partition")
        detail = f"positions of {partitions} have their blocks in another topic of this name"
        yield MapIncident("map_lost", topic, -1, detail)
    newest: dict[int, int] = {}
    for it in named:
        if it.map_topic_id == facts.info.topic_id:
            newest[it.map_partition] = max(newest.get(it.map_partition, 0), it.map_offset)
    for partition, behind in sorted(newest.items()):
        start, end = facts.bounds.get(partition, (0, 0))
        if behind >= end or behind < start > facts.covered.get(partition, 0):
            detail = f"it goes from offset {start} to {end}, and the newest block stood at or behind {behind}"
            yield MapIncident("map_lost", topic, partition, detail)
    for partition, since_ms in sorted(facts.open_ms.items()):
        if since_ms < open_before_ms:
            detail = "a transaction that is open there has outlasted the flow's time-out"
            yield MapIncident("map_transaction_open", topic, partition, detail)
