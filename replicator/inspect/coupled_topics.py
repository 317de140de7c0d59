"""Looks at a source cluster for topics that transactions tie together: asks its brokers, and reads what coordinators
have logged where that may be read. Changes nothing. Called by `eos-replicate coupled` and by `inspect.planning`.

What is known by which question
- DescribeProducers: who has written to a partition lately, and whether in transactions; in `__consumer_offsets`, who
  has committed offsets of groups in transactions.
- ListTransactions, DescribeTransactions: transactional ids, their producer ids, the transactions that they have now.
- `__transaction_state`: transactions of the past with all of their partitions, until compaction.
- `__consumer_offsets`: of which group, and in which topics, a producer has committed offsets.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka_records.batch import CorruptBatch
from kafka_records.fetched import FetchedBatch
from kafka_records.records import decode
from replicator.config import Flow, routing
from replicator.coupling.evidence import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    CommittedFor,
    ProducerEvidence,
    SeenIn,
    TransactionalWriter,
    Unseen,
)
from replicator.coupling.sets import CoupledSet, coupled_sets
from replicator.model import names
from replicator.model.counting import counted
from replicator.model.errors import NotAllowed, ReplicatorError, TopicMissing
from replicator.model.partition import Partition
from replicator.wire.backward_reading import BackwardReading
from replicator.wire.committed_log import corrupt
from replicator.wire.coordinator_logs import offset_of, transaction_of
from replicator.wire.producer_questions import LedTopic, ProducerQuestions
from replicator.wire.response_limits import BadResponse

LOOK_S_MAX = 20.0
"""After that no more is read of the coordinators' logs."""
READ_BYTES_MAX = 4 * 1024 * 1024
"""Of each partition of those logs, the newest."""
BATCH_BYTES_MAX = 16 * 1024 * 1024
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class CoupledTopics:
    """Of one flow's source. `unseen`: what isn't known, and why: any of it may couple more topics."""

    flow: str
    sets: list[CoupledSet]
    unseen: list[Unseen]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "flow": self.flow,
            "sets": [it.as_json() for it in self.sets],
            "unseen": [it._asdict() for it in self.unseen],
        }


def look(flow: Flow, *, read_bytes_max: int = READ_BYTES_MAX) -> CoupledTopics:
    """Look at the flow's source.

    Args:
        read_bytes_max: of each partition of the coordinators' logs.

    Raises:
        Unreachable: no broker answers. Unsupported: a login, or a version of Kafka's protocol, that isn't spoken here.
        ConfigError: the properties of the cluster are wrong.
    """
    with closing(ProducerQuestions(flow.source, f"eos-replicate.{flow.name}.coupled")) as questions:
        return _Look(flow, questions, read_bytes_max).run()


