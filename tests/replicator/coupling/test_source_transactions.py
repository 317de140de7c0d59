"""Half copied transactions are named: each that was seen, none that isn't, and what is said of offsets is true."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from replicator.coupling.source_transactions import (
    KEPT_MAX,
    HalfCopied,
    LoggedState,
    LoggedTransaction,
    RecordRange,
    SourceTransaction,
    SourceTransactions,
    half_copied,
)
from replicator.model.partition import Partition
from replicator.state.transaction_notes import LastLook, TransactionNotes
from tests.budget import budget
from tests.replicator.coupling.transaction_histories import History, TrueTransaction

pytestmark = pytest.mark.tier("default")

S = LoggedState
A, B = Partition("t", 0), Partition("t", 1)
SEEDS_EACH, SEEDS = 200, budget(600, 100_000)


def selects(topic: str) -> bool:
    return topic in ("t", "u")


class Watcher:
    """Looks at a history: what happens meanwhile is drawn, too."""

    def __init__(self, history: History) -> None:
        self.history, self.draw = history, history.draw
        self.seen = SourceTransactions(selects)
        self.read = self.since = self.looked = len(history.log)
        self.kept = dict[bytes | None, bytes | None]()
        self.notes = TransactionNotes()
        self.seen.look(dict(history.ends), [], dict, ids=dict(history.topic_ids))
        self.keep({}, [], head=True)

    def keep(self, new: dict[int, SourceTransaction], gone: list[int], *, head: bool) -> None:
        still_open, open_ = list(self.seen.still_open().values()), list(self.seen.open.values())
        last = LastLook(1, 1, "", 0, still_open, {0: self.read}, dict(self.seen.ends), open_, "", dict(self.seen.ids))
        looked = self.notes.write_last(last, head=head or self.seen.lost)
        self.kept |= dict([*self.notes.write_ended(new), *self.notes.write_gone(gone)])
        self.kept |= dict([*(self.notes.write_anew() if self.seen.lost else ()), *looked])

    def look(self) -> None:
        history, draw = self.history, self.draw
        ids = dict(history.topic_ids)
        history.steps(1)
        away = draw.choice(history.ats) if draw.random() < 0.2 else None  # its leader doesn't answer
        ends = {at: end for at, end in history.ends.items() if at != away}
        cleaned = draw.random() < 0.1
        history.steps(60 if cleaned else draw.choice([0, 4, 15]))
        end, to_end = len(history.log), draw.random() < 0.9
        upto = end if to_end else draw.randint(self.read, end)
        records, self.read, self.looked = history.log[self.read : upto], upto, max(self.looked, upto)
        if cleaned:
            records = self.cleaned(records)
        self.mark_doubtful(ids, ends)
        history.steps(4)
        before = set(self.seen.ended)
        after = {at: end for at, end in history.ends.items() if at != away}
        self.seen.look(ends, records, lambda: after, ids=ids, there=history.ats, to_end=to_end)
        positions = {at: it for at, it in history.positions.items() if ids[at.topic] == history.topic_ids[at.topic]}
        gone = self.seen.drop(positions) if draw.random() < 0.7 else []
        new = {number: it for number, it in self.seen.ended.items() if number not in before}
        self.keep(new, [*gone, *(before - self.seen.ended.keys())], head=draw.random() < 0.4)

    def cleaned(self, records: list[LoggedTransaction]) -> list[LoggedTransaction]:
        """What is left of the log where only the last record of each id is."""
        last = {it.transactional_id: it for it in records}
        read_of = {(it.transactional_id, it.start_ms) for it in records}
        for it in self.history.all:
            it.unread |= (it.transactional_id, it.start_ms) in read_of
        return list(last.values())

    def mark_doubtful(self, ids: dict[str, str], ends: dict[Partition, int]) -> None:
        """Of what had written to a topic when it is seen to be another one, it isn't known when it had."""
        anew = {topic for topic, topic_id in ids.items() if self.seen.ids.get(topic, topic_id) != topic_id}
        back = {at for at, end in ends.items() if end < self.seen.ends.get(at, 0)}
        for it in self.history.all:
            it.doubtful |= {at for at in it.partitions if at.topic in anew or at in back}

    def restart(self) -> None:
        """Another process goes on from what is kept."""
        self.notes = TransactionNotes.read(self.kept)
        last = self.notes.last
        assert last.log is not None
        self.read = last.log[0]
        self.seen = SourceTransactions(selects)
        self.seen.go_on(last.ends, last.ids, last.open, self.notes.ended, last.left_out)

    def cut(self) -> None:
        """Some of the log is lost."""
        self.history.steps(10)
        self.seen.miss()
        self.read = self.since = self.looked = len(self.history.log)
        self.seen.look(dict(self.history.ends), [], dict)
        self.keep({}, [], head=True)

    def found(self) -> dict[tuple[str, int], HalfCopied]:
        notes = TransactionNotes.read(self.kept)
        noted = [*notes.ended.values(), *notes.last.still_open]
        each = [half_copied(it, self.history.positions) for it in noted]
        named = [it for it in each if it is not None]
        assert len({(it.transactional_id, it.start_ms) for it in named}) == len(named)
        return {(it.transactional_id, it.start_ms): it for it in named}

    def records_of(self, it: TrueTransaction) -> list[int]:
        return [
            number
            for number, one in enumerate(self.history.log)
            if (one.transactional_id, one.start_ms) == (it.transactional_id, it.start_ms)
        ]

    def first_record(self, it: TrueTransaction) -> int:
        return self.records_of(it)[0]

    def must_be_named(self, it: TrueTransaction) -> bool:
        """Whether it began after the watcher did, and the last look has read that it was about to be committed."""
        mine = self.records_of(it)
        if it.unread:
            return False
        states = {self.history.log[number].state for number in mine if number < self.looked}
        return mine[0] >= self.since and S.PREPARE_COMMIT in states


