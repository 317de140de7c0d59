"""Random schedules of the whole core, from a source's logs to a target's: fetcher, merger and session, as a plane uses
them. Whatever is lost, late, moved or refused on either side, what is committed on the target of a partition is what is
committed on the source below the position that is committed with it."""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_records.fetched import FetchedBatch
from kafka_records.small_batches import SmallBatches
from replicator.model.partition import Partition, Seek
from replicator.planes.batches.committed import Selected
from replicator.planes.batches.fetcher_terms import FetchedNews, FetcherSettings
from replicator.planes.batches.merge import BatchMerger, MergeLimits
from replicator.planes.batches.part_read import TopicLeaders
from replicator.planes.batches.phases import TxnPhase
from replicator.planes.batches.session import TransactionalSession
from replicator.planes.batches.txn_protocol import TxnProtocol
from replicator.planes.contract import ReadPlan
from tests.budget import budget
from tests.replicator.planes.batches.checked_fetcher import CheckedFetcher
from tests.replicator.planes.batches.logs import EPOCH, built
from tests.replicator.planes.batches.model_source import ModelPart, ModelSource
from tests.replicator.planes.batches.test_fetch_schedules import BROKERS, PASSING, steps_of
from tests.replicator.planes.batches.test_schedules import ALL, Lane

pytestmark = pytest.mark.tier("default")


def kind_of(selected: Selected) -> str:
    """How a batch goes on its way."""
    if isinstance(selected, SmallBatches):
        return "with others"
    assert isinstance(selected.batch, FetchedBatch)
    header = selected.batch.header
    gaps = header.record_count <= header.last_offset_delta
    return "with gaps" if gaps else "as it is" if selected.whole else "a part"


class CopyingLane(Lane):
    """A lane that copies what a model of a source has, from somewhere in it. `read` is what will be committed as
    positions."""

    def __init__(self, seed: int, protocol: TxnProtocol) -> None:
        self.source = ModelSource({at: ModelPart(built([])) for at in ALL})
        self.now_s = 0.0
        super().__init__(seed, protocol, records=0)
        self.steps = {at: steps_of(self.random) for at in ALL}
        self.shown = dict.fromkeys(ALL, 0)
        for at in ALL:
            self.show(at, self.random.randrange(8))
            self.cluster.positions[at] = self.random.randint(0, self.source.parts[at].log.stable)
        self.start = dict(self.cluster.positions)
        self.source.response_bytes_max = self.random.choice([150, 1 << 20])
        size, enough = self.random.choice([100, 10_000]), self.random.choice([1, 200, 10_000])
        self.limits = self.random.choice([MergeLimits(size, enough_bytes=enough), MergeLimits(100_000)])

    def begin(self) -> None:
        """Begin a producer session: with a fetcher of its own."""
        super().begin()
        self.fetcher = CheckedFetcher(FetcherSettings("east", patience_s=1e9))

    def rewind(self) -> None:
        """Read again from the committed positions; what was merged until then is forgotten."""
        super().rewind()
        self.fetcher.seek({at: ReadPlan(Seek(offset, EPOCH if offset else -1)) for at, offset in self.read.items()})
        self.mergers = {at: BatchMerger(at, self.limits) for at in ALL}

    def write_or_store(self, session: TransactionalSession) -> None:
        if self.random.random() < 0.85:
            self.upset()
            news = self.fetch()
            self.write(session, news)
        else:
            for at, merger in self.mergers.items():
                for batch in merger.drain().batches:
                    self.do(session, session.write(at, batch))
            if session is self.session and session.phase in (TxnPhase.READY, TxnPhase.OPEN):
                self.do(session, session.store(2))

    def fetch(self) -> FetchedNews:
        """Ask the source whatever is to be asked now."""
        fetcher, now_s = self.fetcher, self.now_s
        self.now_s += 0.5
        for topic in fetcher.topics(now_s):
            fetcher.looked_up({topic: TopicLeaders(0, self.source.topic_id, self.source.leaders())}, now_s)
        for broker in BROKERS:
            if questions := fetcher.next_check(broker, now_s):
                answers = {at: self.source.epoch_end(broker, at, each) for at, each in questions.items()}
                fetcher.checked(broker, answers, now_s)
            if (request := fetcher.next_fetch(broker, now_s)) is not None:
                answer = self.source.fetch(broker, request.ask)
                if self.calm or self.random.random() < 0.9:
                    fetcher.fetched(broker, request.number, answer, now_s)
                else:
                    fetcher.broker_lost(broker, "no answer", now_s)
        return fetcher.take()

    def write(self, session: TransactionalSession, news: FetchedNews) -> None:
        """Hand over what was read. A position may go past it once that is so, and not before."""
        assert not news.failed, news.failed
        for at, selected in news.selected.items():
            for each in selected:
                merged = self.mergers[at].take(each)
                assert merged.refused is None
                self.seen[kind_of(each)] += 1
                for batch in merged.batches:
                    self.do(session, session.write(at, batch))
                self.read[at] = each.next_offset if isinstance(each, SmallBatches) else each.wanted[-1][1]
        for at, end in news.ends.items():
            self.read[at] = end.offset

    def upset(self) -> None:
        random, at = self.random, self.random.choice(ALL)
        part = self.source.parts[at]
        if self.calm:
            return
        match random.randrange(10):
            case 0:
                part.leader, part.epoch = random.choice(BROKERS), part.epoch + 1
            case 1:
                part.codes = [random.choice(PASSING)]
            case 2:
                self.source.sessions.clear()
            case 3 | 4 | 5:
                self.show(at, self.shown[at] + random.randint(1, 4))

    def show(self, at: Partition, steps: int) -> None:
        self.shown[at] = min(len(self.steps[at]), steps)
        self.source.parts[at].log = built(self.steps[at][: self.shown[at]])

    def check(self) -> None:
        for at, partition in self.cluster.partitions.items():
            committed = [content for _, content in partition.committed]
            copied, log = range(self.start[at], self.cluster.positions[at]), self.source.parts[at].log
            assert committed == [one.value for one in log.committed if one.offset in copied], at

    def run(self) -> None:
        for _ in range(150):
            self.step()
        self.calm = True
        for at in ALL:
            self.show(at, len(self.steps[at]))
        for _ in range(3_000):
            if all(self.cluster.positions[at] == self.source.parts[at].log.end for at in ALL):
                return
            self.step()
        raise AssertionError(f"no progress: {self.session.phase}, {self.cluster.positions}")


@pytest.mark.parametrize("protocol", TxnProtocol)
def test_each_committed_record_is_copied_once_whatever_happens(protocol: TxnProtocol) -> None:
    seen: Counter[str] = Counter()
    for seed in range(budget(8, 5_000)):
        lane = CopyingLane(seed, protocol)
        try:
            lane.run()
        except BaseException as error:
            error.add_note(f"seed {seed}, {protocol.name}")
            raise
        seen += lane.seen
    ways = {"as it is", "a part", "with gaps", "with others"}
    assert ways | {"abort: REWIND", "over: NEW_SESSION", "again: LOOK_UP"} <= seen.keys(), seen