class _Look:
    def __init__(self, flow: Flow, questions: ProducerQuestions, read_bytes_max: int) -> None:
        self._flow, self._questions, self._read_bytes_max = flow, questions, read_bytes_max
        self._evidence = ProducerEvidence()
        self._until_s = time.monotonic() + LOOK_S_MAX

    def run(self) -> CoupledTopics:
        topics = self._topics()
        copied = {name for name in topics if routing.selects(self._flow, name)}
        self._producers(topics, copied)
        self._transactional_ids()
        self._transaction_log(topics)
        self._offsets_log(topics)
        writers = self._evidence.writers()
        sets = coupled_sets(writers, copied)
        self._unknown(writers)
        return CoupledTopics(self._flow.name, sets, self._evidence.unseen)

    def _topics(self) -> dict[str, LedTopic]:
        """Describe all topics that the user may see, and those of coordinators."""
        internal = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        literal = routing.literals(self._flow)
        described = self._questions.topics(None)
        described |= self._questions.topics({*internal, *literal})
        found = {name: it for name, it in described.items() if isinstance(it, LedTopic)}
        for name, error in described.items():
            absent = isinstance(error, TopicMissing) and name in internal  # nobody has used it yet
            if isinstance(error, ReplicatorError) and not absent:
                self._evidence.not_seen(f"topic {name!r}", error)
        return found

    def _producers(self, topics: Mapping[str, LedTopic], copied: Collection[str]) -> None:
        """Look at the producers of all topics, and of `__consumer_offsets`; in the flows' own ones lanes are
        recognised.
        """
        asked = {
            name: it
            for name, it in topics.items()
            if name == OFFSETS_TOPIC
            or not name.startswith(names.INTERNAL_PREFIX)
            or name.startswith(names.STATE_PREFIX)
        }
        found = self._questions.producers(asked)
        for at, producers in found.found.items():
            self._evidence.active(at.topic, at.partition, producers)
        why: defaultdict[str, ReplicatorError] = defaultdict()
        for at, error in sorted(found.failed.items()):
            if not at.topic.startswith(names.STATE_PREFIX):
                why.setdefault(at.topic, error)
        outside = [name for name in why if name not in copied and name != OFFSETS_TOPIC]
        for name, error in why.items():
            if name == OFFSETS_TOPIC:
                self._evidence.not_seen("which producers commit offsets of groups", error)
            elif name in copied:
                self._evidence.not_seen(f"producers of topic {name!r}", error)
        if outside:
            named = ", ".join(outside[:NAMED_MAX]) + (", ..." if len(outside) > NAMED_MAX else "")
            what = f"producers of {counted(len(outside), 'topic')} outside the flow ({named})"
            self._evidence.not_seen(what, why[outside[0]])

    def _transactional_ids(self) -> None:
        try:
            found = self._questions.transactional_ids()
        except ReplicatorError as error:
            self._evidence.not_seen("transactional ids", error)
            return
        for transactional_id, producer_id in found.producer_ids.items():
            self._evidence.named(transactional_id, producer_id)
        for it in found.transactions:
            self._evidence.transaction(it, SeenIn.OPEN_TRANSACTION)
        for why in found.unanswered:
            self._evidence.not_seen("some transactional ids, or their transactions", why)

    def _transaction_log(self, topics: Mapping[str, LedTopic]) -> None:
        def take(batch: FetchedBatch) -> None:
            for record in decode(batch.data, BATCH_BYTES_MAX):
                found = transaction_of(record.key, record.value)
                if found is not None:
                    self._evidence.transaction(found, SeenIn.TRANSACTION_LOG)

        if TRANSACTIONS_TOPIC in topics:
            ats = _partitions(topics, TRANSACTIONS_TOPIC)
            self._read(topics, ats, take, "transactions of the past")

    def _offsets_log(self, topics: Mapping[str, LedTopic]) -> None:
        """Read the log of committed offsets, all partitions of it: commits outlast what leaders know of who has made
        them.
        """

        def take(batch: FetchedBatch) -> None:
            header = batch.header
            if not header.is_transactional or header.is_control:
                return
            for record in decode(batch.data, BATCH_BYTES_MAX):
                found = offset_of(record.key)
                if found is not None:
                    self._evidence.committed_offset(CommittedFor(header.producer_id, *found, record.timestamp_ms))

        if OFFSETS_TOPIC in topics:
            ats = _partitions(topics, OFFSETS_TOPIC)
            self._read(topics, ats, take, "groups whose offsets are committed in transactions")

    def _read(
        self,
        topics: Mapping[str, LedTopic],
        ats: Collection[Partition],
        take: Callable[[FetchedBatch], None],
        what: str,
    ) -> None:
        reading = BackwardReading(self._questions, topics)
        for at, batch in reading.read(ats, self._read_bytes_max, self._until_s):
            try:
                take(batch)
            except CorruptBatch as error:
                self._evidence.not_seen(what, corrupt(at, batch.first_offset, error))
            except BadResponse as error:
                self._evidence.not_seen(what, f"{at} at offset {batch.first_offset}: {error}")
        failed, cut = reading.missing()
        denied = [each for each in failed.values() if isinstance(each, NotAllowed)]
        for each in denied[:1] or failed.values():
            self._evidence.not_seen(what, each)
        if cut:
            at = min(cut)
            more = f" and {len(cut) - 1} more partitions" if len(cut) > 1 else ""
            why = f"only the newest part was read, of {at} from offset {cut[at]} on,{more} likewise" if more else ""
            self._evidence.not_seen(what, why or f"only the newest part of {at} was read, from offset {cut[at]} on")

    def _unknown(self, writers: Iterable[TransactionalWriter]) -> None:
        nameless = [it for it in writers if not it.transactional_id]
        if nameless:
            ids = sorted(number for it in nameless for number in it.producer_ids)
            named = ", ".join(map(str, ids[:NAMED_MAX])) + (", ..." if len(ids) > NAMED_MAX else "")
            self._evidence.not_seen(
                f"transactional ids of {counted(len(ids), 'producer id')} ({named})",
                "Describe on transactional ids is missing, or they have expired",
            )
        without = [it.name for it in writers if it.commits_offsets and not it.reads]
        if without:
            named = ", ".join(without[:NAMED_MAX]) + (", ..." if len(without) > NAMED_MAX else "")
            self._evidence.not_seen(
                "which topics and groups are read by producers that commit offsets",
                f"no such commit was seen of {named}",
            )


def _partitions(topics: Mapping[str, LedTopic], name: str) -> list[Partition]:
    return [Partition(name, number) for number in topics[name].leaders]
