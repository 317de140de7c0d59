"""Writes the offset map: a block in each transaction that moves positions. Called by `lane.transaction`; `lane.session`
has it look at the map's topic now and then.

Invariants
- Invariant M1: a block stands in the transaction of the records and positions that it tells of. It is handed over
  directly behind the flush of the records, and waited for with the positions, before EndTxn. Its requests run beside
  those of the positions; before the flush they would wait for the records' registration.
- Invariant M2: a section goes on where the partition's last one ended, as the position says; where the position says
  that it was moved without one the section is a `base`.
- No record waits for the map: where its partition can't be written, or refuses a block, the lane copies without it and
  says so. Positions that move meanwhile name no block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from replicator.incidents import tell_incident
from replicator.lane.map_check import check_newest, written_partitions
from replicator.lane.memory import Memory, SessionContext
from replicator.lane.plan import LanePlan
from replicator.lane.ports import Connections
from replicator.lane.positions import LanePositions
from replicator.model import names
from replicator.model.checkpoint import Position, without_map
from replicator.model.errors import (
    Abortable,
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    TopicMissing,
    Unreachable,
)
from replicator.model.partition import LogEnds, Partition
from replicator.offset_map.block import encode_blocks
from replicator.offset_map.section import MapSection, topic_id_bytes
from replicator.offset_map.topic import map_partition, unfit
from replicator.planes.contract import Copied, MapBlocks

LOOK_S = 0.5
CHECK_S_MAX = 5.0  # a lane has blocks in sixteen partitions of the map's topic, at most
UNANSWERED_MAX = 2  # transactions in a row that failed while their block had no answer


class MapRefused(Abortable):
    """The target doesn't take the block of the open transaction: its records are copied again without one."""


@dataclass(frozen=True, slots=True)
class MappedPositions:
    """Positions that a transaction is to commit, and what its block says of them."""

    positions: Mapping[Partition, Position] = field(default_factory=dict)
    sections: Sequence[MapSection] = ()


