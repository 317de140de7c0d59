"""Exact answers of the transaction APIs, request by request: what a client library would hide or retry."""

from __future__ import annotations

import time

import pytest
from kio.schema.errors import ErrorCode as E

from integration_tests.harness import wire
from integration_tests.harness.transacting import NOBODY
from integration_tests.harness.transacting import TransactionClient as Client


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
    assert client.add((producer_id, epoch), 0, topic="__consumer_offsets") == {0: E.topic_authorization_failed}
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
