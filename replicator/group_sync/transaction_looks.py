"""Looks at the source's transactions every second, and notes at the target which of them aren't copied as a whole: what
a failover needs to name those that are torn. Called by `group_sync.watch`, between the rounds of `group_sync.sync`.

What is found follows from `coupling.source_transactions`. A look that fails stops nothing: it is told once, and the
next one reads on from where the last one was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Protocol

import structlog

from replicator.config import Flow
from replicator.coupling.source_transactions import SourceTransactions
from replicator.flow.listing import copied_topics
from replicator.groups.ownership import GroupOffset
from replicator.lane.ports import Clock
from replicator.model import checkpoint
from replicator.model.checkpoint import Position
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Committed, Partition
from replicator.state.transaction_notes import LastLook, TransactionNotes
from replicator.wire.transaction_log_tail import LogCut, LogPart

LOOK_S, SHARE, LOOK_S_MAX = 1.0, 0.25, 10.0
"""From one look to the next at least; longer where a look takes more than this share of that, but no longer than the
last: what is known of a transaction is as exact as looks are close."""
HEAD_S = 60.0
"""After which all is noted that it takes to go on."""
SAID_S = 5.0
"""After which a look is noted though it has found nothing new: how old the last one is, is part of a verdict."""

Noted = list[tuple[bytes, bytes | None]]


class TransactionLog(Protocol):
    """See `TransactionLogTail`."""

    offsets: dict[int, int] | None

    def read(self) -> LogPart:
        """Read on."""


class TransactionLooks:
    """Of one flow. Used by one thread. What `look` returns is to be noted before the next one; where that fails,
    `begin` comes next, with what is noted."""

    def __init__(
        self,
        flow: Flow,
        tail: TransactionLog,
        ends: Callable[[Collection[Partition]], Mapping[Partition, int]],
        positions: Callable[[Collection[Partition]], Mapping[Partition, GroupOffset]],
        ids: Callable[[Collection[str]], Mapping[str, str]],
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """`ends`, `positions`, `ids`: ask where partitions of the source end; the positions of what was copied; for the
        ids of topics. All raise ReplicatorError."""
        self._flow, self._tail, self._clock, self._log = flow, tail, clock, log
        self._ends, self._positions, self._ids = ends, positions, ids
        self._notes = TransactionNotes()
        self._seen, self._selection = SourceTransactions(copied_topics(flow, None)), _selection(flow, None)
        self._lessened = False  # what is noted has topics that the flow doesn't copy any more
        self._asked_ids: Mapping[str, str] = {}  # in the present look
        self._since_ms, self._problem = 0, ""
        self._due_s = self._head_s = float("-inf")

    def begin(self, notes: TransactionNotes, known: Collection[str] | None = None) -> None:
        """Go on from what is noted. Where the flow copies topics by other rules than then, begin anew: of what was open
        it isn't known whether it had written to them. `known` as of `LiveMap.known_topics`."""
        self._notes, last = notes, notes.last
        self._selection = _selection(self._flow, known)
        self._seen = SourceTransactions(copied_topics(self._flow, known))
        if last.selection == self._selection:
            self._seen.go_on(last.ends, last.ids, last.open, notes.ended, last.left_out)
            self._tail.offsets = last.log
        else:
            self._seen.go_on({}, last.ids, (), notes.ended, last.left_out)
            self._tail.offsets = None
        self._lessened = self._seen.ended.keys() != notes.ended.keys()
        self._since_ms = last.since_ms
        self._head_s = float("-inf")

    def pause_s(self) -> float:
        """Return how long to wait for the next look."""
        return max(0.0, self._due_s - self._clock.now_s())

    def look(self, ats: Collection[Partition], there: Collection[Partition] = ()) -> Noted:
        """Take a look, if it is time to; return what is to be noted. `ats`: the partitions that the flow copies;
        `there`: all of them that the source has, also those that don't tell their ends.

        Never raises ReplicatorError.
        """
        began_s = self._clock.now_s()
        if not ats or began_s < self._due_s:
            return []
        self._asked_ids = {}
        try:
            found = self._look(ats, there)
            self._tell("")
        except ReplicatorError as error:
            self._tell(str(error))
            found = self._failed({at.topic for at in (*ats, *there)})
        ended_s = self._clock.now_s()
        self._due_s = max(ended_s, began_s + min(LOOK_S_MAX, max(LOOK_S, (ended_s - began_s) / SHARE)))
        return found

    def _failed(self, topics: Collection[str]) -> Noted:
        """Return what is to be noted of a look that has failed: why; and while the log was never read, so that nothing
        depends on them, the ids of topics, which a failover compares with those of what was copied."""
        last, ids = self._notes.last, self._notes.last.ids
        if last.log is None and not self._notes.ended:
            ids = {name: topic_id for name, topic_id in ids.items() if name in topics} | dict(self._asked_ids)
        if (self._problem, ids) == (last.problem, last.ids):
            return []
        return [*self._notes.write_last(replace(last, problem=self._problem, ids=ids), head=ids != last.ids)]

    def _look(self, ats: Collection[Partition], there: Collection[Partition]) -> Noted:
        """Look once: first do all that may fail, then take what was read."""
        was_read, missed = self._tail.offsets, False
        try:
            ids = self._asked_ids = self._ids({at.topic for at in ats})
            ends = self._ends(ats)
            now_ms = self._clock.now_ms()
            try:
                part = self._tail.read()
            except LogCut as cut:
                self._log.warning("source_transactions_missed", reason=str(cut))
                self._tail.offsets, missed = None, True
                part = self._tail.read()
            after = self._ends(ats) if part.records else ends
            positions = self._positions(ats) if part.records or self._seen.ended else {}
        except ReplicatorError:
            self._tail.offsets = was_read  # it is read again
            raise
        if missed:
            self._seen.miss()
        begins = was_read is None or missed
        if begins:
            self._since_ms = now_ms
        return self._taken(ids, ends, {*ats, *there}, part, after, positions, now_ms, begins=begins)

    def _taken(
        self,
        ids: Mapping[str, str],
        ends: Mapping[Partition, int],
        there: Collection[Partition],
        part: LogPart,
        after: Mapping[Partition, int],
        positions: Mapping[Partition, GroupOffset],
        now_ms: int,
        *,
        begins: bool,
    ) -> Noted:
        last, seen = self._notes.last, self._seen
        known, was_open = set(self._notes.ended), seen.still_open()
        seen.look(ends, part.records, lambda: after, ids=ids, there=there, to_end=part.to_end)
        gone = seen.drop(_of_these(positions, seen))
        new = {number: it for number, it in seen.ended.items() if number not in known}
        lost = known - seen.ended.keys() - set(gone)  # they have new numbers, or nothing is known of them any more
        still_open = [it for name, it in seen.still_open().items() if was_open.get(name) is it]
        said = now_ms >= last.looked_ms + SAID_S * 1000
        # A topic of which nothing was known any more may have been made again: the head has its former id still.
        anew = seen.lost or any(last.ids.get(name) != topic_id for name, topic_id in seen.ids.items())
        if not (new or gone or lost or anew or still_open or last.still_open or last.problem or said or part.records):
            return []
        open_ = [it for it in seen.open.values() if it.parts or it.lost]
        looked_ms = now_ms if part.to_end else last.looked_ms
        found: Noted = [*self._notes.write_ended(new), *self._notes.write_gone({*gone, *lost})]
        if seen.lost or self._lessened:
            found += self._notes.write_anew()
            self._lessened = False
        look = LastLook(
            looked_ms, self._since_ms, "", seen.left_out, still_open, self._tail.offsets, dict(seen.ends), open_,
            self._selection, dict(seen.ids),
        )  # fmt: skip
        head = begins or anew or self._clock.now_s() >= self._head_s
        if head:
            self._head_s = self._clock.now_s() + HEAD_S
        return [*found, *self._notes.write_last(look, head=head)]

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            if problem:
                self._log.warning("source_transactions_unknown", reason=problem)
            else:
                self._log.info("source_transactions_known_again")
        self._problem = problem


def _of_these(positions: Mapping[Partition, GroupOffset], seen: SourceTransactions) -> dict[Partition, int]:
    """Say up to where partitions are copied, of those that uncopied transactions have written to; not where a topic was
    another one when it was copied."""
    ats = {at for it in seen.ended.values() for at in it.parts} & positions.keys()
    found = {}
    for at in ats:
        stored = checkpoint.stored(Committed(positions[at].offset, positions[at].metadata))
        if isinstance(stored, Position) and seen.ids.get(at.topic, "") in ("", stored.evidence.source_topic_id):
            found[at] = stored.offset
    return found


def _selection(flow: Flow, known: Collection[str] | None) -> str:
    """Return a digest of what says which topics the flow copies."""
    said = [sorted(flow.topics), sorted(flow.exclude), sorted(flow.schema_registry.topics)]
    if flow.new_topics == "ignore" and known is not None:
        said.append(sorted(known))
    return sha256(json.dumps(said).encode()).hexdigest()
