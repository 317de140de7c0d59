"""Transactions that stay open at the source: prepared ones, which never time out, apart from those that hang."""

from __future__ import annotations

from datetime import timedelta

import pytest

from replicator.coupling.evidence import ActiveProducer, SeenTransaction
from replicator.inspect.plan_transactions import HANGS_MS, open_warnings
from replicator.model.errors import Retriable
from replicator.model.partition import Partition
from replicator.wire.producer_questions import ActiveProducers, TransactionalIds, TwoPhase
from tests.replicator.wire.test_producer_questions import asking, led, producer, transaction

pytestmark = pytest.mark.tier("default")  # the unit tier is full
NOW_MS = 10**12
OLD_MS, NEW_MS = NOW_MS - HANGS_MS - 1, NOW_MS - 1
ATS = [Partition("t", number) for number in range(7)]
NONE_KNOWN = TransactionalIds({}, [])
NEVER = timedelta(milliseconds=2**31 - 1)


def opened(producer_id: int, when_ms: int, *ats: Partition) -> ActiveProducers:
    return ActiveProducers({at: [ActiveProducer(producer_id, when_ms, True, 3)] for at in ats}, {})


def said(producers: ActiveProducers, ids: TransactionalIds = NONE_KNOWN) -> list[str]:
    return list(open_warnings(producers, ids, NOW_MS))


def test_a_producer_without_an_open_transaction_is_nothing_to_say() -> None:
    assert said(ActiveProducers({ATS[0]: [ActiveProducer(1, OLD_MS, True)]}, {})) == []


@pytest.mark.parametrize("when_ms", [OLD_MS, NEW_MS])
def test_a_prepared_one_never_times_out(when_ms: int) -> None:
    ids = TransactionalIds(
        {"x": 1}, [SeenTransaction("x", 1, {"t": (0,)})], two_phase=(TwoPhase("x", 1, NOW_MS - 7_200_000),)
    )
    (text,) = said(opened(1, when_ms, ATS[0]), ids)
    assert text == (
        "transaction of 'x' at the source, open for 120 min, is of a two-phase commit (KIP-939), and maybe prepared: "
        "it never times out, and what follows it in t[0] is not copied until its owner ends it"
    )


def test_one_that_only_leaders_know_hangs_once_it_is_older_than_any_may_be() -> None:
    assert said(opened(1, NEW_MS, ATS[0])) == []
    (text,) = said(opened(1, OLD_MS, ATS[0]))
    assert text.startswith("a transaction of producer id 1 at the source, without a record for 15 min, hangs, unless")
    assert "prepared (KIP-939) under a transactional id that the user may not Describe" in text


def test_one_that_its_coordinator_has_does_not_hang() -> None:
    assert said(opened(1, OLD_MS, ATS[0]), TransactionalIds({"x": 1}, [SeenTransaction("x", 1, {})])) == []


def test_partitions_of_one_transaction_are_named_together() -> None:
    (text,) = said(opened(1, OLD_MS, *ATS))
    assert text.endswith("in t[0], t[1], t[2], t[3], t[4] and 2 more partitions is not copied")


def test_what_is_not_known_is_said_once() -> None:
    error = Retriable("cluster 'east': cannot describe the producers of t[0]")
    assert said(ActiveProducers({}, dict.fromkeys(ATS, error)), TransactionalIds({}, [], (error,))) == [
        f"{error}; whether more transactions stay open at the source is not known"
    ]


def test_brokers_tell_which_are_of_two_phase_commits() -> None:
    with asking() as (questions, one, _):
        one.ids = {"x": (1, "Ongoing"), "y": (2, "Ongoing")}
        one.described = {
            "x": transaction("x") | {"transaction_timeout": NEVER},
            "y": transaction("y") | {"producer_id": 2},
        }
        one.producers = {Partition("a", 0): [producer(1, start=4), producer(2, start=6)]}
        ids = questions.transactional_ids()
        assert ids.two_phase == (TwoPhase("x", 1, 77),)
        (text,) = open_warnings(questions.producers(led(questions.topics({"a"}))), ids, 1_077)
    assert "transaction of 'x' at the source, open for 1 s" in text
    assert "in a[0]" in text
