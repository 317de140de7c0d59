"""What both clusters say of the partitions of a job, before and after its generation is open. Changes nothing.

Used by backfill, continuous rounds, repair and a job's generation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from replicator.config import Flow
from replicator.config.routing import target_topic
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.lane import facts as lane_facts
from replicator.lane.ports import ClusterQuestions
from replicator.model.checkpoint import NOBODY, Evidence, Position, Stored, Unreadable
from replicator.model.contradictions import told_by_an_old_leader
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claims
from replicator.state.control_topic import Control


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One source partition: its log start, its last stable offset, and the flow's position in it, if it has one.

    `end` is where a job ends, which may have fixed it some time ago; `log_end` is the log's own one, also behind open
    transactions, as the source says now (-1: not asked for). `topic_id` is its topic's, as the source says now.
    `evidence` is None without a position, and where somebody else's commit stands in place of it, which is `stray`.
    """

    log_start: int
    end: int
    position: int | None = None
    evidence: Evidence | None = None
    topic_id: str = ""
    log_end: int = -1
    stray: Unreadable | None = None

    @property
    def cut(self) -> bool:
        """Whether the source's log ends below the position: what was copied behind its end is gone. Not where somebody
        else has committed what stands there."""
        return self.position is not None and self.evidence is not None and 0 <= self.log_end < self.position

    @property
    def records(self) -> int:
        """Records that the flow has committed there so far."""
        return self.evidence.count if self.evidence else 0

    def at(self, found: Stored | None) -> PartitionOffsets:
        """Return the same partition with the position that stands there now."""
        if found is None:
            return self
        if isinstance(found, Unreadable):
            return replace(self, position=found.offset, evidence=None, stray=found)
        return replace(self, position=found.offset, evidence=found.evidence, stray=None)


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """The offsets of those partitions that could be read, and why the others could not."""

    found: Mapping[Partition, PartitionOffsets] = field(default_factory=dict)
    errors: Mapping[Partition, ReplicatorError] = field(default_factory=dict)

    def all(self) -> Mapping[Partition, PartitionOffsets]:
        """Return the offsets. Raises the first error."""
        for error in self.errors.values():
            raise error
        return self.found


def existing_targets(
    flow: Flow, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo]
) -> dict[Partition, Partition | None]:
    """Return all partitions of these source topics, with their target partitions; None where the target doesn't have
    one.
    """
    found: dict[Partition, Partition | None] = {}
    for name, info in sources.items():
        to = target_topic(flow, name)
        there = targets[to].partitions if to in targets else 0
        for number in range(info.partitions):
            found[Partition(name, number)] = Partition(to, number) if number < there else None
    return found


def read_offsets(
    flow: Flow, source: ClusterQuestions, targets: Mapping[Partition, Partition | None], *, stable: bool
) -> ReadOffsets:
    """Read positions, then the ends of the source's logs: an end that is read first may lie below a position that was
    committed since, which is how lost records look (as in `lane.facts`).

    Args:
        targets: the partitions, see `existing_targets`.
        stable: wait for transactions over the positions to end; without it the answer is the last committed one.

    Raises:
        Unreachable, NotAllowed, Retriable: an error never reads as "no position". Unreachable also where no leader
            answers: nothing is known of any partition then.
    """
    positions = offset_reader.positions(flow, [to for to in targets.values() if to is not None], stable=stable)
    ends = source.log_ends(targets)
    if (away := [end for end in ends.values() if isinstance(end, Unreachable)]) and len(away) == len(ends):
        raise away[0]
    found: dict[Partition, PartitionOffsets] = {}
    errors: dict[Partition, ReplicatorError] = {}
    for at, to in targets.items():
        log = ends[at]
        if isinstance(log, LogEnds):
            stored = positions[to] if to is not None else None
            read = PartitionOffsets(log.start, log.stable, topic_id=log.topic_id, log_end=log.end).at(stored)
            if read.cut and isinstance(stored, Position) and told_by_an_old_leader(stored, log):
                source.ask_another()
                errors[at] = Unreachable(f"{at}: an old leader says that the log ends at {log.end}, below the position")
            else:
                found[at] = read
        else:
            errors[at] = log
    return ReadOffsets(found, errors)


def read_evidence(flow: Flow, targets: Mapping[Partition, Partition | None]) -> dict[Partition, Evidence | None]:
    """Read the evidence of all positions, see `existing_targets`: their owners hold them whatever the source says.
    Raises as `read_offsets`."""
    stored = offset_reader.positions(flow, [to for to in targets.values() if to is not None], stable=False)
    positions = {at: stored[to] for at, to in targets.items() if to is not None}
    return {at: it.evidence for at, it in positions.items() if isinstance(it, Position)}


def owners(evidence: Mapping[Partition, Evidence | None], generation: int) -> dict[str, list[Partition]]:
    """Say who owns partitions under this generation: workers that did not release them at a clean stop."""
    found: dict[str, list[Partition]] = {}
    for at in sorted(evidence):
        it = evidence[at]
        if it is not None and it.generation == generation and it.owner != NOBODY:
            found.setdefault(it.owner, []).append(at)
    return found


def first_offsets(
    flow: Flow, offsets: Mapping[Partition, PartitionOffsets], control: Control, source: ClusterQuestions
) -> dict[Partition, int]:
    """Say where partitions without a position begin by the flow's own `start`; a job copies history, so `latest` is
    none.

    Of a flow that was never opened that is what `start` says now. Otherwise it is what was resolved when it was opened,
    and earliest for partitions that were not there then. Raises as `offsets_at`, and Incident (`Control.starts`).
    """
    fresh = {at: read for at, read in offsets.items() if read.position is None}
    found = {at: read.log_start for at, read in fresh.items()}
    if control.generations:
        logs = {at: LogEnds(read.topic_id, read.log_start, read.end, read.end) for at, read in fresh.items()}
        found |= raise_errors(lane_facts.first_offsets(flow, source, logs, control))
    elif flow.start.kind == "latest":
        found |= {at: read.end for at, read in fresh.items()}
    elif flow.start.kind == "timestamp" and fresh:
        found |= offsets_at(source, fresh, flow.start.timestamp_ms, fresh)
    return found


def offsets_at(
    source: ClusterQuestions,
    partitions: Collection[Partition],
    timestamp_ms: int,
    offsets: Mapping[Partition, PartitionOffsets],
) -> dict[Partition, int]:
    """Find the first offset at or after a time, the end in `offsets` where there is none.

    Raises NotAllowed, Unreachable, Retriable.
    """
    return raise_errors(lane_facts.offsets_of_time(source, {at: offsets[at].end for at in partitions}, timestamp_ms))


def raise_errors(answers: Mapping[Partition, int | ReplicatorError]) -> dict[Partition, int]:
    """Return the answers, if none of them is an error; raise the first that is."""
    found: dict[Partition, int] = {}
    for at, offset in answers.items():
        if isinstance(offset, ReplicatorError):
            raise offset
        found[at] = offset
    return found


def claimed_offsets(claims: Claims | None) -> dict[Partition, int]:
    """Say where the copy of each source partition began; nothing of a flow without a claims topic."""
    return {} if claims is None else {claim.source: claim.offset for claim in claims.claims.values()}
