"""Which offsets of both sides of one partition must hold the same records, from what both clusters say of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from replicator.config import Delivery, Flow
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.checkpoint import Evidence, Position, Stored
from replicator.model.contradictions import compare
from replicator.model.errors import Incident
from replicator.model.partition import LogEnds, Partition, Span
from replicator.offset_map.delivered import TakesSections
from replicator.proof import copied_again
from replicator.proof.copied_again import CopiedRun
from replicator.proof.former_targets import NOT_RENAMED, FormerTarget, Generations, OwnSections
from replicator.state.claims import Claim, Claims, Repair
from replicator.state.signed_gaps import Adoption, SignedGap, adoptions, signed_gaps

_OTHER_DATA = ("source_cluster_changed", "source_topic_changed", "source_topic_recreated", "target_topic_recreated")
"""Contradictions between a position and its clusters after which a comparison would mean nothing."""


class DigestBlock(NamedTuple):
    """The last block of a position's digest: offsets [first, end) of the target; else as of `Evidence`."""

    first: int
    end: int
    kind: str
    digest: str
    before: str
    codecs: int


class WaitingPair(NamedTuple):
    """A source partition that the flow has not begun to copy, and the offsets [first, end) that it has."""

    source: Partition
    offsets: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A partition of both sides with the offsets to compare.

    `source_origin`, `target_origin`: where the flow began; `source_start`, `target_start`: where the logs begin, as far
    as they were asked last. `source_id`, `target_id`: the topics' ids.
    `source_copied_end`: the position. `source_log_end`, `target_log_end`: where the logs ended.
    `exactly_once`: the flow's delivery, according to the position.
    `count`: records of the whole range according to the position; None where it says nothing about this range.
    `covered_end`: the target offset below which the position covers records.
    `copied_again`: what the flow's repairs have copied, as the claims topic says.
    `block`: the last block of the position's digest; None: it has none.
    `map_topic_id`: of the offset map's topic, in which the position's transaction wrote a block; empty: it wrote none.
    `signed_gaps`: source offsets that operators have decided to leave out: they need not be on the target.
    `generations`: those in which it was copied here, and elsewhere.
    `adopted`: the source offset before which nothing was compared, because an operator has decided to go on there.
    `notes`: what a reader of the report should know, in sentences.
    """

    source: Partition
    target: Partition
    source_range: Span
    target_range: Span
    source_origin: int = 0
    target_origin: int = 0
    source_start: int = 0
    target_start: int = 0
    source_id: str = ""
    target_id: str = ""
    source_copied_end: int = 0
    source_log_end: int = 0
    target_log_end: int = 0
    source_compacted: bool = False
    target_compacted: bool = False
    exactly_once: bool = True
    count: int | None = None
    covered_end: int = -1
    copied_again: tuple[CopiedRun, ...] = ()
    block: DigestBlock | None = None
    map_topic_id: str = ""
    signed_gaps: tuple[SignedGap, ...] = ()
    adopted: int | None = None
    generations: Generations = NOT_RENAMED
    notes: tuple[str, ...] = ()

    def at(self, of_source: bool) -> Partition:
        """Return the partition of either side."""
        return self.source if of_source else self.target

    def offsets(self, of_source: bool) -> Span:
        """Return what is compared of it."""
        return self.source_range if of_source else self.target_range

    def beginning_at(self, source_start: int, target_start: int) -> Pair:
        """Return the pair with the beginnings of its logs as they were asked for once more: they only move up."""
        return replace(
            self,
            source_start=max(self.source_start, source_start),
            target_start=max(self.target_start, target_start),
        )

    @property
    def source_cut(self) -> bool:
        """Whether retention or DeleteRecords removed records that were copied, and this range begins behind them."""
        return self.source_removed_max > 0 and self.source_start >= self.source_range[0]

    @property
    def target_cut(self) -> bool:
        """The same of the target."""
        return self.target_removed_max > 0 and self.target_start >= self.target_range[0]

    @property
    def source_removed_max(self) -> int:
        """At most so many of the flow's records are gone from the source's beginning."""
        return max(0, self.source_start - self.source_origin)

    @property
    def target_removed_max(self) -> int:
        """The same of the target."""
        return max(0, self.target_start - self.target_origin)


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What both clusters say about one partition. `source_stable`: the source's last stable offset. `target_end_before`
    was read before the position."""

    source: Partition
    target: Partition
    source_topic: TopicInfo
    target_topic: TopicInfo
    source_cluster: str
    position: Stored
    source_bounds: Span
    source_stable: int
    target_bounds: Span
    target_end_before: int
    claimed: Claim | None = None
    repairs: tuple[Repair, ...] = ()
    signed_gaps: tuple[SignedGap, ...] = ()
    adoptions: tuple[Adoption, ...] = ()
    former: tuple[FormerTarget, ...] = ()
    notes: tuple[str, ...] = ()


