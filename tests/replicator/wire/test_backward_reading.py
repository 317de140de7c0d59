"""The newest part of a log is read whole, from its end backwards, and no more than is allowed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import Any
from uuid import UUID

import pytest

from replicator.config import Cluster, Properties
from replicator.model.errors import Incident, NotAllowed, ReplicatorError
from replicator.model.partition import Partition
from replicator.wire import backward_reading
from replicator.wire.backward_reading import BackwardPlan, BackwardReading
from replicator.wire.producer_questions import LedTopic, ProducerQuestions
from tests.budget import budget
from tests.replicator.wire.fake_broker import TOPIC, TOPIC_ID, Answer, FakeBroker, Leader
from tests.replicator.wire.logs import batch

AT = Partition(TOPIC, 0)


def test_a_plan_reads_all_above_where_it_says_it_has_read_from() -> None:
    for seed in range(budget(100, 10_000)):
        check_plan(seed)


def check_plan(seed: int) -> None:
    random = Random(seed)
    batches, offset = list[tuple[int, int]](), random.randint(0, 5_000)  # first and last offset: compaction leaves gaps
    start = offset
    for _ in range(random.randint(0, 300)):
        last = offset + random.choice((0, 3, 50))
        batches.append((offset, last))
        offset = last + 1 + random.choice((0, 0, 10, 5_000))
    end = batches[-1][1] + 1 if batches else start
    size, bytes_max = random.randint(1, 50), random.choice((1, 20, 200, 10**6))
    plan, seen, taken = BackwardPlan(start, end, bytes_max), set[int](), 0
    for _ in range(10_000):
        if plan.next_offset is None:
            break
        there = [it for it in batches if it[1] >= plan.next_offset][: random.randint(1, 5)]
        seen |= {first for first, _ in there}
        taken += size * len(there)
        plan.took(there[-1][1] + 1 if there else plan.next_offset, size * len(there))
    assert plan.next_offset is None, seed
    assert seen >= {first for first, last in batches if last >= plan.read_from}, seed
    assert plan.whole == (plan.read_from <= start), seed
    assert plan.whole or (taken >= bytes_max and plan.read_from < end), seed


class Log(Leader):
    """Answers with one batch at a time."""

    def __init__(self, content: list[bytes], ends: list[int]) -> None:
        super().__init__()
        self.content, self.ends = content, ends
        self.offsets = {-1: ends[-1] + 1 if ends else 0, -2: 0}
        self.code = 0

    def answer_fetch(self, request: Any) -> Answer:
        offset = request.topics[0].partitions[0].fetch_offset
        there = [data for data, end in zip(self.content, self.ends, strict=True) if end >= offset]
        return self.fetched(records=b"".join(there[:2]), error_code=self.code)


@contextmanager
def reading(log: Log, leads: bool = True) -> Iterator[BackwardReading]:
    with FakeBroker(log) as broker:
        cluster = Cluster(name="east", properties=Properties({"bootstrap.servers": f"127.0.0.1:{broker.port}"}))
        with closing(ProducerQuestions(cluster, "test")) as questions:
            topic = LedTopic(UUID(bytes=TOPIC_ID), {0: broker.address if leads else None})
            yield BackwardReading(questions, {TOPIC: topic})


def log_of(batches: int, each: int) -> Log:
    return Log(
        [batch(number * each, (number + 1) * each - 1) for number in range(batches)],
        [(number + 1) * each - 1 for number in range(batches)],
    )


def offsets(found: BackwardReading, bytes_max: int = 10**9, seconds: float = 20.0) -> set[int]:
    read = found.read([AT], bytes_max, time.monotonic() + seconds)
    return {it.first_offset for at, it in read if at == AT}


def test_a_whole_log_is_read_over_several_windows() -> None:
    with reading(log_of(100, 100)) as found:
        assert offsets(found) == set(range(0, 10_000, 100))
        assert found.missing() == ({}, {})


def test_of_a_long_log_the_newest_part_is_read_and_from_where_is_said() -> None:
    with reading(log_of(100, 100)) as found:
        seen = offsets(found, 20_000)
        failed, cut = found.missing()
    assert failed == {}
    assert 5_000 < cut[AT] <= 10_000 - backward_reading.FIRST_OFFSETS
    assert seen >= set(range(cut[AT] // 100 * 100, 10_000, 100))


def test_when_time_is_over_nothing_counts_as_read() -> None:
    with reading(log_of(3, 100)) as found:
        assert offsets(found, seconds=-1.0) == set()
        assert found.missing().cut == {AT: 300}


@pytest.mark.parametrize(("code", "expected"), [(29, NotAllowed), (6, ReplicatorError)])
def test_a_log_that_may_not_be_read_is_named(code: int, expected: type[ReplicatorError]) -> None:
    log = log_of(3, 100)
    log.code = code
    with reading(log) as found:
        assert offsets(found) == set()
        assert isinstance(found.missing().failed[AT], expected)


def test_partitions_without_a_leader_and_damaged_batches_are_named() -> None:
    with reading(log_of(1, 1), leads=False) as found:
        assert offsets(found) == set()
        assert AT in found.missing().failed
    log = log_of(1, 10)
    log.content[0] = log.content[0][:-1] + b"?"
    with reading(log) as found:
        assert offsets(found) == set()
        assert isinstance(found.missing().failed[AT], Incident)
