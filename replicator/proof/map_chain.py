"""Follows the sections of one partition: does each begin where the last one ended, and do the counts go on? Pure. For
`verify`.

Invariant M2: a section's `before` is the partition's last `after`, unless it is a `base`; its count is that of the last
one and its copies, unless it is of a repair. What a `base` leaves between was copied without a map. A section voids
what earlier ones claim of the target at or above its first target offset: a log only grows. A flow begins, on the
target, where its claim says, again with each adoption: sections that tell of target offsets below are not its own. Nor
are those before a `base` at the source offset of its claim: back there it goes by a new claim only, such as that of a
target topic that was created again, where target offsets begin anew.

16 bytes for each section whose copies are to be looked at.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from replicator.model.partition import Span
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.section import NO_DIGEST, MapSection
from replicator.offset_map.varints import OFFSET_MAX
from replicator.proof.map_cut import UpToPosition

TOLD_MAX = 20
"""Breaks and wrong counts that are told; how many there are is told of all."""


class ChainBreak(NamedTuple):
    """Source offsets [first, end) of which no section tells; copies of them stand in these target offsets. `said`: the
    map itself says that it begins again behind it."""

    first: int
    end: int
    target: Span
    said: bool


@dataclass(slots=True)
class MapChain:
    """Takes the sections of one partition in their order, up to a position.

    Attributes:
        position: sections that end beyond it were committed later, see `map_cut`.
        since_ms: copies of sections that were committed before are not to be looked at.
        origin: the target offset at which the flow begins; `begins`: the source offset.
        firsts, ends: target offsets of the copies that are, ascending.
        begun, after, next_target, count: as the sections say; -1 where there is none.
        sections, copies, digests: how many were taken; of those looked at, the copies and the sections with a digest.
        breaks: where the chain is broken; `restarts`: how often it begins again below, for a cut or an adoption.
        wrong: what can't be, the first ones; `wrong_in_all`: how many there are.
        voided: how many copies the target has lost by what the map says.
        pruned: how many copies the target's retention had taken when the map's index was pruned.
    """

    position: int
    since_ms: int | None = None
    origin: int = 0
    begins: int = -1
    firsts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    begun: int = -1
    after: int = -1
    next_target: int = -1
    count: int = 0
    sections: int = 0
    copies: int = 0
    digests: int = 0
    voided: int = 0
    pruned: int = 0
    restarts: int = 0
    breaks: list[ChainBreak] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    wrong_in_all: int = 0
    _held: UpToPosition[tuple[PlacedSection, int]] = field(init=False)
    _order: tuple[int, int, int] = (-1, -1, -1)
    _below: bool = False  # the last section was below the origin; where one without copies stood isn't always known

    def __post_init__(self) -> None:
        self._held = UpToPosition(self.position)

    def add(self, placed: PlacedSection, commit_ms: int) -> None:
        """Take the next one."""
        for one, at_ms in self._held.passed(placed.section.after, (placed, commit_ms)):
            self._take(one, at_ms)

    def _take(self, placed: PlacedSection, commit_ms: int) -> None:
        section = placed.section
        if section.first_target >= 0:
            self._below = section.first_target < self.origin
        if self._below:
            self._begin_again()
            return
        if section.base and section.before == self.begins:
            self._begin_again()
        if placed[:3] <= self._order:
            self._say(f"a section of generation {placed.generation} follows one of generation {self._order[0]}")
        self._order = placed[:3]
        self.sections += section.transactions
        if section.claims_target:
            self._void(section.first_target)
        self._follow(section)
        self._count(section)
        self.after = section.after
        self.next_target = max(self.next_target, section.target_end)
        if self.since_ms is not None and commit_ms < self.since_ms:
            return
        self.copies += section.records
        self.pruned += section.pruned_copies
        self.digests += section.digest_kind != NO_DIGEST
        if section.runs:
            self._claim(section.first_target, section.target_end)

    def _begin_again(self) -> None:
        """Forget all: what was taken so far is not the flow's own."""
        self.firsts, self.ends, self.breaks, self.wrong = array("q"), array("q"), [], []
        self.begun = self.after = self.next_target = -1
        self.count = self.sections = self.copies = self.digests = self.voided = self.pruned = self.restarts = 0
        self.wrong_in_all = 0

    def _claim(self, first: int, end: int) -> None:
        if self.ends and self.ends[-1] == first:
            self.ends[-1] = end
        else:
            self.firsts.append(first)
            self.ends.append(end)

    def _void(self, first: int) -> None:
        while self.ends and self.ends[-1] > first:
            lost = self.ends[-1] - max(first, self.firsts[-1])
            self.voided += lost
            self.copies -= lost
            if self.firsts[-1] < first:
                self.ends[-1] = first
            else:
                self.firsts.pop()
                self.ends.pop()
        self.next_target = min(self.next_target, first) if self.next_target >= 0 else self.next_target

    def _follow(self, section: MapSection) -> None:
        if self.after < 0:
            self.begun = section.before
            self.next_target = max(section.first_target, 0)
        elif section.before > self.after:
            end = section.first_target if section.first_target >= 0 else OFFSET_MAX
            self.breaks.append(ChainBreak(self.after, section.before, (self.next_target, end), section.base))
        elif section.before < self.after and section.base:
            self.restarts += 1
        elif section.before < self.after:
            self._say(f"a section begins at source offset {section.before}, and the last one ended at {self.after}")

    def _count(self, section: MapSection) -> None:
        before, follows = section.count_before, self.after in (-1, section.before)
        if self.after >= 0 and not section.base and follows and before != self.count:
            self._say(
                f"the count at source offset {section.before} goes on from {before}, and the last one was {self.count}"
            )
        elif section.base and section.before > self.after >= 0 and before < self.count:
            self._say(f"the count begins again at {before} at source offset {section.before}, and was {self.count}")
        self.count = section.count

    def _say(self, what: str) -> None:
        self.wrong_in_all += 1
        if len(self.wrong) < TOLD_MAX:
            self.wrong.append(what)