def with_claims(
    facts: Iterable[PairFacts], claims: Claims | None, former: Mapping[Partition, tuple[FormerTarget, ...]]
) -> list[PairFacts]:
    """Add what the claims topic says of each. `former`: as of `former_targets`. Pure."""
    if claims is None:
        return list(facts)
    signed, adopted = signed_gaps(claims.occurrences), adoptions(claims.occurrences)
    return [
        replace(
            it,
            claimed=claims.claims.get(it.target),
            repairs=tuple(repair for repair in claims.repairs if repair.target == it.target),
            signed_gaps=tuple(gap for gap in signed if gap.copied_to(it.target) and gap.end <= it.position.offset),
            adoptions=tuple(each for each in adopted if each.copied_to(it.target)),
            former=former.get(it.source, ()),
        )
        for it in facts
    ]


def pairs_of(flow: Flow, facts: Sequence[PairFacts]) -> tuple[tuple[Pair, ...], tuple[Incident, ...]]:
    """Decide what to compare of all partitions, and an incident for each that can't be. Pure.

    A topic that was created again hides no other. Raises its Incident when nothing is left to compare.
    """
    pairs, incidents = list[Pair](), list[Incident]()
    for item in facts:
        try:
            pairs.append(pair_of(flow, item))
        except Incident as incident:
            incidents.append(incident)
    if not pairs:
        raise incidents[0]
    return tuple(pairs), tuple(incidents)


def pair_of(flow: Flow, facts: PairFacts) -> Pair:
    """Decide what to compare of one partition. Pure. Raises Incident when the position was written for other topics."""
    position = readable(facts.source, facts.position)
    evidence = position.evidence
    here = LogEnds(facts.source_topic.topic_id, facts.source_bounds[0], facts.source_bounds[1], facts.source_bounds[1])
    there = LogEnds(facts.target_topic.topic_id, facts.target_bounds[0], facts.target_bounds[1], facts.target_bounds[1])
    notes = list(facts.notes)
    wrong = compare(position, facts.source_cluster, facts.source.topic, here, there, evidence.generation)
    if wrong is not None:
        name, detail = wrong
        if name in _OTHER_DATA:
            at = facts.source
            raise Incident(name, detail, topic=at.topic, partition=at.partition, offset=position.offset)
        notes.append(f"{name}: {detail}")
    shown, hidden = _shown(facts, position.offset)
    notes += hidden
    notes += [gap.said for gap in facts.signed_gaps]
    notes += [adopted.said for adopted in facts.adoptions]
    notes += [former.said(facts.source) for former in facts.former]
    claim, exactly_once = facts.claimed, evidence.delivery == Delivery.EXACTLY_ONCE.value
    origin = evidence.log_start if claim is None else claim.offset
    if claim is None:
        notes.append("no claim says where the flow began; taken from the source's log start of that time")
    if not exactly_once:
        notes.append(f"copied with delivery {evidence.delivery}: differences are to be expected")
    began = _began(facts)
    source_start = facts.source_bounds[0]
    target_start, target_end = facts.target_bounds
    first = max(began, target_start)
    end = evidence.next_target_offset
    if (
        evidence.delivery != Delivery.AT_LEAST_ONCE.value
    ):  # there, positions follow the records: what is behind is in flight
        end = max(end, facts.target_end_before)
    end = min(end, target_end)
    return Pair(
        source=facts.source,
        target=facts.target,
        source_range=(max(origin, source_start), shown),
        target_range=(first, max(first, end)),
        source_origin=origin,
        target_origin=began,
        source_start=source_start,
        target_start=target_start,
        source_id=facts.source_topic.topic_id,
        target_id=facts.target_topic.topic_id,
        source_copied_end=position.offset,
        source_log_end=facts.source_stable,
        target_log_end=target_end,
        exactly_once=exactly_once,
        source_compacted="compact" in facts.source_topic.configs.get("cleanup.policy", ""),
        target_compacted="compact" in facts.target_topic.configs.get("cleanup.policy", ""),
        count=evidence.count,
        covered_end=evidence.next_target_offset,
        copied_again=copied_again.runs(
            facts.repairs, facts.target, (facts.source_topic.topic_id, facts.target_topic.topic_id), began
        ),
        block=_block(evidence),
        map_topic_id=evidence.map_topic_id,
        signed_gaps=facts.signed_gaps,
        adopted=max((adopted.offset for adopted in facts.adoptions), default=None),
        generations=Generations(-1 if claim is None else claim.generation, evidence.generation, facts.former),
        notes=tuple(notes),
    )


