"""What a fetcher tells, and whom it asks: one case after the other."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from replicator.model.errors import Incident, NotAllowed, Retriable, TopicMissing
from replicator.model.fetches import EpochEnd, EpochQuestion, FetchAnswer, FetchedPart
from replicator.model.partition import Partition, Seek
from replicator.planes.batches.fetcher_terms import FetchedNews, FetcherSettings
from replicator.planes.batches.part_read import TopicLeaders
from replicator.planes.contract import ReadPlan
from tests.replicator.planes.batches.checked_fetcher import CheckedFetcher
from tests.replicator.planes.batches.logs import EPOCH, Step, built, singly
from tests.replicator.planes.batches.model_source import ModelPart, ModelSource
from tests.replicator.planes.batches.test_committed import data_of

AT, OTHER = Partition("t", 0), Partition("t", 1)
PATIENCE_S, NEARER_S = 30.0, 300.0


class Reader:
    """A fetcher with what it asks. Its logs have batches of two records: at 0 and 2, which are committed at 4; at 5,
    which is aborted at 7; and at 8."""

    def __init__(self, *plans: ReadPlan, at: tuple[Partition, ...] = (AT, OTHER)) -> None:
        end = Step("end", 1), Step("end", 1, commit=False)
        steps = [data_of(), data_of(), end[0], data_of(), end[1], Step("plain", records=data_of().records)]
        self.source = ModelSource({each: ModelPart(built(steps)) for each in at})
        self.fetcher = CheckedFetcher(FetcherSettings("east", patience_s=PATIENCE_S, nearer_s=NEARER_S))
        self.now_s = 0.0
        self.fetcher.seek(dict(zip(at, plans or [ReadPlan(Seek(0, -1))] * len(at), strict=True)))

    def look_up(self) -> None:
        for topic in self.fetcher.topics(self.now_s):
            self.fetcher.looked_up({topic: TopicLeaders(0, self.source.topic_id, self.source.leaders())}, self.now_s)

    def fetch(self, broker: int = 0) -> FetchedNews:
        """Look up what is to be looked up, and fetch once if there is something to fetch."""
        self.look_up()
        request = self.fetcher.next_fetch(broker, self.now_s)
        if request is not None:
            self.fetcher.fetched(broker, request.number, self.source.fetch(broker, request.ask), self.now_s)
        return self.fetcher.take()

    def answer(self, part: FetchedPart, broker: int = 0) -> FetchedNews:
        """Fetch once, and have the broker say this of one partition in an answer that has both."""
        self.look_up()
        request = self.fetcher.next_fetch(broker, self.now_s)
        assert request is not None
        whole = FetchAnswer(
            0, 0, tuple(part if key == part.key else FetchedPart(key, 0) for key, _ in request.ask.parts)
        )
        self.fetcher.fetched(broker, request.number, whole, self.now_s)
        return self.fetcher.take()

    def part(self, code: int = 0, **facts: int) -> FetchedPart:
        return FetchedPart((self.source.topic_id, AT.partition), code, **facts)  # type: ignore[arg-type]


def test_what_is_committed_is_read_to_the_end_and_the_end_told() -> None:
    reader = Reader()
    news = reader.fetch()
    end = reader.source.parts[AT].log.end
    assert [batch.wanted for batch in singly(news.selected[AT])] == [((0, 2),), ((2, 4),), ((8, 10),)]
    assert news.ends == {AT: Seek(end, EPOCH), OTHER: Seek(end, EPOCH)}
    assert news.heard == {AT, OTHER}
    assert not news.failed
    assert reader.fetch() == FetchedNews()
    assert reader.source.asked[-1].parts != ()  # from the end on now
    reader.fetch()
    assert reader.source.asked[-1].parts == ()


@pytest.mark.parametrize("epoch", [-1, EPOCH])
@pytest.mark.parametrize("back", [0, 1])
def test_the_end_is_told_again_to_whoever_seeks_it(back: int, epoch: int) -> None:
    """A broker doesn't name a partition of which there is nothing new. With an epoch its log is checked first."""
    reader = Reader()
    ends = {at: Seek(end.offset, epoch) for at, end in reader.fetch().ends.items()}
    reader.fetch()
    assert not reader.fetcher.behind(0.0)
    reader.fetcher.seek({AT: ReadPlan(ends[AT]), OTHER: ReadPlan(Seek(ends[OTHER].offset - back, epoch))})
    assert reader.fetcher.behind(0.0) is bool(back)
    if epoch >= 0:
        assert reader.fetcher.take().ends == {}, "before its log is checked"
        asked = reader.fetcher.next_check(0, 0.0)
        reader.fetcher.checked(0, {at: reader.source.epoch_end(0, at, it) for at, it in asked.items()}, 0.0)
    news = reader.fetch()
    assert {at: end.offset for at, end in news.ends.items()} == {at: end.offset for at, end in ends.items()}
    assert news.selected.keys() == ({OTHER} if back else set())
    assert not reader.fetcher.behind(0.0)


