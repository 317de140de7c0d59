"""Transactions that are open at the source and may stay so, for `inspect.planning`: what follows them isn't copied.

One of a two-phase commit (KIP-939) never times out: whoever has prepared it ends it, after days, too. One that hangs
(KIP-664) is known to the leader of a partition alone, and nobody will end it. `open_warnings` is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import closing

from replicator.config import Flow
from replicator.model.counting import named
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.wire.producer_questions import ActiveProducers, LedTopic, ProducerQuestions, TransactionalIds

HANGS_MS = 15 * 60_000
"""`transaction.max.timeout.ms` by default: a coordinator has ended any other transaction by then. As `find-hanging` of
kafka-transactions.sh."""
NAMED_MAX = 5


def transaction_warnings(flow: Flow, topics: Collection[str], now_ms: int) -> Iterator[str]:
    """Ask the source about the transactions in these topics. Whatever fails here keeps no flow from running."""
    if not topics:
        return
    try:
        with closing(ProducerQuestions(flow.source, f"eos-replicate.{flow.name}.plan")) as questions:
            described = questions.topics(topics)
            producers = questions.producers({name: it for name, it in described.items() if isinstance(it, LedTopic)})
            ids = questions.transactional_ids()
    except ReplicatorError as error:
        yield f"{error}; which transactions stay open at the source is not known"
        return
    yield from open_warnings(producers, ids, now_ms)


def open_warnings(producers: ActiveProducers, ids: TransactionalIds, now_ms: int) -> Iterator[str]:
    """Yield a warning for each transaction that may stay open, and one where that isn't known.

    Args:
        producers: of the flow's topics.
        ids: those that the user may describe.
        now_ms: wall clock.
    """
    where: defaultdict[int, list[Partition]] = defaultdict(list)
    last_ms: dict[int, int] = {}
    for at, active in sorted(producers.found.items()):
        for one in active:
            if one.open_from >= 0:
                where[one.producer_id].append(at)
                last_ms[one.producer_id] = max(one.when_ms, last_ms.get(one.producer_id, one.when_ms))
    two_phase = {it.producer_id: it for it in ids.two_phase}
    coordinated = {it.producer_id for it in ids.transactions}
    for producer_id, partitions in where.items():
        held = f"what follows it in {named(partitions, most=NAMED_MAX, noun='partition')} is not copied"
        if (prepared := two_phase.get(producer_id)) is not None:
            yield (
                f"transaction of {prepared.transactional_id!r} at the source, open for "
                f"{_age(now_ms - prepared.start_ms)}, is of a two-phase commit (KIP-939), and maybe prepared: it never "
                f"times out, and {held} until its owner ends it"
            )
        elif producer_id not in coordinated and now_ms - last_ms[producer_id] > HANGS_MS:
            yield (
                f"a transaction of producer id {producer_id} at the source, without a record for "
                f"{_age(now_ms - last_ms[producer_id])}, hangs, unless it is prepared (KIP-939) under a transactional "
                f"id that the user may not Describe: {held}"
            )
    failed = [*producers.failed.values(), *ids.unanswered]
    if failed:
        yield f"{failed[0]}; whether more transactions stay open at the source is not known"


def _age(ms: int) -> str:
    seconds = max(0, ms) // 1000
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60:,} min"
