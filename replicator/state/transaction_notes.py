"""What the flow notes of the source's transactions, as records of its groups topic. Pure.

Older versions of the program pass over them. `transactions/look`: the newest look, a small record, because there is one
a second. `transactions/head/N`: now and then, in pieces, what it takes to go on: what was open, the ends of partitions,
up to where the coordinators' log was read by then, and a digest of the patterns by which topics are selected. Whoever
goes on reads that again from there, and finds noted what was noted since. `transactions/ended/N`: those that a look
found to be committed and that aren't copied as a whole; deleted once all of them are. One of which more is known has a
new number, and the newest one counts. What a look notes is written in
one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from replicator.coupling.source_transactions import SourceTransaction
from replicator.model.partition import Partition
from replicator.state.envelope import NewerFormat, unwrap, wrap

LOOK, HEAD, ENDED = "transactions_look", "transactions_head", "transactions_ended"
_KINDS = frozenset({LOOK, HEAD, ENDED})
PREFIX = b"transactions/"
PIECE_CHARS = 200_000
"""Of the newest look in one record."""
ENDED_MAX = 500
"""Transactions in one record."""


@dataclass(slots=True)
class LastLook:
    """What there is of the newest look.

    Attributes:
        looked_ms: when it was taken; 0: there was none.
        since_ms: since when all of the log was read without a gap.
        problem: why nothing more is known since then; empty while looks succeed.
        still_open: what was open at this look and at the one before it.
        log: up to where each partition of the log was read; None: nowhere. This and what follows is as of an older
            look, where it was read back.
        selection: stands for the patterns by which the flow selected topics.
        ids: those of the source's topics.
    """

    looked_ms: int = 0
    since_ms: int = 0
    problem: str = ""
    left_out: int = 0
    still_open: list[SourceTransaction] = field(default_factory=list)
    log: dict[int, int] | None = None
    ends: dict[Partition, int] = field(default_factory=dict)
    open: list[SourceTransaction] = field(default_factory=list)
    selection: str = ""
    ids: dict[str, str] = field(default_factory=dict)

    def look_json(self) -> dict[str, Any]:
        """Return what is kept of each look."""
        return {
            "looked_ms": self.looked_ms,
            "since_ms": self.since_ms,
            "problem": self.problem,
            "left_out": self.left_out,
            "open": [it.as_json() for it in self.still_open],
        }

    def take_look(self, body: Mapping[str, Any]) -> None:
        """Take what `look_json` gave. Raises KeyError, TypeError, ValueError."""
        self.still_open = [SourceTransaction.of_json(row) for row in body["open"]]
        self.looked_ms, self.since_ms = int(body["looked_ms"]), int(body["since_ms"])
        self.problem, self.left_out = str(body["problem"]), int(body["left_out"])

    def head_json(self) -> dict[str, Any]:
        """Return what is kept to go on from."""
        ends: dict[str, dict[int, int]] = {}
        for at, end in self.ends.items():
            ends.setdefault(at.topic, {})[at.partition] = end
        open_ = [it.as_json() for it in self.open]
        return {"log": self.log, "ends": ends, "open": open_, "selection": self.selection, "ids": self.ids}

    def take_head(self, body: Mapping[str, Any]) -> None:
        """Take what `head_json` gave. Raises KeyError, TypeError, ValueError, AttributeError."""
        ends = {Partition(topic, int(it)): int(end) for topic, of in body["ends"].items() for it, end in of.items()}
        open_ = [SourceTransaction.of_json(row) for row in body["open"]]
        log = body["log"]
        self.log = None if log is None else {int(number): int(offset) for number, offset in log.items()}
        self.ends, self.open, self.selection = ends, open_, str(body["selection"])
        self.ids = {str(topic): str(topic_id) for topic, topic_id in body["ids"].items()}


class TransactionNotes:
    """All of a flow's, and which records hold them."""

    def __init__(self) -> None:
        self.last = LastLook()
        self.ended: dict[int, SourceTransaction] = {}
        self._pieces = 0
        self._records: dict[int, set[int]] = {}  # the numbers of transactions that aren't copied, by record
        self._written: dict[int, int] = {}  # how many a record has

    @classmethod
    def read(cls, records: Mapping[bytes | None, bytes | None]) -> TransactionNotes:
        """Take the last record of each key. What can't be read says nothing. Raises NewerFormat."""
        found, pieces = cls(), dict[int, str]()
        for key, value in records.items():
            if key is None or not key.startswith(PREFIX) or not value:
                continue
            try:
                body = unwrap(key, value, _KINDS)
                if body is None:
                    continue
                if body["kind"] == LOOK:
                    found.last.take_look(body)
                    continue
                number = int(key.rpartition(b"/")[2])
                if body["kind"] == HEAD:
                    pieces[number] = str(body["text"])
                    found._pieces = max(found._pieces, number + 1)
                else:
                    rows = {int(one): SourceTransaction.of_json(row) for one, row in body["transactions"]}
                    found.ended |= rows
                    found._records[number], found._written[number] = set(rows), len(body["transactions"])
            except NewerFormat:
                raise
            except (AttributeError, KeyError, TypeError, ValueError):  # NotOurs is one
                continue
        newest = {(it.transactional_id, it.start_ms): number for number, it in sorted(found.ended.items())}
        found.ended = {number: found.ended[number] for number in sorted(newest.values())}
        found._records = {number: left & found.ended.keys() for number, left in found._records.items()}
        text = "".join(pieces.get(number, "") for number in range(found._pieces))
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # else it begins anew
            found.last.take_head(json.loads(text))
        return found

    def write_last(self, last: LastLook, *, head: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records in which this look takes the last one's place. `head`: with what it takes to go on."""
        self.last = last
        yield PREFIX + b"look", wrap(LOOK, last.look_json(), must_understand=False)
        if not head:
            return
        text = json.dumps(last.head_json(), separators=(",", ":"))
        pieces = [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]
        for number in range(max(len(pieces), self._pieces)):
            piece = pieces[number] if number < len(pieces) else ""
            yield _key("head", number), wrap(HEAD, {"text": piece}, must_understand=False)
        self._pieces = len(pieces)

    def write_ended(self, ended: Mapping[int, SourceTransaction]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records of transactions that a look has found complete."""
        self.ended |= ended
        numbers = sorted(ended)
        for at in range(0, len(numbers), ENDED_MAX):
            some = numbers[at : at + ENDED_MAX]
            self._records[some[0]] = set(some)
            yield self._record(some[0])

    def write_anew(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records of which something is gone, without that: it must not be taken for true again."""
        for record, left in self._records.items():
            if 0 < len(left) < self._written[record]:
                yield self._record(record)

    def _record(self, record: int) -> tuple[bytes, bytes]:
        rows = [[number, self.ended[number].as_json()] for number in sorted(self._records[record])]
        self._written[record] = len(rows)
        return _key("ended", record), wrap(ENDED, {"transactions": rows}, must_understand=False)

    def write_gone(self, numbers: Iterable[int]) -> Iterator[tuple[bytes, None]]:
        """Yield the tombstones of records of which nothing is left when these are gone."""
        gone = set(numbers)
        if not gone:
            return
        self.ended = {number: it for number, it in self.ended.items() if number not in gone}
        for record, left in list(self._records.items()):
            left -= gone
            if not left:
                del self._records[record]
                yield _key("ended", record), None


def _key(kind: str, number: int) -> bytes:
    return PREFIX + f"{kind}/{number}".encode()