def check(watcher: Watcher) -> int:
    history, found = watcher.history, watcher.found()
    if watcher.seen.ids != history.topic_ids:
        return 0  # the next look sees it
    certain, true = 0, {(it.transactional_id, it.start_ms): it for it in history.all}
    for key, it in found.items():
        truth = true[key]
        if truth.lost and watcher.first_record(truth) < watcher.since:
            continue  # its topic may have been made anew before anybody looked
        assert it.epoch == truth.epoch
        for part in it.parts:
            assert part.at not in truth.lost
            records, copied = truth.records[part.at], truth.copied(part.at, history.positions[part.at])
            assert part.bounds.first is None or all(part.bounds.first <= offset for offset in records)
            assert part.bounds.end is None or all(offset < part.bounds.end for offset in records)
            assert part.copied is None or not records or part.copied == copied
        if it.certain:
            certain += 1
            assert truth.torn(history.positions), "none is invented"
            assert truth.committed
    for key, truth in true.items():
        if truth.torn(history.positions, doubtful=False) and watcher.must_be_named(truth):
            assert key in found, "none is missed"
    return certain


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_EACH))
def test_each_half_copied_transaction_that_was_seen_is_named_and_none_is_invented(first: int) -> None:
    certain = 0
    for seed in range(first, first + SEEDS_EACH):
        draw = Random(seed)
        history = History(draw)
        history.steps(30)
        watcher = Watcher(history)
        for _ in range(draw.randint(1, 15)):
            history.steps(12)
            kind = draw.random()
            if kind < 0.1:
                watcher.restart()
            elif kind < 0.13:
                watcher.cut()
            else:
                watcher.look()
            check(watcher)
        history.steps(20)
        certain += check(watcher)
    assert certain > SEEDS_EACH / 10, "what is tested happens"


def logged(state: LoggedState, start: int = 5, at: int = 5, *numbers: int) -> LoggedTransaction:
    return LoggedTransaction("id", 7, 1, state, {"t": numbers} if numbers else {}, start, at)


