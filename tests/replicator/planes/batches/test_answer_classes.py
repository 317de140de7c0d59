"""Each error code that Kafka's handlers may answer has a class, and each protocol its versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from replicator.planes.batches.answer_classes import CLASSES, AnswerClass, TxnApi, classify_answer, worst
from replicator.planes.batches.txn_protocol import TxnProtocol, choose_protocol, version_of

pytestmark = pytest.mark.tier("default")

SEEN = Path(__file__).parents[4] / "integration_tests/contract/answer_classes.json"
COORDINATOR = "coordinator_load_in_progress coordinator_not_available not_coordinator unknown_server_error"
"""TransactionStateManager: what an append to its log, or the id's partition, may end with."""
OWNER = f"{COORDINATOR} invalid_producer_id_mapping producer_fenced invalid_producer_epoch concurrent_transactions"
"""TransactionCoordinator: how it checks who asks; InitProducerId has no mapping."""
ALWAYS = "none invalid_request unsupported_version transactional_id_authorization_failed"
HANDLERS = {
    TxnApi.FIND_COORDINATOR: (
        f"{ALWAYS} coordinator_not_available coordinator_load_in_progress group_authorization_failed invalid_group_id "
        "unknown_server_error"
    ),
    TxnApi.INIT_PRODUCER_ID: (
        f"{ALWAYS} {OWNER} invalid_transaction_timeout invalid_txn_state cluster_authorization_failed "
        "request_timed_out transaction_abortable"
    ),
    TxnApi.ADD_PARTITIONS_TO_TXN: (
        f"{ALWAYS} {OWNER} invalid_txn_state topic_authorization_failed unknown_topic_or_partition "
        "operation_not_attempted transaction_abortable"
    ),
    TxnApi.ADD_OFFSETS_TO_TXN: (
        f"{ALWAYS} {OWNER} invalid_txn_state group_authorization_failed operation_not_attempted invalid_group_id "
        "transaction_abortable"
    ),
    TxnApi.END_TXN: f"{ALWAYS} {OWNER} invalid_txn_state request_timed_out transaction_abortable",
    TxnApi.TXN_OFFSET_COMMIT: (
        f"{ALWAYS} {OWNER} group_authorization_failed topic_authorization_failed unknown_topic_or_partition "
        "offset_metadata_too_large invalid_commit_offset_size invalid_group_id illegal_generation unknown_member_id "
        "fenced_instance_id stale_member_epoch group_id_not_found rebalance_in_progress request_timed_out "
        "unsupported_for_message_format invalid_txn_state transaction_abortable"
    ),
    TxnApi.PRODUCE: (  # KafkaApis, ReplicaManager, Partition, UnifiedLog, LogValidator, ProducerAppendInfo
        f"{ALWAYS} {OWNER} topic_authorization_failed cluster_authorization_failed unknown_topic_or_partition "
        "unknown_topic_id inconsistent_topic_id invalid_topic_exception not_leader_or_follower leader_not_available "
        "fenced_leader_epoch unknown_leader_epoch kafka_storage_error replica_not_available not_enough_replicas "
        "not_enough_replicas_after_append request_timed_out network_exception invalid_required_acks corrupt_message "
        "message_too_large record_list_too_large invalid_record invalid_timestamp policy_violation "
        "unsupported_compression_type unsupported_for_message_format out_of_order_sequence_number "
        "duplicate_sequence_number unknown_producer_id invalid_txn_state transaction_abortable"
    ),
}


@pytest.mark.parametrize("api", TxnApi)
def test_what_kafkas_handlers_answer_has_a_class(api: TxnApi) -> None:
    names = set(HANDLERS[api].split())
    for answers in json.loads(SEEN.read_text()).values():  # what Kafka 4.3 answered in the contract tests
        names |= {name for said in answers[api.name.lower()].values() for name in said.split()}
    assert {name for name in names if ErrorCode[name] not in CLASSES[api]} == set()


def test_what_is_not_known_begins_a_new_session() -> None:
    for code in (ErrorCode.share_session_not_found, 9_999, -77):
        assert classify_answer(TxnApi.PRODUCE, code) is AnswerClass.NEW_SESSION


def test_only_success_is_success_and_only_produce_is_refused() -> None:
    for api, table in CLASSES.items():
        assert [code for code, class_ in table.items() if class_ is AnswerClass.DONE] == [ErrorCode.none]
        assert (AnswerClass.REFUSED in table.values()) == (api is TxnApi.PRODUCE)
        if api is not TxnApi.FIND_COORDINATOR:
            assert table[ErrorCode.producer_fenced] is table[ErrorCode.invalid_producer_epoch] is AnswerClass.FENCED
            assert table[ErrorCode.concurrent_transactions] is AnswerClass.RETRY


def test_an_end_whose_decision_may_stand_is_not_sent_again() -> None:
    again = (AnswerClass.RETRY, AnswerClass.LOOK_UP)
    assert {code.name for code, class_ in CLASSES[TxnApi.END_TXN].items() if class_ in again} == {
        "coordinator_load_in_progress",
        "concurrent_transactions",
    }


def test_the_worst_of_an_answer_counts() -> None:
    api, codes = TxnApi.ADD_PARTITIONS_TO_TXN, [ErrorCode.operation_not_attempted, ErrorCode.topic_authorization_failed]
    assert worst(api, codes) is AnswerClass.NOT_ALLOWED
    assert worst(api, [*codes, ErrorCode.producer_fenced]) is AnswerClass.FENCED
    assert worst(api, []) is AnswerClass.DONE


NEW = {TxnApi.PRODUCE: (3, 13), TxnApi.TXN_OFFSET_COMMIT: (0, 5), TxnApi.END_TXN: (0, 5)}


def test_the_second_protocol_is_spoken_only_where_it_is_finalized() -> None:
    assert choose_protocol({"transaction.version": 2}, NEW) is TxnProtocol.V2
    assert choose_protocol({"transaction.version": 1}, NEW) is TxnProtocol.V1
    assert choose_protocol({}, NEW) is TxnProtocol.V1
    for api in NEW:
        assert choose_protocol({"transaction.version": 2}, {**NEW, api: (0, 4)}) is TxnProtocol.V1


@pytest.mark.parametrize(
    ("api", "offered", "old", "new"),
    [
        (TxnApi.PRODUCE, (3, 13), 11, 13),
        (TxnApi.PRODUCE, (3, 9), 9, None),
        (TxnApi.TXN_OFFSET_COMMIT, (0, 5), 4, 5),
        (TxnApi.END_TXN, (0, 5), 4, 5),
        (TxnApi.ADD_PARTITIONS_TO_TXN, (0, 5), 3, 3),
        (TxnApi.INIT_PRODUCER_ID, (0, 5), 5, 5),
        (TxnApi.PRODUCE, (12, 13), None, 13),
    ],
)
def test_versions(api: TxnApi, offered: tuple[int, int], old: int | None, new: int | None) -> None:
    assert (version_of(TxnProtocol.V1, api, offered), version_of(TxnProtocol.V2, api, offered)) == (old, new)
