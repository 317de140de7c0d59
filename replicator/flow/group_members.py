"""Who shares a flow: the members of its workers' group, the lanes that each has, and since when. Nothing is changed.

Read by `eos-replicate workers`, and by each worker at its discoveries. The group says which lanes a member has been
given; what a worker has proved of a lane last says who runs it (`workers.proofs`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.kafka.admin import GroupMember
from replicator.kafka.group_offsets import GroupOffsets
from replicator.kafka.offset_reader import metadata_of
from replicator.model import names
from replicator.model.errors import Unsupported
from replicator.model.partition import Partition
from replicator.state.generation import Generation
from replicator.wire.committed_offsets import CommittedOffsets
from replicator.wire.consumer_members import consumer_members
from replicator.wire.lane_assignment import assigned_lanes
from replicator.workers import early, proofs
from replicator.workers.proofs import BadProof, ProofMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLane:
    """A lane that a worker has been given. `since_ms`: wall clock at which it began to run it; None: it is about to."""

    lane: int
    since_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWorker:
    """A member of the group. `pid` is None, and `host` its client.id, for one that is no worker. `version` and
    `generation`: of the program and of the flow, as it has proved them last; empty and None for one without lanes."""

    host: str
    pid: int | None
    address: str
    lanes: tuple[HeldLane, ...]
    version: str = ""
    generation: int | None = None

    @property
    def since_ms(self) -> int | None:
        """When it began to run the last of its lanes; None before that of the first."""
        return max((it.since_ms for it in self.lanes if it.since_ms is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowWorkers:
    """All of a flow. `unassigned`: lanes that no member has, for the moment or because nobody shares the flow."""

    flow: str
    generation: int | None
    lanes: int
    workers: tuple[ShownWorker, ...]
    unassigned: tuple[int, ...]


def read_workers(flow: Flow, plane: ControlPlane, generation: Generation | None) -> FlowWorkers:
    """Ask the target, to which `plane` is connected. `generation`: the open one.

    Raises Unreachable, NotAllowed, Retriable.
    """
    return shown(
        flow.name, generation, members_of(plane), {} if generation is None else _proofs(flow, plane, generation)
    )


def members_of(plane: ControlPlane, timeout_s: float | None = None) -> list[GroupMember]:
    """List all members of the flow's group. A client of the new protocol that has taken its name, or joins it, turns it
    into a group of that protocol (KIP-848), in which the workers stay. From any thread. `timeout_s`: instead of the
    request timeout. Raises Unreachable, NotAllowed, Retriable."""
    group = names.workers_group(plane.flow.name)
    limit_s = plane.flow.limits.request_timeout_ms / 1000 if timeout_s is None else timeout_s
    return plane.target.members(group, limit_s, _of_new_protocol(plane, limit_s))


def count_members_of(plane: ControlPlane) -> int:
    """Count them. Raises also NotAllowed where the user may not describe the group: it isn't known then."""
    hidden = _of_new_protocol(plane, plane.flow.limits.request_timeout_ms / 1000)
    return plane.target.count_members(names.workers_group(plane.flow.name), hidden)


def _of_new_protocol(plane: ControlPlane, limit_s: float) -> Callable[[], list[GroupMember]]:
    return partial(consumer_members, plane.flow.target, names.workers_group(plane.flow.name), limit_s)


def _proofs(flow: Flow, plane: ControlPlane, generation: Generation) -> dict[int, ProofMetadata]:
    topic, group = names.lanes_topic(flow.name, generation.lanes), names.workers_group(flow.name)
    info = plane.target.topics((topic,)).get(topic)
    if info is None:
        return {}
    asked = [Partition(topic, lane) for lane in range(min(info.partitions, generation.lanes))]
    found: dict[int, ProofMetadata] = {}
    for lane, metadata in _committed(flow, group, asked):
        try:
            found[lane] = proofs.decode(metadata)
        except BadProof:
            continue  # nobody has run it yet, or another program has committed there
    return found


def _committed(flow: Flow, group: str, asked: Sequence[Partition]) -> list[tuple[int, str]]:
    """Read what stands beside the offsets that a group has committed, by partition."""
    with closing(CommittedOffsets(flow, flow.target, group, threading.Event(), "members")) as offsets:
        try:
            return [(at.partition, it.metadata) for at, it in offsets.read_committed_positions(asked).items()]
        except Unsupported:
            pass
    with closing(GroupOffsets(flow, flow.target, group, f"read group {group!r}")) as answers:
        return [(it.partition, metadata_of(it)) for it in answers.ask(asked)]


def shown(
    flow: str, generation: Generation | None, members: Sequence[GroupMember], proved: Mapping[int, ProofMetadata]
) -> FlowWorkers:
    """Put together what was read. Pure."""
    lanes = 0 if generation is None else generation.lanes
    topic = names.lanes_topic(flow, lanes)
    workers = tuple(
        sorted((_worker(member, topic, proved) for member in members), key=lambda it: (it.host, it.pid or 0))
    )
    held = {each.lane for worker in workers for each in worker.lanes}
    return FlowWorkers(
        flow=flow,
        generation=None if generation is None else generation.number,
        lanes=lanes,
        workers=workers,
        unassigned=tuple(lane for lane in range(lanes) if lane not in held),
    )


def _worker(member: GroupMember, topic: str, proved: Mapping[int, ProofMetadata]) -> ShownWorker:
    name = early.parsed(member.client_id)
    given = sorted(assigned_lanes(member.assignment, topic))
    own = f"{name.host}:{name.pid}:" if name is not None else ""
    its = {lane: proved[lane] for lane in given if own and lane in proved and proved[lane].owner.startswith(own)}
    newest = max(its.values(), key=lambda it: it.since_ms, default=None)
    return ShownWorker(
        host=member.client_id if name is None else name.host,
        pid=None if name is None else name.pid,
        address=member.host,
        lanes=tuple(HeldLane(lane=lane, since_ms=its[lane].since_ms if lane in its else None) for lane in given),
        version="" if newest is None else newest.version,
        generation=None if newest is None else newest.generation,
    )
