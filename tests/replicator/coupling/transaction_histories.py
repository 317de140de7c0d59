"""Producers that write transactions over several partitions, a coordinator's log, and lanes that copy: step by step, in
an order that is drawn. What it knows of each transaction is the truth that a verdict is held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from replicator.coupling.source_transactions import LoggedState, LoggedTransaction
from replicator.model.partition import Partition

S = LoggedState


@dataclass
class TrueTransaction:
    """One transaction: where its records stand, and how it ends. `lost`: its partitions whose topic was made anew
    since; `doubtful`: those of which a look couldn't know that they weren't; `unread`: some of its log is compacted.
    """

    number: int
    transactional_id: str
    epoch: int
    start_ms: int
    partitions: list[Partition] = field(default_factory=list)
    records: dict[Partition, list[int]] = field(default_factory=dict)
    state: LoggedState = S.ONGOING
    unmarked: list[Partition] = field(default_factory=list)
    lost: set[Partition] = field(default_factory=set)
    doubtful: set[Partition] = field(default_factory=set)
    unread: bool = False

    @property
    def committed(self) -> bool:
        return self.state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)

    def copied(self, at: Partition, position: int) -> bool | None:
        """Whether all of a partition's records are copied, or none of them; None: some are."""
        below = {offset < position for offset in self.records[at]}
        return None if len(below) > 1 else below == {True}

    def torn(self, positions: dict[Partition, int], *, doubtful: bool = True) -> bool:
        """Whether it is committed, and some of it is copied and some isn't. `doubtful`: these count, too."""
        left_out = self.lost if doubtful else self.lost | self.doubtful
        copied = {self.copied(at, positions[at]) for at in self.partitions if at not in left_out}
        return self.committed and len(copied) > 1 and True in copied and False in copied


class History:
    """One source and what is copied of it."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.now_ms = draw, 1_000
        self.ats = [Partition(draw.choice("tu"), number) for number in range(draw.randint(2, 4))]
        self.topic_ids = {"t": "t-0", "u": "u-0"}
        self.ends = dict.fromkeys(self.ats, 0)
        self.positions = dict.fromkeys(self.ats, 0)
        self.slow = draw.choice([None, *self.ats])
        self.log: list[LoggedTransaction] = []
        self.all: list[TrueTransaction] = []
        self.open: dict[str, TrueTransaction] = {}
        self.ids = [f"id-{number}" for number in range(draw.randint(1, 4))]
        self._epochs = dict.fromkeys(self.ids, 0)

    def steps(self, most: int) -> None:
        for _ in range(self.draw.randint(0, most)):
            self.step()

    def step(self) -> None:
        self.now_ms += self.draw.choice([0, 0, 1, 5])
        name = self.draw.choice(self.ids)
        it = self.open.get(name)
        kind = self.draw.random()
        if kind < 0.003:
            self._make_anew(self.draw.choice("tu"))
        elif kind < 0.25:
            self._copy()
        elif it is None:
            self.now_ms += 1  # an id begins one at a time
            self._begin(name)
        elif it.state is S.ONGOING:
            self._go_on(it)
        else:
            self._mark(it)

    def _make_anew(self, topic: str) -> None:
        """Delete a topic and make one of the same name; who copies it begins anew."""
        self.topic_ids[topic] += "+"
        for at in (at for at in self.ats if at.topic == topic):
            self.ends[at] = self.draw.choice([0, 0, self.ends[at] + 3])
            self.positions[at] = self.draw.randint(0, self.ends[at])
            for it in self.all:
                if at in it.partitions:
                    it.lost.add(at)
                    it.records[at] = []

    def _begin(self, name: str) -> None:
        self._epochs[name] += 1
        it = TrueTransaction(len(self.all), name, self._epochs[name], self.now_ms)
        self.all.append(it)
        self.open[name] = it
        self._add(it)

    def _add(self, it: TrueTransaction) -> None:
        """The coordinator logs partitions; then their records may be written."""
        left = [at for at in self.ats if at not in it.partitions]
        new = self.draw.sample(left, self.draw.randint(1, min(2, len(left)))) if left else []
        it.partitions += new
        self._logged(it)
        for at in new:
            it.records[at] = []
            if self.draw.random() < 0.7:
                self._write(it, at)

    def _write(self, it: TrueTransaction, at: Partition) -> None:
        if at not in it.lost:
            it.records[at].append(self.ends[at])
        self.ends[at] += 1

    def _go_on(self, it: TrueTransaction) -> None:
        kind = self.draw.random()
        if kind < 0.2 and len(it.partitions) < len(self.ats):
            self.now_ms += 1
            self._add(it)
        elif kind < 0.6:
            self._write(it, self.draw.choice(it.partitions))
        else:
            for at in it.partitions:
                if not it.records[at]:
                    self._write(it, at)
            it.state = S.PREPARE_COMMIT if self.draw.random() < 0.7 else S.PREPARE_ABORT
            it.unmarked = list(it.partitions)
            self.now_ms += 1
            self._logged(it)

    def _mark(self, it: TrueTransaction) -> None:
        if it.unmarked:
            at = it.unmarked.pop(self.draw.randrange(len(it.unmarked)))
            self.ends[at] += 1
            return
        it.state = S.COMPLETE_COMMIT if it.committed else S.COMPLETE_ABORT
        self.now_ms += 1
        self._logged(it)
        del self.open[it.transactional_id]

    def _logged(self, it: TrueTransaction) -> None:
        complete = it.state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        by_topic = {name: tuple(at.partition for at in it.partitions if at.topic == name) for name in "tu"}
        partitions = {} if complete else {**by_topic, "__consumer_offsets": (3,)}
        self.log.append(
            LoggedTransaction(
                it.transactional_id, 7, it.epoch, it.state, partitions, it.start_ms, self.now_ms
            )
        )  # fmt: skip

    def stable_end(self, at: Partition) -> int:
        """Where a read_committed reader stops."""
        first = [
            it.records[at][0]
            for it in self.open.values()
            if it.records.get(at) and (it.state is S.ONGOING or at in it.unmarked)
        ]
        return min([self.ends[at], *first])

    def _copy(self) -> None:
        at = self.draw.choice(self.ats)
        if at == self.slow and self.draw.random() < 0.9:
            return
        self.positions[at] = self.draw.randint(self.positions[at], max(self.positions[at], self.stable_end(at)))