def _began(facts: PairFacts) -> int:
    """Return where the flow's copies begin on the target: what stands before is not the flow's. A repair of a log that
    was cut below its claim has copied to behind the cut."""
    claim = facts.claimed
    if claim is None:
        return 0
    ids = facts.source_topic.topic_id, facts.target_topic.topic_id
    own = [it for it in facts.repairs if it.topic_ids == ids]
    return min([claim.target_end, *(it.first_target for it in own if it.generation > claim.generation)])


def _shown(facts: PairFacts, position: int) -> tuple[int, list[str]]:
    """Return up to where the source shows what was copied, and a note if its log shows less than it did."""
    source_end, stable = facts.source_bounds[1], facts.source_stable
    shown = min(position, source_end)
    if stable >= shown:  # as it was when the flow read it
        return shown, []
    return stable, [
        f"source_truncated: {facts.source} is stable up to {stable} of {source_end}, and was copied up to {position}: "
        "an open transaction hides what follows"
    ]


def _block(evidence: Evidence) -> DigestBlock | None:
    """Return the last block, where acknowledgements say where it stands: with exactly_once."""
    if evidence.block_count <= 0 or evidence.block_first < 0 or evidence.delivery != Delivery.EXACTLY_ONCE.value:
        return None
    first, end = evidence.block_first, evidence.block_first + evidence.block_count
    told = evidence.digest_kind, evidence.digest, evidence.digest_before
    return DigestBlock(first, end, *told, evidence.block_codecs)


def readable(at: Partition, found: Stored) -> Position:
    """Return the position with its evidence. Raises Incident when its metadata can't be read."""
    if isinstance(found, Position):
        return found
    raise Incident(found.incident, found.why, topic=at.topic, partition=at.partition, offset=found.offset)


def without_position(
    source: Partition, target: Partition, topic: TopicInfo | None, claim: Claim | None, bounds: Span
) -> Incident | None:
    """Say why a partition without a position can't be compared; None: the flow has not begun to copy it. Pure.

    Args:
        topic: the target topic, if it is there.
        bounds: where the target partition's log begins and ends.
    """
    if claim is not None:
        name = claim.without_position(topic.topic_id if topic is not None else None)
        why = f"{source} was copied to {target} before, and its position is gone: nothing says what should be there"
        return Incident(name, why, topic=source.topic, partition=source.partition)
    if bounds[1] > 0:
        why = f"{target} has offsets {bounds[0]} to {bounds[1]}, and the flow has no position or claim there"
        return Incident("target_not_empty", why, topic=source.topic, partition=source.partition)
    return None


def own_sections(
    pairs: Iterable[Pair], takers: Mapping[Partition, TakesSections]
) -> dict[tuple[str, int], OwnSections]:
    """Return what `map_reader.read_sections` gives the map's sections to, of each pair those of its own target.
    `takers`: by source partition. Pure."""
    return {
        (pair.source_id, pair.source.partition): OwnSections(pair.generations, takers[pair.source]) for pair in pairs
    }
