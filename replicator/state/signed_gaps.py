"""What operators have decided to leave out or to take as it is: the record of it, for `status` and reconcile. Pure.

Made of the closed occurrences in the claims topic. A gap that is signed is listed, and is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from replicator.model.commands import SOURCE_RECREATED
from replicator.model.partition import Partition
from replicator.state.occurrences import Ending, Occurrence

POSITION_SET = "position_set"
"""In place of an incident's name: `position set` has moved the position."""
ADOPT_MM2 = "adopt_mm2"
"""The same: `adopt-mm2` has set it where MirrorMaker 2 had ended."""
_ADOPTED = (Ending.ADOPTED, Ending.RESTARTED)
"""What the target has before is not the flow's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedGap:
    """Source offsets [`first`, `end`) of one partition that are not copied, because `by` has decided so.

    `command`: by which one; `incident`: the name of the one that was decided about; `acted_ms`: when the position went
    past them, and `decided_ms` when that was decided. `kept`: how much of a record that was set aside is held.
    """

    occurrence: str
    topic: str
    partition: int
    target_topic: str
    first: int
    end: int
    incident: str
    command: str
    by: str
    why: str
    decided_ms: int
    acted_ms: int
    kept: str = ""

    def copied_to(self, target: Partition) -> bool:
        """Return whether the copy would stand in this partition."""
        return target == (self.target_topic, self.partition)

    @property
    def said(self) -> str:
        """What was left out and by whom, for people."""
        last = self.end - 1
        offsets = f"offset {last} was" if self.first == last else f"offsets {self.first} to {last} were"
        why = f": {self.why}" if self.why else ""
        kept = f", kept {self.kept}" if self.kept else ""
        how = "position set" if self.incident == POSITION_SET else f"{self.incident}, --{self.command}{kept}"
        return f"source {offsets} left out ({how}), as {self.by} has decided{why}"


def signed_gaps(occurrences: Iterable[Occurrence]) -> tuple[SignedGap, ...]:
    """Return what was left out by decisions, by topic, partition and offset. `occurrences` stand as `read_claims` gives
    them.

    What a partition was copied again from, because an operator has adopted its target at an offset below, is not left
    out any more.
    """
    occurrences = tuple(occurrences)
    adopted = [it for it in occurrences if it.closing is not None and it.closing.effect in _ADOPTED]
    order = {it.id: (it.generation, number) for number, it in enumerate(occurrences)}
    found = [_without(gap, it, adopted, order) for it in occurrences if (gap := _gap(it)) is not None]
    return tuple(sorted(filter(None, found), key=lambda it: (it.topic, it.partition, it.first)))


def _without(
    gap: SignedGap, of: Occurrence, adopted: Sequence[Occurrence], order: Mapping[str, tuple[int, int]]
) -> SignedGap | None:
    """Return what is left of a gap after later adoptions of its partition; nothing once another topic is there.

    What is later is told by the generation, as `position set` has one of its own, and within one by the order of the
    claims topic's records: by no clock.
    """
    later = [
        -1 if it.closing.effect is Ending.RESTARTED else it.closing.moved[1]
        for it in adopted
        if (it.source, it.target) == (of.source, of.target)
        and it.closing is not None
        and it.closing.moved is not None
        and order[it.id] > order[of.id]
    ]
    end = min((gap.end, *later))
    return replace(gap, end=end) if end > gap.first else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What one target partition had was taken for the copy of all before source offset `offset`, because `by` has
    decided so at `decided_ms`; `acted_ms`: when the partition got its position. Else as `SignedGap`.

    `target_end`: where the target ended then. `former_topic_id`: where a topic was created again, and the one that is
    there now is copied from `offset` on, the id of the one before: what the target has below `target_end` is of that
    one, or was in it. `former_other_id`: where the other side's topic was created again, too, the id of the one before
    on that side: nothing of either is left.
    """

    occurrence: str
    topic: str
    partition: int
    target_topic: str
    offset: int
    incident: str
    by: str
    why: str
    decided_ms: int
    acted_ms: int
    target_end: int = -1
    former_topic_id: str = ""
    former_other_id: str = ""
    copied_end: int = -1
    """Where the source's log was cut: the target has copies of the offsets from `offset` to before this one, of records
    that the source has lost."""
    doubled: str = ""
    """What another replicator, whose copy was adopted, had copied more than once, for people."""

    def copied_to(self, target: Partition) -> bool:
        """Return whether that is this partition."""
        return target == (self.target_topic, self.partition)

    @property
    def said(self) -> str:
        """What was decided, for people."""
        how = {POSITION_SET: "position set", ADOPT_MM2: "adopt-mm2"}.get(self.incident, f"{self.incident}, --adopt")
        if self.former_topic_id:
            return (
                f"{self._gone} is copied from source offset {self.offset} on ({self.incident}, --restart-topic), as "
                f"{self.by} has decided: {self.why}"
            )
        if self.copied_end >= 0:
            return (
                f"the source has lost its records of offsets {self.offset} to {self.copied_end - 1}, which were copied "
                f"and stay on the target; the records that have these offsets now are copied after them "
                f"({self.incident}, --skip), as {self.by} has decided: {self.why}"
            )
        doubled = f"; {self.doubled}" if self.doubled else ""
        return (
            f"the records that the target had count as the copy of the source offsets before {self.offset} ({how}), as "
            f"{self.by} has decided: {self.why}{doubled}"
        )

    @property
    def _gone(self) -> str:
        """Which topics are gone of one that is copied from its beginning, and what stays of them."""
        of_source = self.incident == SOURCE_RECREATED
        if self.former_other_id:
            here, there = self.former_topic_id, self.former_other_id
            if not of_source:
                here, there = there, here
            return (
                f"the target topic with the id {there} was deleted, and so was the source topic with the id {here}; "
                f"{self._before}the one that is there now"
            )
        if of_source:
            return (
                f"target offsets below {self.target_end} are of the source topic with the id {self.former_topic_id}, "
                "which was deleted; the one that is there now"
            )
        return f"the target topic with the id {self.former_topic_id} was deleted; {self._before}the source topic"

    @property
    def _before(self) -> str:
        """What the new target topic had before, which is none of the flow's."""
        end = self.target_end
        return (
            f"target offsets below {end} of the new one were there before and are not the flow's; " if end > 0 else ""
        )