class MapWriter:
    """Of one producer session."""

    def __init__(self, plan: LanePlan, to: Connections, memory: Memory, context: SessionContext) -> None:
        self._plan, self._to, self._outage = plan, to, memory.map_outage
        self._clock, self._log = context.clock, context.log
        self._at = Partition(names.offsets_topic(plan.flow.name), map_partition(plan.lane))
        self._topic_id = ""  # of the map topic; empty: no map is written now
        self._behind = -1  # the offset behind the lane's last block; before its first one the end of the log
        self._checked = False
        self._blocks: MapBlocks | None = None  # of the open transaction
        self._looked_s = context.clock.now_s()

    def begin(self, positions: LanePositions) -> None:
        """Find out, after the fence, whether the map can be written, and whether it has what the positions say."""
        if self._plan.writes_map and not self._outage.lasts(self._clock.now_s()):
            self._open(positions)

    def look(self, positions: LanePositions) -> None:
        """Look, between two transactions, whether the map can be written now."""
        now_s = self._clock.now_s()
        if not self._plan.writes_map or now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        if self._topic_id:
            self._left_out(now=False)
        elif not self._outage.lasts(now_s):
            self._open(positions)

    def stalled(self) -> None:
        """Find out, while acknowledgements are late, whether that is for the block. Raises MapRefused."""
        if self._blocks is not None and self._blocks.left and self._left_out(now=True):
            raise MapRefused(self._outage.reason)

    def _left_out(self, *, now: bool) -> bool:
        why = self._to.target.not_ready([self._at], now=now).get(self._at, "") or self._gone()
        if why:
            self._off(why)
        return bool(why)

    def _gone(self) -> str:
        """Say whether the topic that blocks are written to is gone; empty if it is there, or nothing is known."""
        topic, seen = self._at.topic, self._to.target.seen_topic_id(self._at.topic)
        if not self._topic_id or seen is None or seen == self._topic_id:
            return ""
        why = f"{topic} is not the topic any more that the lane has written to" if seen else f"{topic} doesn't exist"
        self._tell_lost(why)
        return why

    def _open(self, positions: LanePositions) -> None:
        if self._left_out(now=False):
            return
        topic = self._at.topic
        there = {self._at} | (set() if self._checked else written_partitions(positions.entries, topic))
        try:
            ends = self._to.target.log_ends(sorted(there))
            own = ends[self._at]
            if not isinstance(own, LogEnds):
                raise own
        except TopicMissing as error:
            if written_partitions(positions.entries, topic):
                self._tell_lost(f"{topic} doesn't exist")
            self._off(str(error))
            return
        except (NotAllowed, Retriable, Unreachable) as error:
            self._off(str(error))
            return
        if own.topic_id not in (self._plan.map_topic_id, self._outage.fit_topic_id) and not self._fit(own.topic_id):
            return
        if not self._checked:
            self._check(positions, own.topic_id, ends)
        self._topic_id, self._behind = own.topic_id, own.end

    def _fit(self, topic_id: str) -> bool:
        """Find out whether this topic, which no one has looked at yet, would lose no block."""
        try:
            shape = self._to.target.topic_shape(self._at.topic)
        except (TopicMissing, NotAllowed, Retriable, Unreachable, Incident) as error:
            self._off(str(error))
            return False
        why = unfit(shape.partitions, shape.configs)
        if why or shape.topic_id != topic_id:
            self._off(f"{self._at.topic} can't be used: {why or 'it was created anew'}")
            return False
        self._outage.fit_topic_id = topic_id
        return True

    def _check(
        self, positions: LanePositions, topic_id: str, ends: Mapping[Partition, LogEnds | ReplicatorError]
    ) -> None:
        """Have the map begin anew where it doesn't have what the positions say.

        The committed ones name their blocks until they are committed again: whoever starts meanwhile finds the same.
        """
        self._checked = True
        until_s, clock = self._clock.now_s() + CHECK_S_MAX, self._clock
        late = lambda: clock.now_s() >= until_s  # noqa: E731
        found = check_newest(positions.entries, self._at.topic, topic_id, dict(ends), self._to.map_log, late)
        for lost in found.lost:
            self._tell_lost(lost)
        for unknown in found.unknown:
            self._log.info("map_not_checked", topic=self._at.topic, reason=unknown)
        for at in found.broken:
            position = positions.entries[at].position
            assert position is not None
            positions.entries[at].position = without_map(position)

    def _tell_lost(self, detail: str) -> None:
        if detail not in self._outage.told:
            self._outage.told.add(detail)
            tell_incident(self._log, Incident("map_lost", detail, topic=self._at.topic))

    def _off(self, reason: str) -> None:
        if not self._outage.reason:
            self._log.warning("map_off", topic=self._at.topic, partition=self._at.partition, reason=reason)
        self._topic_id = ""
        self._outage.begin(reason, self._clock.now_s())

    def mapped(
        self,
        positions: LanePositions,
        moved: Mapping[Partition, Position],
        copied: Mapping[Partition, Copied],
        *,
        gap: bool = False,
    ) -> MappedPositions:
        """Say in positions that are to be committed where their block stands, and make its sections.

        A repair has a section of what it copies again, although its position doesn't move. `gap`: an operator has
        decided that what lies between is left out.
        """
        found: dict[Partition, Position] = {}
        sections: list[MapSection] = []
        for at, position in moved.items():
            before, done = positions.entries[at].position, copied.get(at)
            if before is None or (position.offset == before.offset and not (done is not None and done.runs)):
                found[at] = position
                continue
            section = self._section(at, before, position, done, gap=gap) if self._topic_id else None
            if section is None:
                found[at] = without_map(position) if position.evidence.map_topic_id else position
                continue
            sections.append(section)
            block = {"map_topic_id": self._topic_id, "map_partition": self._at.partition, "map_offset": self._behind}
            found[at] = Position(position.offset, replace(position.evidence, **block))  # type: ignore[arg-type]
        return MappedPositions(found, sections)

    def _section(
        self, at: Partition, before: Position, after: Position, done: Copied | None, *, gap: bool
    ) -> MapSection | None:
        evidence, runs = after.evidence, tuple(done.runs) if done is not None else ()
        try:
            section = MapSection(
                source_topic_id=topic_id_bytes(evidence.source_topic_id),
                partition=at.partition,
                before=before.offset,
                after=after.offset,
                leader_epoch=evidence.leader_epoch,
                log_start=evidence.log_start,
                first_target=done.first_target if done is not None and runs else evidence.next_target_offset,
                count=evidence.count,
                runs=runs,
                base=before.evidence.map_topic_id != self._topic_id,
                gap=gap,
            )
            wrong = section.wrong()
        except ValueError as error:
            wrong = str(error)
        if not wrong and section.records == (done.records if done is not None else 0):
            return section
        detail = wrong or f"{section.records} source offsets of {done.records if done is not None else 0} copies"
        self._log.error("map_section_wrong", topic=at.topic, partition=at.partition, detail=detail)
        return None

    def place_of(self, sections: Sequence[MapSection]) -> Partition | None:
        """Return where the block with these sections is written; None where there is none."""
        return self._at if sections else None

    @contextmanager
    def blocks_of(self, sections: Sequence[MapSection]) -> Iterator[MapBlocks | None]:
        """Make the blocks of a transaction, and take note of what becomes of them while it is committed.

        Raises MapRefused in place of an error that they have caused.
        """
        if not sections:
            yield None
            return
        plan = self._plan
        values = encode_blocks(plan.generation, plan.lane, self._clock.now_ms(), sections)
        self._blocks = blocks = MapBlocks(self._at.partition, values)
        try:
            yield blocks
        except MapRefused:
            raise
        except ReplicatorError as error:
            refused = self._refused(error, blocks)
            if refused:
                self._off(refused)
                if isinstance(error, Abortable | NotAllowed):
                    raise MapRefused(refused) from error
            raise
        finally:
            self._blocks = None
        self._behind = max(self._behind, blocks.last + 1)
        if self._outage.reason:
            self._log.info("map_on", topic=self._at.topic, partition=self._at.partition)
        self._outage.over()

    def _refused(self, error: ReplicatorError, blocks: MapBlocks) -> str:
        """Say why the block, or its partition, is the cause of an error; empty if it isn't."""
        if self._at.topic in str(error):
            return str(error)
        if blocks.refused:
            return blocks.refused
        if not blocks.left:
            return ""
        self._outage.unanswered += 1
        return str(error) if self._outage.unanswered >= UNANSWERED_MAX else ""
