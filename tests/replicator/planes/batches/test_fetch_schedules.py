"""Random schedules of a fetcher against a model of a source: whatever moves, is lost, late or refused, each committed
record is read once and in order, from wherever it was sought."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from kio.schema.errors import ErrorCode

from kafka_records.fetched import FetchedBatch
from kafka_records.records import Record, decode
from replicator.model.errors import Retriable
from replicator.model.fetches import FetchAnswer
from replicator.model.partition import Partition, Seek
from replicator.planes.batches.fetcher_terms import FetchedNews, FetcherSettings
from replicator.planes.batches.part_read import TopicLeaders
from replicator.planes.contract import ReadPlan
from tests.budget import budget
from tests.replicator.planes.batches.checked_fetcher import CheckedFetcher
from tests.replicator.planes.batches.logs import EPOCH, Step, built, singly
from tests.replicator.planes.batches.model_source import ModelPart, ModelSource

pytestmark = pytest.mark.tier("default")

ALL = [Partition("t", number) for number in range(3)]
BROKERS = (0, 1)
PASSING = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_id,
    ErrorCode.kafka_storage_error,
    ErrorCode.unknown_server_error,
    ErrorCode.offset_not_available,
)


def steps_of(random: Random) -> list[Step]:
    """A log of a few producers, with transactions that end in both ways, gaps and markers of other kinds."""
    found = []
    for number in range(random.randint(8, 25)):
        kind = random.choice(["plain", "data", "data", "data", "end", "end", "other"])
        records = [Record(0, 5, None, b"%d/%d" % (number, each)) for each in range(random.randint(1, 4))]
        kept = [random.random() < 0.7 for _ in records] if random.random() < 0.3 else []
        found.append(
            Step(kind, random.randint(1, 3), records, random.choice([0, 4]), kept=kept, commit=random.random() < 0.6)
        )
    return found + [Step("end", producer, commit=True) for producer in (1, 2, 3)]


class Reading:
    """What reads, what it has read since the last seek, and what it should have."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.steps = {at: steps_of(random) for at in ALL}
        self.shown = dict.fromkeys(ALL, 0)
        self.source = ModelSource({at: ModelPart(built([]), random.choice(BROKERS)) for at in ALL})
        self.fetcher = CheckedFetcher(FetcherSettings("east", part_bytes_max=random.choice([1, 150, 10_000])))
        self.source.response_bytes_max = random.choice([200, 1 << 20])
        self.now_s, self.calm = 0.0, False
        self.under_way: dict[int, tuple[int, FetchAnswer | None]] = {}
        self.seen: Counter[str] = Counter()
        self.seek(dict.fromkeys(ALL, Seek(0, -1)))

    def seek(self, starts: dict[Partition, Seek]) -> None:
        self.fetcher.seek({at: ReadPlan(start) for at, start in starts.items()})
        self.start, self.got = {at: seek.offset for at, seek in starts.items()}, {at: list[int]() for at in ALL}
        self.stands = dict(starts)

    def grow(self) -> None:
        at = self.random.choice(ALL)
        self.shown[at] = min(len(self.steps[at]), self.shown[at] + self.random.randint(1, 4))
        self.source.parts[at].log = built(self.steps[at][: self.shown[at]])

    def upset(self) -> None:
        """Something happens that no reader may notice."""
        random, at = self.random, self.random.choice(ALL)
        part = self.source.parts[at]
        match random.randrange(8):
            case 0:
                part.leader, part.epoch = random.choice(BROKERS), part.epoch + 1
            case 1:
                part.codes = [random.choice(PASSING)]
            case 2:
                self.source.sessions.clear()
            case 3 if self.under_way:
                broker = random.choice(list(self.under_way))
                del self.under_way[broker]
                self.fetcher.broker_lost(broker, "the connection broke", self.now_s)
                self.seen["lost"] += 1
            case 4:
                committed = [each.offset for each in part.log.committed]
                starts = {each: self.random.choice([Seek(0, -1), self.stands[each]]) for each in ALL}
                if committed:
                    starts[at] = Seek(random.choice(committed), EPOCH)
                self.seek(starts)
            case 5:
                self.now_s += 2.0
            case _:
                self.grow()

    def step(self) -> None:
        random, fetcher, now_s = self.random, self.fetcher, self.now_s
        if not self.calm and random.random() < 0.3:
            self.upset()
        for topic in fetcher.topics(now_s):
            fetcher.looked_up({topic: TopicLeaders(0, self.source.topic_id, self.source.leaders())}, now_s)
        for broker in BROKERS:
            if questions := fetcher.next_check(broker, now_s):
                answers = {at: self.source.epoch_end(broker, at, each) for at, each in questions.items()}
                fetcher.checked(broker, answers, now_s)
                self.seen["checked"] += 1
            if (request := fetcher.next_fetch(broker, now_s)) is not None:
                assert broker not in self.under_way
                self.under_way[broker] = request.number, None
                if self.calm or random.random() < 0.9:  # else it is lost on its way, and the connection breaks later
                    self.under_way[broker] = request.number, self.source.fetch(broker, request.ask)
        for broker, (number, answer) in list(self.under_way.items()):
            if self.calm or random.random() < 0.6:
                del self.under_way[broker]
                if answer is None:
                    fetcher.broker_lost(broker, "no answer", now_s)
                else:
                    fetcher.fetched(broker, number, answer, now_s)
        self.take(fetcher.take())
        self.now_s += 0.1

    def expected(self, at: Partition) -> list[int]:
        """Offsets of what is committed from where it was sought."""
        return [each.offset for each in self.source.parts[at].log.committed if each.offset >= self.start[at]]

    def take(self, news: FetchedNews) -> None:
        for at, batches in news.selected.items():
            for batch, wanted, _ in singly(batches):
                assert isinstance(batch, FetchedBatch)
                records = [each.offset for each in decode(batch.data)]
                self.got[at] += [each for each in records if any(first <= each < end for first, end in wanted)]
            if self.got[at]:
                self.stands[at] = Seek(self.got[at][-1] + 1, EPOCH)
        for at, end in news.ends.items():
            assert end.offset <= self.source.parts[at].log.stable
            assert self.got[at] == [offset for offset in self.expected(at) if offset < end.offset]
        assert all(isinstance(error, Retriable) for error in news.failed.values()), news.failed
        for at, error in news.failed.items():
            self.seen[type(error).__name__] += 1
            self.seek({each: self.stands[each] for each in ALL} | {at: self.stands[at]})
        for at, got in self.got.items():
            assert got == self.expected(at)[: len(got)], at

    def run(self) -> None:
        for _ in range(150):
            self.step()
        self.calm = True
        for at in ALL:
            self.shown[at] = len(self.steps[at])
            self.source.parts[at].log = built(self.steps[at])
        for _ in range(400):
            if all(self.got[at] == self.expected(at) for at in ALL):
                return
            self.step()
        raise AssertionError(f"no progress: {self.stands}")


def test_each_committed_record_is_read_once_whatever_happens() -> None:
    seen: Counter[str] = Counter()
    asked = Counter[str]()
    for seed in range(budget(5, 5_000)):
        reading = Reading(seed)
        try:
            reading.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        seen += reading.seen
        for ask in reading.source.asked:
            asked["whole" if ask.session_epoch == 0 else "incremental"] += 1
            asked["forgotten"] += len(ask.forgotten) > 0
            asked["nothing new"] += ask.session_epoch > 0 and not ask.parts
    assert {"lost", "checked"} <= seen.keys()
    assert min(asked[each] for each in ("whole", "incremental", "forgotten", "nothing new")) > 0, asked
