"""Exact answers of the transaction APIs, request by request: what a client library would hide or retry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from integration_tests.harness import clients, wire
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.wire import MILLISECOND, Wire, settled

Producer = tuple[int, int]
DEFAULT_TIMEOUT_MS = 60_000
# What Produce says while a transaction is ending: up to version 11, and from 12 on.
ENDING = frozenset({E.not_enough_replicas, E.concurrent_transactions})
NOBODY = (-1, -1)


class Client:
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


@pytest.fixture
def client(target: BrokerHandle, unique: Callable[[str], str]) -> Iterator[Client]:
    topic = unique("answers")
    clients.create_topic(target.bootstrap, topic, 3)
    with wire.connected(target.bootstrap) as connection:
        for key_type in (0, 1):
            settled(
                lambda key_type=key_type: connection("find_coordinator", 3, key=topic, key_type=key_type),  # type: ignore[misc]
                lambda answer: answer.error_code,
            )
        yield Client(connection, topic, unique("id"), unique("group"))


def test_the_bump_of_a_named_epoch(client: Client) -> None:
    producer_id, epoch = client.fresh()
    assert client.init((producer_id, epoch)) == (E.none, (producer_id, epoch + 1))
    assert client.init((producer_id, epoch)) == (E.none, (producer_id, epoch + 1))
    assert client.init((producer_id, epoch + 2))[0] is E.producer_fenced
    assert client.init((producer_id, epoch + 2), version=3)[0] is E.invalid_producer_epoch
    assert client.init((producer_id + 999, epoch + 1))[0] is E.producer_fenced
    assert client.init((producer_id, -1))[0] is E.invalid_request
    assert client.init((-1, epoch))[0] is E.invalid_request


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_time_outs_out_of_range(client: Client, timeout_ms: int) -> None:
    assert client.init(timeout_ms=timeout_ms)[0] is E.invalid_transaction_timeout


def test_adding_partitions(client: Client) -> None:
    producer_id, epoch = client.fresh()
    assert client.add((producer_id + 1, epoch), 0) == {0: E.invalid_producer_id_mapping}
    assert client.add((producer_id, epoch + 1), 0) == {0: E.producer_fenced}
    assert client.add((producer_id, epoch + 1), 0, version=1) == {0: E.invalid_producer_epoch}
    mixed = {0: E.operation_not_attempted, 9: E.unknown_topic_or_partition}
    assert client.add((producer_id, epoch), 0, 9) == mixed
    assert client.add((producer_id, epoch), 0, topic="nowhere") == {0: E.unknown_topic_or_partition}
    assert client.end((producer_id, epoch)) is E.invalid_txn_state
    assert client.add((producer_id, epoch), 0, 1) == {0: E.none, 1: E.none}
    assert client.add((producer_id, epoch), 1) == {1: E.none}


def test_batches_in_and_out_of_order(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    client.add(producer, 0)
    assert client.produce(producer, 0, partition=2) == (E.invalid_txn_state, -1)
    assert client.produce(producer, 0, partition=2, version=11) == (E.transaction_abortable, -1)
    assert client.produce((producer_id, epoch + 1), 0) == (E.invalid_producer_epoch, -1)
    offsets = [client.produce(producer, sequence, count=2) for sequence in range(0, 12, 2)]
    assert offsets == [(E.none, offset) for offset in range(0, 12, 2)]
    repeated = [client.produce(producer, sequence, count=2) for sequence in (2, 6, 10)]
    assert repeated == [(E.none, 2), (E.none, 6), (E.none, 10)]
    for sequence, count in ((0, 2), (14, 1), (10, 3), (11, 1)):
        assert client.produce(producer, sequence, count=count)[0] is E.out_of_order_sequence_number
    assert client.produce(producer, 12, transactional=False)[0] is E.invalid_txn_state


def test_ends_in_and_out_of_turn(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    for commit in (True, False):
        client.add(producer, 0)
        assert client.end((producer_id + 1, epoch), commit) is E.invalid_producer_id_mapping
        assert client.end((producer_id, epoch + 1), commit) is E.producer_fenced
        assert client.end((producer_id, epoch + 1), commit, version=1) is E.invalid_producer_epoch
        assert client.end(producer, commit) is E.none
        assert client.end(producer, commit) is E.none
        assert client.end(producer, not commit) is E.invalid_txn_state


def test_a_batch_after_the_end_opens_nothing(client: Client) -> None:
    producer = client.fresh()
    client.add(producer, 0)
    client.produce(producer, 0)
    assert client.end(producer) is E.none
    # The second answer comes once all markers are written; before, a late batch would still be let in (KIP-890).
    assert client.end(producer) is E.none
    assert client.produce(producer, 1)[0] is E.invalid_txn_state
    assert client.produce(producer, 1, version=11)[0] is E.transaction_abortable
    assert client.add(producer, 0) == {0: E.none}
    assert client.produce(producer, 1) == (E.none, 2)
    assert client.end(producer, False) is E.none


def test_a_successor_fences(client: Client) -> None:
    old = client.fresh()
    client.add(old, 0)
    client.produce(old, 0)
    assert client.init_once().error_code is E.concurrent_transactions
    new = client.fresh()
    assert new == (old[0], old[1] + 2)
    assert client.add(old, 0) == {0: E.producer_fenced}
    assert client.end(old) is E.producer_fenced
    assert client.end(old, version=1) is E.invalid_producer_epoch
    assert client.produce(old, 1)[0] is E.invalid_producer_epoch
    assert client.init(old)[0] is E.producer_fenced
    assert client.add_offsets(old) is E.producer_fenced
    assert client.add_offsets(old, version=1) is E.invalid_producer_epoch
    assert client.commit_offset(old) is E.invalid_producer_epoch
    client.add(new, 0)
    assert client.produce(new, 5)[0] is E.out_of_order_sequence_number
    assert client.produce(new, 0)[0] is E.none


def test_after_the_time_out(client: Client) -> None:
    producer_id, epoch = producer = client.fresh(timeout_ms=1_000)
    client.add(producer, 0)
    client.produce(producer, 0)
    deadline = time.monotonic() + wire.TIMEOUT_S
    while client.add(producer, 0) == {0: E.none} and time.monotonic() < deadline:
        time.sleep(0.2)
    assert client.end(producer) is E.producer_fenced
    assert client.end(producer, version=1) is E.invalid_producer_epoch
    assert client.produce(producer, 1)[0] is E.invalid_producer_epoch
    assert client.init(producer) == (E.none, (producer_id, epoch + 1))
    assert client.fresh() == (producer_id, epoch + 2)
    assert client.init(producer)[0] is E.producer_fenced


def test_offsets_in_a_transaction(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    assert client.commit_offset(producer) is E.invalid_txn_state
    assert client.commit_offset(producer, version=4) is E.transaction_abortable
    assert client.commit_offset((producer_id + 1, epoch)) is E.invalid_producer_id_mapping
    assert client.commit_offset((producer_id, epoch + 1)) is E.invalid_producer_epoch
    client.add(producer, 0)
    assert client.commit_offset(producer) is E.invalid_txn_state
    assert client.add_offsets(producer) is E.none
    assert client.commit_offset(producer, 5) is E.none
    assert client.commit_offset((producer_id, epoch + 1)) is E.invalid_producer_epoch
    assert client.commit_offset(producer, partition=9) is E.unknown_topic_or_partition
    assert client.commit_offset(producer, generation_id=3) is E.unknown_member_id
    assert client.commit_offset(producer, member_id="ghost") is E.none
    assert client.fetch_offset() == (E.unstable_offset_commit, -1)
    assert client.fetch_offset(stable=False) == (E.none, -1)
    assert client.end(producer) is E.none
    client.offset_becomes(5)


def test_the_later_of_two_offsets_wins(client: Client) -> None:
    producer = client.fresh()
    client.add_offsets(producer)
    client.commit_offset(producer, 20)
    assert client.commit_plainly(30) is E.none
    assert client.fetch_offset(stable=False) == (E.none, 30)
    assert client.end(producer) is E.none
    client.offset_becomes(30)
    client.add_offsets(producer)
    assert client.commit_plainly(40) is E.none
    client.commit_offset(producer, 35)
    assert client.end(producer) is E.none
    client.offset_becomes(35)


def test_a_group_deleted_while_its_offset_is_pending(client: Client) -> None:
    producer = client.fresh()
    client.add_offsets(producer)
    client.commit_offset(producer, 20)
    (result,) = client.wire("delete_groups", 2, groups_names=(client.group_id,)).results
    assert result.error_code is E.none
    assert client.end(producer) is E.none
    client.offset_becomes(-1)


def test_version_two_adds_partitions_by_themselves_and_bumps_at_each_end(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    assert client.produce(producer, 0, version=12) == (E.none, 0)
    assert client.produce(producer, 1, version=12) == (E.none, 1)
    assert client.produce(producer, 5, partition=1, version=12)[0] is E.out_of_order_sequence_number
    assert client.produce((producer_id, epoch + 1), 0, partition=2, version=12)[0] is E.invalid_producer_epoch
    assert client.produce((producer_id + 1, epoch), 0, partition=2, version=12)[0] is E.invalid_producer_id_mapping
    assert client.commit_offset(producer, 7, version=5) is E.none
    following = (producer_id, epoch + 1)
    assert client.end_and_bump(producer) == (E.none, following)
    assert client.end_and_bump(producer) == (E.none, following)
    assert client.end_and_bump(producer, False) == (E.invalid_txn_state, NOBODY)
    client.offset_becomes(7)
    assert client.produce(producer, 2, version=12)[0] is E.invalid_producer_epoch
    assert client.commit_offset(producer, version=5) is E.invalid_producer_epoch
    assert client.produce(following, 2, version=12)[0] is E.out_of_order_sequence_number
    assert client.produce(following, 0, version=12) == (E.none, 3)
    assert client.end_and_bump(producer) == (E.producer_fenced, NOBODY)
    assert client.end_and_bump(following, False) == (E.none, (producer_id, epoch + 2))


def test_version_two_aborts_nothing_but_commits_something_only(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    assert client.end_and_bump(producer) == (E.invalid_txn_state, NOBODY)
    assert client.end_and_bump(producer, False) == (E.none, (producer_id, epoch + 1))
    assert client.end_and_bump(producer, False) == (E.none, (producer_id, epoch + 1))
    assert client.end_and_bump((producer_id, epoch + 1), False) == (E.none, (producer_id, epoch + 2))


def test_version_two_after_the_coordinator_aborted(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    assert client.produce(producer, 0, version=12) == (E.none, 0)
    assert client.init_once().error_code is E.concurrent_transactions
    assert client.end_and_bump(producer) == (E.invalid_txn_state, NOBODY)
    assert client.end_and_bump(producer, False) == (E.none, (producer_id, epoch + 1))
    assert client.fresh() == (producer_id, epoch + 2)
    assert client.end_and_bump(producer, False) == (E.producer_fenced, NOBODY)


def test_adding_and_verifying_as_brokers_do(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    assert client.add_batched(producer, 0, verify_only=True) == {0: E.transaction_abortable}
    assert client.add_batched(producer, 0) == {0: E.none}
    assert client.add_batched(producer, 0, 1, verify_only=True) == {0: E.none, 1: E.transaction_abortable}
    for verify_only in (True, False):
        assert client.add_batched((producer_id + 1, epoch), 0, verify_only=verify_only) == {
            0: E.invalid_producer_id_mapping
        }
        assert client.add_batched((producer_id, epoch + 1), 0, verify_only=verify_only) == {0: E.producer_fenced}
        mixed = {0: E.operation_not_attempted, 9: E.unknown_topic_or_partition}
        assert client.add_batched(producer, 0, 9, verify_only=verify_only) == mixed
    assert client.end_and_bump(producer) == (E.none, (producer_id, epoch + 1))
    assert client.add_batched(producer, 0, verify_only=True) == {0: E.producer_fenced}


def test_both_versions_by_turns(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    assert client.add(producer, 0) == {0: E.none}
    assert client.produce(producer, 0) == (E.none, 0)
    assert client.end_and_bump(producer) == (E.none, (producer_id, epoch + 1))
    assert client.end(producer) is E.producer_fenced
    producer = producer_id, epoch + 1
    # Taken for the repetition of the end before: this version has no epoch that would tell.
    assert client.end(producer) is E.none
    assert client.end(producer, False) is E.invalid_txn_state
    assert client.produce(producer, 0, version=12) == (E.none, 2)
    assert client.end(producer) is E.none
    assert client.end(producer) is E.none
    assert client.end_and_bump(producer) == (E.invalid_txn_state, NOBODY)
    assert client.add_offsets(producer) is E.none
    assert client.commit_offset(producer, 3) is E.none
    assert client.end_and_bump(producer) == (E.none, (producer_id, epoch + 2))
    client.offset_becomes(3)