def committed(seen: SourceTransactions, start: int = 5) -> None:
    records = [
        logged(S.ONGOING, start, start, 0, 1),
        logged(S.PREPARE_COMMIT, start, start + 1, 0, 1),
        logged(S.COMPLETE_COMMIT, start, start + 2),
    ]
    seen.look({A: 12, B: 25}, records, lambda: {A: 14, B: 27})


def test_the_bounds_of_a_short_transaction_are_the_ends_around_it() -> None:
    seen = SourceTransactions(selects)
    seen.look({A: 10, B: 20}, [], dict)
    committed(seen)
    (it,) = seen.ended.values()
    assert it.parts == {A: RecordRange(10, 14), B: RecordRange(20, 27)}
    torn = half_copied(it, {A: 14, B: 20})
    assert torn is not None
    assert torn.certain
    unclear = half_copied(it, {A: 14, B: 21})
    assert unclear is not None
    assert not unclear.certain
    assert half_copied(it, {A: 14, B: 27}) is None
    assert half_copied(it, {A: 10, B: 20}) is None


def test_one_that_was_open_before_the_first_look_has_no_first_offset() -> None:
    seen = SourceTransactions(selects)
    seen.look({A: 10, B: 20}, [], dict)
    records = [logged(S.PREPARE_COMMIT, 3, 6, 0, 1), logged(S.COMPLETE_COMMIT, 3, 7)]
    seen.look({A: 12, B: 25}, records, lambda: {A: 14, B: 27})
    (it,) = seen.ended.values()
    assert it.parts == {A: RecordRange(None, 14), B: RecordRange(None, 27)}


def test_a_look_without_a_partition_knows_where_it_ended_before() -> None:
    """It had no leader. The one that comes may have lost records, and others take their offsets."""
    seen = SourceTransactions(selects)
    seen.look({A: 10, B: 20}, [], dict, ids={"t": "1"})
    committed(seen)
    seen.look({A: 14, B: 27}, [], dict, ids={"t": "1"})
    seen.look({A: 14}, [], dict, ids={"t": "1"}, there=[A, B])
    seen.look({A: 14, B: 22}, [], dict, ids={"t": "1"})
    assert seen.lost
    assert not seen.ended


def test_a_partition_that_ends_before_where_it_did_is_another_one() -> None:
    seen = SourceTransactions(selects)
    seen.look({A: 10, B: 20}, [], dict)
    committed(seen)
    seen.look({A: 3, B: 25}, [], dict)
    assert not seen.ended


def test_the_oldest_are_left_out_and_counted_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replicator.coupling.source_transactions.KEPT_MAX", 2)
    assert KEPT_MAX > 2
    seen = SourceTransactions(selects)
    seen.look({A: 10, B: 20}, [], dict)
    for start in (10, 20, 30):
        committed(seen, start)
    assert seen.drop({A: 14, B: 20}) == [0]
    assert (seen.left_out, [it.start_ms for it in seen.ended.values()]) == (1, [20, 30])


def test_what_is_noted_in_pieces_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replicator.state.transaction_notes.PIECE_CHARS", 7)
    monkeypatch.setattr("replicator.state.transaction_notes.ENDED_MAX", 1)
    it = SourceTransaction("id", 7, 1, 5, committed=True, parts={A: RecordRange(None, 14), B: RecordRange(20)})
    last, notes = LastLook(9, 8, "why", 3, [it], {0: 4, 1: 6}, {A: 1}, [it]), TransactionNotes()
    later = replace(it, start_ms=6)
    records = dict[bytes | None, bytes | None](
        [*notes.write_ended({4: it, 5: later}), *notes.write_last(last, head=True)]
    )
    found = TransactionNotes.read(records)
    assert (found.last, found.ended) == (last, {4: it, 5: later})
    shorter = LastLook()
    records |= dict([*found.write_gone([4]), *found.write_last(shorter, head=True)])
    again = TransactionNotes.read(records)
    assert (again.last, again.ended) == (shorter, {5: later})