def adoptions(occurrences: Iterable[Occurrence]) -> tuple[Adoption, ...]:
    """Return where positions come from an operator, by topic, partition and time."""
    found = [
        Adoption(
            occurrence=it.id,
            topic=it.source.topic,
            partition=it.source.partition,
            target_topic=it.target.topic,
            offset=decision.end,
            incident=it.name,
            by=decision.by,
            why=decision.why,
            decided_ms=decision.at_ms,
            acted_ms=it.closing.at_ms,
            target_end=-1 if decision.adopted is None else decision.adopted.target_end,
            former_topic_id="" if decision.adopted is None else decision.adopted.former_topic_id,
            former_other_id="" if decision.adopted is None else decision.adopted.former_other_id,
            copied_end=decision.offset if decision.goes_back else -1,
            doubled=it.detail if it.name == ADOPT_MM2 else "",
        )
        for it in occurrences
        if it.closing is not None and it.closing.effect in _ADOPTED and (decision := it.closing.decision)
    ]
    return tuple(sorted(found, key=lambda it: (it.topic, it.partition, it.acted_ms)))


def _gap(it: Occurrence) -> SignedGap | None:
    if it.closing is None or it.closing.moved is None or it.closing.decision is None:
        return None
    if it.closing.effect in _ADOPTED:  # nobody knows what the target has of what is before
        return None
    decision = it.closing.decision
    return SignedGap(
        occurrence=it.id,
        topic=it.source.topic,
        partition=it.source.partition,
        target_topic=it.target.topic,
        first=it.offset,
        end=it.closing.moved[1],
        incident=it.name,
        command=decision.command.value,
        by=decision.by,
        why=decision.why,
        decided_ms=decision.at_ms,
        acted_ms=it.closing.at_ms,
        kept=it.closing.kept,
    )
