"""What is done to a copy, by seed: records that are missing, doubled, altered, moved, or nobody's; single ones and
ranges, at the beginning, in the middle and at the end. Pure.

Differences stand so far apart that none can be taken for a part of another one. Where several explanations would be as
good (which of several identical records is missing beside a cut, say), nothing is drawn: what no evidence decides can't
be expected of anybody.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from integration_tests.spark.planted import Content

APART = 4
"""So many records stand at least between two differences."""
LENGTHS = (1, 1, 1, 2, 5, 20)
PLACES = ("removed", "beginning", "beginning", "middle", "middle", "end")
KINDS = ("missing", "missing", "extra", "altered", "doubled", "replayed", "moved")
ALTERED = Content(b"altered", b"altered", 3_600_000, (("altered", b"1"),))
"""The time is how much later it gets."""
Copied = tuple[Content, int | None, str, str]
"""Fields of `seeded.Entry`."""


@dataclass(slots=True)
class Target:
    """What stands on the target where each source record should. `source_cut`, `target_cut`: numbers of the first
    source record that the source still has, and of the first one whose place on the target is still there."""

    records: tuple[Content, ...]
    source_cut: int
    target_cut: int
    compacted: bool
    slots: list[list[Copied]] = field(init=False)
    _taken: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.slots = [[(record, number, "copy", "")] for number, record in enumerate(self.records)]
        for cut in (self.source_cut, self.target_cut):
            if 0 < cut < len(self.records):
                self._taken |= set(self._run(cut)) if self.records[cut - 1] == self.records[cut] else set()

    @property
    def end(self) -> int:
        """Behind the last record that may be damaged: the one that begins a segment for the cleaner stays."""
        return len(self.records) - self.compacted

    @property
    def common(self) -> int:
        """The first record that both sides would have without any damage."""
        return max(self.source_cut, self.target_cut)

    def take(self, numbers: Iterable[int]) -> bool:
        """Reserve these, if no other difference is near."""
        wanted = list(numbers)
        if not wanted or min(wanted) < 0 or max(wanted) >= self.end:
            return False
        around = range(min(wanted) - APART, max(wanted) + APART + 1)
        if self._taken.intersection(around):
            return False
        self._taken.update(wanted)
        return True

    def is_repeated(self, number: int) -> bool:
        """Whether a record beside it is identical."""
        return len(self._run(number)) > 1

    def name_first_of_equal_ones(self) -> None:
        """Calls the first ones missing, of identical records that follow one another: no bytes differ for it, but
        retention and cleaners take the first ones, and what they leave is the copy of the last."""
        for lost in range(len(self.records)):
            number = lost
            while number and not self.slots[number] and self.records[number - 1] == self.records[number]:
                if [what for _, _, what, _ in self.slots[number - 1]] != ["copy"]:
                    break
                self.slots[number - 1], self.slots[number] = [], [(self.records[number], number, "copy", "")]
                number -= 1

    def _run(self, number: int) -> range:
        """The numbers of the identical records around this one."""
        first = end = number
        while first and self.records[first - 1] == self.records[number]:
            first -= 1
        while end < len(self.records) and self.records[end] == self.records[number]:
            end += 1
        return range(first, end)


def damaged(draw: random.Random, target: Target, kind: str) -> None:
    """Up to five differences. `kind` of the records, see `seeded`."""
    if kind == "few":  # more than one kind of difference could be explained by others
        if not (target.common or target.compacted):
            _few(draw, target)
        return
    for _ in range(draw.randint(1, 5)):
        _one(draw, target, draw.choice(KINDS), draw.choice(LENGTHS), draw.choice(PLACES))
    target.name_first_of_equal_ones()


def _few(draw: random.Random, target: Target) -> None:
    what = draw.choice(("missing", "doubled"))
    for number in draw.sample(range(target.end), min(3, target.end)):
        target.slots[number] = [] if what == "missing" else target.slots[number] * 2
    for slot in target.slots:
        slot[1:] = [(content, number, "doubled", "") for content, number, _, _ in slot[1:]]


def _one(draw: random.Random, target: Target, what: str, length: int, where: str) -> None:
    first = _place(draw, target, length, where)
    if first is None:
        return
    numbers = range(first, first + length)
    if what in ("doubled", "replayed", "moved"):
        # Beside a cut nothing tells the first copy of a record from the second one.
        if where == "removed" or (target.source_cut and first < target.common + APART):
            return
        if what != "doubled":
            _elsewhere(draw, target, numbers, what)
            return
    if not target.take(numbers):
        return
    copies = [copied for number in numbers for copied in target.slots[number]]
    if what == "missing":
        for number in numbers:
            target.slots[number] = []
    elif what == "extra":
        target.slots[first] = [*_foreign(draw, target, first, length), *target.slots[first]]
    elif what == "doubled":
        target.slots[numbers[-1]] += [(content, number, "doubled", "") for content, number, _, _ in copies]
    else:
        _alter(draw, target, numbers)


def _place(draw: random.Random, target: Target, length: int, where: str) -> int | None:
    """The number of the first record of a difference: in what is deleted, beside where it ends, in the middle or at the
    end."""
    if where == "removed":
        return draw.randrange(target.target_cut) if target.target_cut else None
    first = {
        "beginning": draw.choice((target.target_cut, target.common)) + draw.choice((0, 0, 1)),
        "middle": draw.randint(target.target_cut, max(target.target_cut, target.end - length)),
        "end": target.end - length,
    }[where]
    return first if target.target_cut <= first and first + length <= target.end else None


def _elsewhere(draw: random.Random, target: Target, numbers: range, what: str) -> None:
    """These records stand at another place, too ("replayed") or instead. They move so far that it is them, and not
    those over which they pass, that are out of order; in a compacted topic a single one moves."""
    length = len(numbers)
    if target.compacted and length > 1:
        return
    distance = draw.randint(3 * length + APART, 3 * length + 60)
    to = numbers[-1] + distance if what == "replayed" or draw.random() < 0.5 else numbers[0] - distance
    if to < target.common + APART or to >= target.end:
        return
    if any(target.is_repeated(number) for number in numbers):
        return  # one of a run moves as well as another
    if not target.take(range(min(numbers[0], to), max(numbers[-1], to) + 1)):
        return
    copies: list[Copied] = [(target.records[number], number, what, "") for number in numbers]
    if what == "moved":
        for number in numbers:
            target.slots[number] = []
    target.slots[to] = [*copies, *target.slots[to]]


def _foreign(draw: random.Random, target: Target, first: int, length: int) -> list[Copied]:
    """Records of somebody else; in a compacted topic some have keys of the flow's."""
    found: list[Copied] = []
    for number in range(length):
        name = b"foreign-%d-%d" % (first, number)
        of_flow = target.compacted and draw.random() < 0.3
        key = draw.choice(target.records[: target.end]).key if of_flow and target.end else name
        found.append((Content(key or name, name, 1_000_000 + first * 100 + number), None, "foreign", ""))
    return found


def _alter(draw: random.Random, target: Target, numbers: range) -> None:
    fields = ("value", "headers", "timestamp") if target.compacted else ("key", "value", "headers", "timestamp")
    name = draw.choice(fields)
    if name == "timestamp" and any(target.records[number].value is None for number in numbers):
        name = "headers"  # with another time nothing but headers would be left to know it by
    for number in numbers:
        was = target.records[number]
        now = {
            "key": was._replace(key=ALTERED.key),
            "value": was._replace(value=ALTERED.value),
            "headers": was._replace(headers=ALTERED.headers),
            "timestamp": was._replace(timestamp_ms=was.timestamp_ms + 60_000 + number),
        }[name]
        # With neither key nor value in common it is somebody else's record, for all that anybody can see.
        common = any(one is not None and one == other for one, other in zip(was[:2], now[:2], strict=True))
        target.slots[number] = [(now, number, "altered", name) if common else (now, None, "foreign", "")]
