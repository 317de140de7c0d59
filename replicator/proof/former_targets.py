"""Which sections of the offset map are of another target topic: the flow's `rename` was changed, and back perhaps. Used
by `snapshot`, `target_snapshot`, `verify` and `local`.

A section says its source topic, and not where its copies stand. But in one generation a source partition has one target
partition, and the claims and positions of both say generations: those of its claim and of its position are its own, and
what lies between the claim and the position of the other one is of that one. Where the file was changed more than once,
sections of ours may lie between, too. They are left out, and so are a gap of the chain: unproven, and nothing wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from replicator.config import Flow
from replicator.kafka.offset_reader import OffsetReader
from replicator.model.checkpoint import Position
from replicator.model.partition import Partition
from replicator.offset_map.delivered import TakesSections
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.varints import OFFSET_MAX
from replicator.state.claims import Claims


class FormerTarget(NamedTuple):
    """A target partition that the flow file doesn't name any more, with the generations of its claim and of its
    position; the greatest number where nothing says that."""

    target: Partition
    claimed: int
    copied: int

    def said(self, source: Partition) -> str:
        """Say it in one sentence."""
        return f"{source} was copied to {self.target}, too, under another rename; that copy isn't looked at"


class Generations(NamedTuple):
    """Those of a partition's claim and position, and of the targets that it had besides."""

    claimed: int
    copied: int
    former: tuple[FormerTarget, ...]

    def elsewhere(self, generation: int) -> bool:
        """Return whether what this generation has copied stands on another target, or may."""
        if not self.former or generation in (self.claimed, self.copied):
            return False
        return generation > self.copied or any(it.claimed <= generation <= it.copied for it in self.former)


NOT_RENAMED = Generations(-1, -1, ())


@dataclass(frozen=True, slots=True)
class OwnSections:
    """Passes on the sections of one target partition."""

    generations: Generations
    taker: TakesSections

    def add(self, placed: PlacedSection, commit_ms: int) -> None:
        """Take the next one."""
        if not self.generations.elsewhere(placed.generation):
            self.taker.add(placed, commit_ms)


def former_targets(
    flow: Flow, routes: Mapping[Partition, Partition], claims: Claims | None
) -> dict[Partition, tuple[FormerTarget, ...]]:
    """Find former targets by source partition, of those that have any. `routes`: the target partitions of today. Asks
    only for those.

    Raises Unreachable, NotAllowed, Retriable where nothing is answered.
    """
    found: dict[Partition, list[Partition]] = {}
    claimed = claims.claims if claims is not None else {}
    for at, claim in sorted(claimed.items()):
        today = routes.get(claim.source)
        if today is None or today == at:
            continue
        ours = claimed.get(today)
        if ours is None or ours.source_topic_id == claim.source_topic_id:
            found.setdefault(claim.source, []).append(at)
    if not found or claims is None:
        return {}
    with closing(OffsetReader(flow, stable=True)) as reader:
        positions = reader.positions([at for ats in found.values() for at in ats])
    copied = {at: it.evidence.generation for at, it in positions.items() if isinstance(it, Position)}
    return {
        source: tuple(FormerTarget(at, claimed_since(claims, at), copied.get(at, OFFSET_MAX)) for at in ats)
        for source, ats in found.items()
    }


def claimed_since(claims: Claims, at: Partition) -> int:
    """Return the generation that has claimed a target partition; -1 where it may have been claimed before, since a
    decision has moved its position, and its claim was written anew. Pure."""
    moved = any(one.target == at and one.moved is not None for one in claims.occurrences)
    return -1 if moved else claims.claims[at].generation