def test_nothing_at_or_behind_the_bound_is_read() -> None:
    plans = ReadPlan(Seek(0, -1), until=3), ReadPlan(Seek(0, -1), spans=((1, 2), (8, 9)))
    reader = Reader(*plans)
    news = reader.fetch()
    assert [batch.wanted for batch in singly(news.selected[AT])] == [((0, 2),), ((2, 3),)]
    assert [batch.wanted for batch in singly(news.selected[OTHER])] == [((1, 2),), ((8, 9),)]
    assert news.ends == {AT: Seek(3, EPOCH), OTHER: Seek(9, EPOCH)}
    assert reader.fetcher.next_fetch(0, 0.0) is None


def test_what_was_reached_before_is_told_at_once() -> None:
    reader = Reader(ReadPlan(Seek(4, 3), until=4), at=(AT,))
    assert reader.fetcher.take().ends == {AT: Seek(4, 3)}
    assert not reader.fetcher.topics(0.0)


def test_an_offset_that_is_gone_is_told_and_not_read_on() -> None:
    reader = Reader()
    reader.source.parts[AT].start = 3
    failed = reader.fetch().failed[AT]
    assert isinstance(failed, Incident)
    assert (failed.name, failed.topic, failed.partition, failed.offset) == ("source_records_gone", "t", 0, 0)
    reader.fetch()
    assert all(key[1] == OTHER.partition for key, _ in reader.source.asked[-1].parts)
    assert reader.source.asked[-1].forgotten == ((reader.source.topic_id, AT.partition),)


def test_a_corrupt_batch_stops_its_partition_at_its_offset() -> None:
    reader = Reader()
    log = reader.source.parts[AT].log
    first, last, data = log.batches[1]
    log.batches[1] = first, last, data[:-1] + bytes([data[-1] ^ 1])
    news = reader.fetch()
    failed = news.failed[AT]
    assert isinstance(failed, Incident)
    assert (failed.name, failed.offset) == ("source_corrupt", 2)
    assert [batch.wanted for batch in singly(news.selected[AT])] == [((0, 2),)]
    assert len(news.selected[OTHER]) == 3


def check(reader: Reader, answer: EpochEnd) -> tuple[dict[Partition, EpochQuestion], FetchedNews]:
    reader.look_up()
    questions = reader.fetcher.next_check(0, reader.now_s)
    assert reader.fetcher.next_fetch(0, reader.now_s) is None  # nothing of it is read before
    reader.fetcher.checked(0, dict.fromkeys(questions, answer), reader.now_s)
    return questions, reader.fetcher.take()


@pytest.mark.parametrize("answer", [EpochEnd(0, 4, 2), EpochEnd(0, -1, -1), EpochEnd(0, 3, 900)])
def test_a_log_that_was_cut_below_the_position_is_told_before_anything_is_read(answer: EpochEnd) -> None:
    reader = Reader(ReadPlan(Seek(3, 4)), at=(AT,))
    questions, news = check(reader, answer)
    assert questions == {AT: EpochQuestion(EPOCH, 4)}
    failed = news.failed[AT]
    assert isinstance(failed, Incident)
    assert (failed.name, failed.topic, failed.partition, failed.offset) == ("source_truncated", "t", 0, 3)
    assert reader.fetcher.next_fetch(0, 0.0) is None


def test_a_position_is_checked_once_under_each_leader_epoch() -> None:
    reader = Reader(ReadPlan(Seek(3, 4)), at=(AT,))
    assert check(reader, EpochEnd(0, 4, 3))[1] == FetchedNews()
    assert reader.fetch().heard == {AT}
    reader.fetcher.seek({AT: ReadPlan(Seek(3, 4))})
    assert reader.fetcher.next_check(0, 0.0) == {}
    assert reader.fetch().heard == {AT}
    reader.source.parts[AT].epoch += 1
    assert not reader.fetch().heard
    reader.now_s += 1
    questions, news = check(reader, EpochEnd(0, EPOCH, 9))  # it was read to 10
    assert questions == {AT: EpochQuestion(EPOCH + 1, EPOCH)}
    assert isinstance(news.failed[AT], Incident)


