"""One transactional id, one topic and one group, by single requests: what a client library would hide or retry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kio.schema.errors import ErrorCode as E

from integration_tests.harness import clients, wire
from integration_tests.harness.wire import MILLISECOND, Wire, settled

Producer = tuple[int, int]
DEFAULT_TIMEOUT_MS = 60_000
# What Produce says while a transaction is ending: up to version 11, and from 12 on.
ENDING = frozenset({E.not_enough_replicas, E.concurrent_transactions})
NOBODY = (-1, -1)


class TransactionClient:
    """One transactional id, one topic and one group, by single requests."""

    def __init__(self, wire: Wire, topic: str, transactional_id: str, group_id: str) -> None:
        self.wire, self.topic, self.transactional_id, self.group_id = wire, topic, transactional_id, group_id

    def init_once(self, expected: Producer = (-1, -1), version: int = 4, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        return self.wire(
            "init_producer_id",
            version,
            transactional_id=self.transactional_id,
            transaction_timeout=timeout_ms * MILLISECOND,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )

    def init(self, expected: Producer = (-1, -1), **options: Any) -> tuple[E, Producer]:
        answer = settled(lambda: self.init_once(expected, **options), lambda found: found.error_code)
        return answer.error_code, (answer.producer_id, answer.producer_epoch)

    def fresh(self, **options: Any) -> Producer:
        error_code, producer = self.init(**options)
        assert error_code is E.none
        return producer

    def add(self, producer: Producer, *partitions: int, version: int = 3, topic: str | None = None) -> dict[int, E]:
        def ask() -> dict[int, E]:
            answer = self.wire(
                "add_partitions_to_txn",
                version,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[{"name": topic or self.topic, "partitions": partitions}],
            )
            (found,) = answer.results_by_topic_v3_and_below
            return {each.partition_index: each.partition_error_code for each in found.results_by_partition}

        return settled(ask, lambda found: next(iter(found.values())))

    def add_batched(self, producer: Producer, *partitions: int, verify_only: bool = False) -> dict[int, E]:
        """AddPartitionsToTxn 5, as a broker sends it."""

        def ask() -> dict[int, E]:
            transaction = {
                "transactional_id": self.transactional_id,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "verify_only": verify_only,
                "topics": [{"name": self.topic, "partitions": partitions}],
            }
            answer = self.wire("add_partitions_to_txn", 5, transactions=[transaction])
            assert answer.error_code is E.none
            (found,) = answer.results_by_transaction[0].topic_results
            return {each.partition_index: each.partition_error_code for each in found.results_by_partition}

        return settled(ask, lambda found: next(iter(found.values())))

    def add_offsets(self, producer: Producer, version: int = 3) -> E:
        def ask() -> Any:
            return self.wire(
                "add_offsets_to_txn",
                version,
                transactional_id=self.transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                group_id=self.group_id,
            )

        return settled(ask, lambda found: found.error_code).error_code  # type: ignore[no-any-return]

    def end(self, producer: Producer, commit: bool = True, version: int = 3) -> E:
        def ask() -> Any:
            return self.wire(
                "end_txn",
                version,
                transactional_id=self.transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                committed=commit,
            )

        return settled(ask, lambda found: found.error_code).error_code  # type: ignore[no-any-return]

    def end_and_bump(self, producer: Producer, commit: bool = True) -> tuple[E, Producer]:
        """EndTxn 5: the identity to go on with comes back."""

        def ask() -> Any:
            return self.wire(
                "end_txn",
                5,
                transactional_id=self.transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                committed=commit,
            )

        answer = settled(ask, lambda found: found.error_code)
        return answer.error_code, (answer.producer_id, answer.producer_epoch)

    def produce(
        self, producer: Producer, sequence: int, partition: int = 0, *, count: int = 1, version: int = 9, **how: Any
    ) -> tuple[E, int]:
        records = wire.batch(producer, sequence, count, **how)
        deadline = time.monotonic() + wire.TIMEOUT_S
        while True:
            answer = self.wire(
                "produce",
                version,
                transactional_id=self.transactional_id,
                acks=-1,
                timeout=5_000 * MILLISECOND,
                topic_data=[{"name": self.topic, "partition_data": [{"index": partition, "records": records}]}],
            )
            found = answer.responses[0].partition_responses[0]
            if found.error_code not in ENDING or time.monotonic() > deadline:
                return found.error_code, found.base_offset
            time.sleep(0.02)

    def commit_offset(
        self, producer: Producer, offset: int = 5, *, version: int = 3, partition: int = 0, **member: Any
    ) -> E:
        def ask() -> E:
            answer = self.wire(
                "txn_offset_commit",
                version,
                transactional_id=self.transactional_id,
                group_id=self.group_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                topics=[{"name": self.topic, "partitions": [_offset(partition, offset)]}],
                **{"generation_id": -1, "member_id": "", "group_instance_id": None, **member},
            )
            return answer.topics[0].partitions[0].error_code  # type: ignore[no-any-return]

        return settled(ask, lambda found: found)

    def commit_plainly(self, offset: int) -> E:
        def ask() -> E:
            answer = self.wire(
                "offset_commit",
                8,
                group_id=self.group_id,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                topics=[{"name": self.topic, "partitions": [_offset(0, offset)]}],
            )
            return answer.topics[0].partitions[0].error_code  # type: ignore[no-any-return]

        return settled(ask, lambda found: found)

    def fetch_offset(self, *, stable: bool = True) -> tuple[E, int]:
        def ask() -> Any:
            topics = [{"name": self.topic, "partition_indexes": (0,)}]
            return self.wire("offset_fetch", 7, group_id=self.group_id, topics=topics, require_stable=stable)

        found = settled(ask, lambda answer: answer.error_code).topics[0].partitions[0]
        return found.error_code, found.committed_offset

    def offset_becomes(self, offset: int) -> None:
        """Markers follow the answer to EndTxn; wait until a stable offset shows."""
        deadline = time.monotonic() + wire.TIMEOUT_S
        while (found := self.fetch_offset())[0] is E.unstable_offset_commit and time.monotonic() < deadline:
            time.sleep(0.02)
        assert found == (E.none, offset)


def _offset(partition: int, offset: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }


@contextmanager
def transaction_client(bootstrap: str, topic: str, transactional_id: str, group_id: str) -> Iterator[TransactionClient]:
    """Creates the topic, with three partitions, and finds both coordinators."""
    clients.create_topic(bootstrap, topic, 3)
    with wire.connected(bootstrap) as connection:
        for key_type in (0, 1):
            settled(
                lambda key_type=key_type: connection("find_coordinator", 3, key=topic, key_type=key_type),  # type: ignore[misc]
                lambda answer: answer.error_code,
            )
        yield TransactionClient(connection, topic, transactional_id, group_id)
