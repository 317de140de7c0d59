"""What failures of a producer session mean to the lane."""

from __future__ import annotations

import pytest

from replicator.model.errors import (
    Abortable,
    ConfigError,
    Fatal,
    Fenced,
    NotAllowed,
    ReplicatorError,
    Retriable,
    UnknownOutcome,
)
from replicator.model.partition import Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi
from replicator.planes.batches.session import TxnFailure
from replicator.planes.batches_io.outcomes import Outcomes
from replicator.planes.contract import RecordsRefused

pytestmark = pytest.mark.tier("unit")

A, B, OTHER = Partition("a", 0), Partition("a", 1), Partition("b", 0)
ROUTES = {Partition("in", 0): A, Partition("in", 1): B, Partition("else", 0): OTHER}
OUTCOMES = Outcomes("f", "west", "eos.f.1.0", ROUTES)


def failure(class_: AnswerClass, api: TxnApi = TxnApi.PRODUCE, code: int = 0, *at: Partition) -> TxnFailure:
    return TxnFailure(class_, api, code, frozenset(at))


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (failure(AnswerClass.REWIND, TxnApi.PRODUCE, 120, A), Abortable),
        (failure(AnswerClass.INCIDENT, TxnApi.TXN_OFFSET_COMMIT, 25), Abortable),
        (failure(AnswerClass.NEW_SESSION, TxnApi.END_TXN, 13), UnknownOutcome),
        (failure(AnswerClass.FENCED, TxnApi.END_TXN, 90), Fenced),
        (failure(AnswerClass.BUG, TxnApi.END_TXN, 42), Fatal),
        (failure(AnswerClass.NEW_SESSION, TxnApi.INIT_PRODUCER_ID, 49), Retriable),
        (failure(AnswerClass.INCIDENT, TxnApi.INIT_PRODUCER_ID, 50), ConfigError),
    ],
)
def test_each_class_has_its_error(found: TxnFailure, kind: type[ReplicatorError]) -> None:
    error = OUTCOMES.of([found])
    assert type(error) is kind
    assert str(error).startswith("cluster 'west': cannot ")


def test_what_is_worst_counts_and_a_refusal_before_what_only_follows_from_it() -> None:
    refused = TxnFailure(AnswerClass.REFUSED, TxnApi.PRODUCE, 87, frozenset({A}), 7, "no key", (9,))
    rewind = failure(AnswerClass.REWIND, TxnApi.TXN_OFFSET_COMMIT, 48)
    error = OUTCOMES.of([rewind, refused])
    assert isinstance(error, RecordsRefused)
    assert (error.refusals[Partition("in", 0)].suspects, error.refusals.keys()) == ((9,), {Partition("in", 0)})
    assert type(OUTCOMES.of([refused, failure(AnswerClass.FENCED, TxnApi.END_TXN, 90)])) is Fenced


def test_a_refusal_of_the_flow_s_own_topics_names_no_record() -> None:
    error = OUTCOMES.of([failure(AnswerClass.REFUSED, TxnApi.PRODUCE, 10, Partition("__eos.f.offsets", 3))])
    assert type(error) is Abortable
    assert "__eos.f.offsets[3]" in str(error)


@pytest.mark.parametrize(
    ("code", "api", "at", "right", "sources"),
    [
        (29, TxnApi.PRODUCE, (A,), "Write on topic 'a'", {Partition("in", 0), Partition("in", 1)}),
        (29, TxnApi.TXN_OFFSET_COMMIT, (OTHER,), "Read on topic 'b'", {Partition("else", 0)}),
        (30, TxnApi.TXN_OFFSET_COMMIT, (), "Read on group 'eos-replicate.f'", set()),
        (53, TxnApi.END_TXN, (), "Write and Describe on transactional id 'eos.f.1.0'", set()),
        (31, TxnApi.INIT_PRODUCER_ID, (), "IdempotentWrite on the cluster", set()),
    ],
)
def test_a_missing_right_is_named_and_concerns_all_partitions_of_its_topic(
    code: int, api: TxnApi, at: tuple[Partition, ...], right: str, sources: set[Partition]
) -> None:
    error = OUTCOMES.of([failure(AnswerClass.NOT_ALLOWED, api, code, *at)])
    assert isinstance(error, NotAllowed)
    assert f"the user needs {right} " in str(error)
    assert error.partitions == sources