def test_a_check_that_fails_is_made_again_by_the_leader_of_then() -> None:
    reader = Reader(ReadPlan(Seek(3, 4)), at=(AT,))
    assert check(reader, EpochEnd(ErrorCode.not_leader_or_follower))[1] == FetchedNews()
    reader.source.parts[AT].leader = 1
    reader.now_s += 1
    reader.source.parts[AT].epoch += 1
    reader.look_up()
    assert reader.fetcher.next_check(0, reader.now_s) == {}
    assert reader.fetcher.next_check(1, reader.now_s) == {AT: EpochQuestion(EPOCH + 1, 4)}


def test_a_leader_that_moved_is_asked_and_an_older_epoch_is_not_believed() -> None:
    reader = Reader(at=(AT,))
    part = reader.source.parts[AT]
    reader.look_up()
    part.leader, part.epoch = 1, EPOCH + 1
    assert not reader.fetch(0).heard  # it doesn't lead any more
    reader.now_s += 1
    reader.fetcher.looked_up({"t": TopicLeaders(0, reader.source.topic_id, {0: (0, 0, EPOCH - 1)})}, reader.now_s)
    assert reader.fetcher.next_fetch(0, reader.now_s) is None
    reader.now_s += 1
    assert reader.fetch(1).heard == {AT}


@pytest.mark.parametrize("code", [ErrorCode.not_leader_or_follower, ErrorCode.unknown_server_error, 9_999])
def test_no_failure_is_quiet_for_long(code: int) -> None:
    reader = Reader()
    tries, failed = 0, reader.answer(reader.part(code)).failed
    while not failed and reader.now_s < 3 * PATIENCE_S:
        tries += 1
        reader.now_s += 1.0
        failed = reader.answer(reader.part(code)).failed
    assert PATIENCE_S <= reader.now_s <= PATIENCE_S + 2
    assert 10 < tries < 60
    assert isinstance(failed[AT], Retriable)
    assert "'east': cannot read t[0]: " in str(failed[AT])


def test_what_failed_long_ago_has_no_part_in_the_patience_of_now() -> None:
    reader = Reader()
    reader.fetch()
    reader.source.parts[AT].codes = [ErrorCode.unknown_server_error]
    reader.source.parts[OTHER].log = built([data_of()])
    reader.fetch()
    for _ in range(3):
        reader.now_s += PATIENCE_S
        reader.fetch()  # what has failed is told again by the next answer, if there is nothing new too
    reader.source.parts[AT].codes = [ErrorCode.unknown_server_error]
    assert AT not in reader.fetch().failed


def test_a_cluster_that_tells_no_leaders_is_told_too() -> None:
    reader = Reader(at=(AT,))
    for _ in range(round(3 * PATIENCE_S)):
        reader.fetcher.look_up_failed("no broker answers", reader.now_s)
        reader.now_s += 1.0
    failed = reader.fetcher.take().failed
    assert isinstance(failed[AT], Retriable)
    assert "no broker answers" in str(failed[AT])


def test_a_right_that_is_missing_is_named() -> None:
    reader = Reader()
    failed = reader.answer(reader.part(ErrorCode.topic_authorization_failed)).failed[AT]
    assert isinstance(failed, NotAllowed)
    assert failed.partitions == {AT}
    assert "the user needs Read on topic 't' (TOPIC_AUTHORIZATION_FAILED)" in str(failed)


@pytest.mark.parametrize(("code", "partitions"), [(ErrorCode.unknown_topic_or_partition, 2), (0, 0)])
def test_a_topic_or_partition_that_isnt_there_is_missing(code: int, partitions: int) -> None:
    reader = Reader(at=(AT,))
    leaders = dict.fromkeys(range(partitions), (0, 0, EPOCH))
    reader.fetcher.looked_up({"t": TopicLeaders(code, reader.source.topic_id, leaders)}, 0.0)
    assert isinstance(reader.fetcher.take().failed[AT], TopicMissing)


def test_a_topic_that_was_created_again_is_not_read_before_it_is_sought_again() -> None:
    reader = Reader(at=(AT,))
    reader.fetch()
    reader.source.topic_id = b"another topic id"
    assert reader.fetch() == FetchedNews()
    reader.now_s += 1
    news = reader.fetch()
    assert isinstance(news.failed[AT], TopicMissing)
    assert not news.selected
    assert not reader.fetcher.topics(reader.now_s)
    reader.fetcher.seek({AT: ReadPlan(Seek(0, -1))})
    assert len(reader.fetch().selected[AT]) == 3


