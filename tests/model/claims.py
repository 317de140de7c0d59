"""The claim model: how a partition without a position gets its start, with a source that grows and a worker that dies.

One worker at a time (the generation model is about several), one partition, `start: latest`. The promise: what is
written after the flow was opened is copied, however long after that the partition is admitted; once a record was sent,
however its transaction ended, that record and all after it are copied; a partition that appeared after the flow was
opened is copied from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explore import Bad, Step

RECORDS = 3
OFF, CLAIMING, COPYING, SENT, STOPPED = range(5)


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What is left out of invariants 4 and 7; nothing by default."""

    no_claim: bool = False  # the first transaction holds records already
    ignore_claim: bool = False  # a claim without a position doesn't stop the partition
    ignore_target_data: bool = False  # nor does a target that has data
    latest_for_late_partitions: bool = False  # `start` covers partitions that appear later, too
    resolve_at_admission: bool = False  # nothing is stored with the `open` record
    store_after_open: bool = False  # the start is stored in a transaction of its own, after that of `open`


class Partition(NamedTuple):
    """Both sides of one partition; -1: none. `owed` is the first record that must not be missing, `stored` the start
    that was resolved when the flow was opened."""

    end: int
    owed: int
    open: bool
    stored: int = -1
    position: int = -1
    claimed: bool = False
    target_has_data: bool = False
    copied: int = -1
    at: int = OFF
    next: int = -1
    expiries: int = 1
    expired: bool = False


def first(*, late: bool) -> Partition:
    """A partition that has a record already; `late`: it appeared after the flow was first opened."""
    return Partition(end=1, owed=0 if late else -1, open=late, stored=0 if late else -1)


def steps(world: Partition, rules: ClaimRules, *, late: bool) -> Iterator[Step[Partition]]:
    """Every step that can be the next. Raises Bad where the promise breaks, or the flow stops without a reason."""
    if world.end < RECORDS:
        yield "the source grows", world._replace(end=world.end + 1)
    if world.position >= 0 and world.at in (OFF, STOPPED) and world.expiries:
        yield "the position expires", world._replace(position=-1, expiries=0, expired=True)
    if world.at not in (OFF, STOPPED):
        yield "the worker dies", world._replace(at=OFF, next=-1)
    if not world.open:
        yield _open(world, rules)
    elif rules.store_after_open and world.stored < 0:
        yield f"the start {world.end} is stored", world._replace(stored=world.end)
    if world.at == OFF and world.open:
        yield _start(world, rules, late)
    elif world.at == CLAIMING:
        claimed = world._replace(at=COPYING, position=world.next, claimed=True, owed=_owed(world))
        yield "the worker claims", claimed
    elif world.at == COPYING and world.next < world.end:
        sent = world._replace(at=SENT, owed=_owed(world), target_has_data=True)
        yield f"the worker sends record {world.next}", sent
    elif world.at == SENT:
        yield _commit(world, rules)


def _open(world: Partition, rules: ClaimRules) -> Step[Partition]:
    """One transaction: `open`, and the start as it was resolved. Whoever dies before it is committed leaves nothing."""
    stored = -1 if rules.resolve_at_admission or rules.store_after_open else world.end
    return f"the flow is opened at {world.end}", world._replace(open=True, owed=world.end, stored=stored)


def _owed(world: Partition) -> int:
    return world.next if world.owed < 0 else min(world.owed, world.next)


def _start(world: Partition, rules: ClaimRules, late: bool) -> Step[Partition]:
    if world.position >= 0:
        return f"a worker goes on at {world.position}", world._replace(at=COPYING, next=world.position)
    claimed = world.claimed and not rules.ignore_claim
    if claimed or (world.target_has_data and not rules.ignore_target_data):
        label = "a worker stops: " + ("claimed, but no position" if claimed else "the target has data")
        if not world.expired:
            raise Bad("stopped without a reason", label)
        return label, world._replace(at=STOPPED)
    start = world.end if world.stored < 0 or (late and rules.latest_for_late_partitions) else world.stored
    at = COPYING if rules.no_claim else CLAIMING
    return f"a worker resolves its start: {start}", world._replace(at=at, next=start)


def _commit(world: Partition, rules: ClaimRules) -> Step[Partition]:
    label, record = f"the worker commits record {world.next}", world.next
    expected = world.owed if world.copied < 0 else world.copied + 1
    if record != expected:
        raise Bad("lost" if record > expected else "doubled", label)
    claimed = world.claimed or rules.no_claim
    after = world._replace(at=COPYING, next=record + 1, position=record + 1, copied=record, claimed=claimed)
    return label, after


def settled(world: Partition) -> bool:
    """The goal: all that is owed is copied, or somebody was told why not."""
    everything = world.end == RECORDS and world.copied == RECORDS - 1
    return everything or world.at == STOPPED or (world.end == RECORDS and world.position == RECORDS)