def test_a_nearer_replica_is_read_for_a_while() -> None:
    reader = Reader(at=(AT,))
    assert reader.answer(reader.part(preferred=2, last_stable=6)).heard == {AT}
    assert reader.fetcher.next_fetch(0, 0.0) is None
    assert reader.fetcher.brokers(0.0) == {2}
    reader.now_s = NEARER_S
    assert reader.fetcher.brokers(reader.now_s) == {0}


@pytest.mark.parametrize("code", [ErrorCode.offset_out_of_range, ErrorCode.not_leader_or_follower, None])
def test_what_a_nearer_replica_cant_serve_is_read_from_the_leader(code: int | None) -> None:
    reader = Reader(at=(AT,))
    reader.answer(reader.part(preferred=2))
    if code is None:
        assert reader.fetcher.next_fetch(2, 0.0) is not None
        reader.fetcher.broker_lost(2, "the connection broke", 0.0)
    else:
        assert reader.answer(reader.part(code), broker=2) == FetchedNews()
    assert reader.answer(reader.part(preferred=2)).heard == {AT}  # which isn't believed now
    assert len(reader.fetch().selected[AT]) == 3


def test_a_client_that_is_throttled_asks_nothing_meanwhile() -> None:
    reader = Reader()
    reader.look_up()
    request = reader.fetcher.next_fetch(0, 0.0)
    assert request is not None
    reader.fetcher.fetched(0, request.number, FetchAnswer(0, throttled_s=5.0), 0.0)
    assert reader.fetcher.next_fetch(0, 4.9) is None
    assert reader.fetcher.wake_s(0.0) == 5.0
    assert reader.fetcher.next_fetch(0, 5.0) is not None
    assert not reader.fetcher.take().failed


def test_an_answer_that_comes_late_counts_no_more() -> None:
    reader = Reader(at=(AT,))
    reader.look_up()
    request = reader.fetcher.next_fetch(0, 0.0)
    assert request is not None
    answer = reader.source.fetch(0, request.ask)
    reader.fetcher.seek({AT: ReadPlan(Seek(1, -1))})
    reader.fetcher.fetched(0, request.number, answer, 0.0)
    assert reader.fetcher.take() == FetchedNews()
    assert [batch.wanted for batch in singly(reader.fetch().selected[AT])] == [((1, 2),), ((2, 4),), ((8, 10),)]
    reader.fetcher.fetched(0, request.number, answer, 0.0)
    assert reader.fetcher.take() == FetchedNews()


def test_what_an_old_leader_answers_late_is_not_read_again() -> None:
    reader = Reader(at=(AT,))
    reader.look_up()
    request = reader.fetcher.next_fetch(0, 0.0)
    assert request is not None
    late = reader.source.fetch(0, request.ask)
    part = reader.source.parts[AT]
    part.leader, part.epoch = 1, EPOCH + 1
    reader.fetcher.looked_up({"t": TopicLeaders(0, reader.source.topic_id, reader.source.leaders())}, 0.0)
    assert len(reader.fetch(1).selected[AT]) == 3
    reader.fetcher.fetched(0, request.number, late, 0.0)
    assert reader.fetcher.take() == FetchedNews()


def test_a_broker_that_refuses_every_session_is_asked_again_at_once_and_then_told() -> None:
    reader = Reader(at=(AT,))
    tries, failed = 0, reader.fetcher.take().failed
    while not failed and reader.now_s < 3 * PATIENCE_S:
        reader.look_up()
        request = reader.fetcher.next_fetch(0, reader.now_s)
        if request is not None:
            tries += 1
            refused = FetchAnswer(ErrorCode.fetch_session_id_not_found)
            reader.fetcher.fetched(0, request.number, refused, reader.now_s)
        reader.now_s += 1.0 if tries > 1 else 0.0
        failed = reader.fetcher.take().failed
    assert 10 < tries < 60
    assert "FETCH_SESSION_ID_NOT_FOUND" in str(failed[AT])


def test_records_that_lead_nowhere_are_not_asked_for_in_a_circle() -> None:
    reader = Reader(at=(AT,))
    log = reader.source.parts[AT].log
    part = reader.part(last_stable=0)._replace(records=memoryview(log.batches[0][2]))
    assert not reader.answer(part).selected
    assert reader.fetcher.next_fetch(0, 0.0) is None
    assert reader.fetcher.wake_s(0.0) is not None
