"""What each error code of the transactional APIs means for the producer session: one table for each API. Pure data.

Read from Kafka's handlers (KafkaApis, TransactionCoordinator, TransactionStateManager, GroupCoordinatorService,
ReplicaManager, LogValidator, ProducerAppendInfo) and from TransactionManager, its client. Where the client sends EndTxn
again, a new session is begun here: the answer may come from behind the decision, so its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum

from kio.schema.errors import ErrorCode


class AnswerClass(IntEnum):
    """What an answer asks for; of several for one request, the highest counts."""

    DONE = 0
    RETRY = 1
    """The same request again, later."""
    LOOK_UP = 2
    """The same request again, once the coordinator or the leader has been looked up."""
    REWIND = 3
    """Abort the transaction, and read again from the committed positions."""
    NOT_ALLOWED = 4
    """A right is missing: abort; what it concerns waits."""
    REFUSED = 5
    """The target refuses records: abort, and find out which; an incident of their partition."""
    INCIDENT = 6
    """Only a person can change it: a setting of the target, or somebody else in the position group."""
    NEW_SESSION = 7
    """Nothing more is sent: begin again with InitProducerId and the committed positions."""
    FENCED = 8
    """Another producer has the transactional id, or the coordinator aborted the transaction for its time."""
    BUG = 9
    """A request that should never have been sent."""


class TxnApi(Enum):
    """The APIs of a transactional producer, by api key."""

    PRODUCE = 0
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


_Table = dict[ErrorCode, AnswerClass]
_C, _E = AnswerClass, ErrorCode

_EVERYWHERE: _Table = {
    _E.none: _C.DONE,
    _E.unknown_server_error: _C.NEW_SESSION,
    _E.invalid_request: _C.BUG,
    _E.unsupported_version: _C.BUG,
    _E.cluster_authorization_failed: _C.NOT_ALLOWED,
    _E.transactional_id_authorization_failed: _C.NOT_ALLOWED,
}
_COORDINATOR: _Table = _EVERYWHERE | {
    _E.coordinator_load_in_progress: _C.RETRY,
    _E.coordinator_not_available: _C.LOOK_UP,
    _E.not_coordinator: _C.LOOK_UP,
    _E.request_timed_out: _C.LOOK_UP,
}
_TRANSACTION: _Table = _COORDINATOR | {
    _E.concurrent_transactions: _C.RETRY,  # markers of the transaction before are being written
    _E.transaction_abortable: _C.REWIND,
    _E.invalid_producer_epoch: _C.FENCED,  # what versions before KIP-588 call PRODUCER_FENCED
    _E.producer_fenced: _C.FENCED,
    _E.invalid_producer_id_mapping: _C.NEW_SESSION,  # the transactional id has expired
    _E.unknown_producer_id: _C.NEW_SESSION,
    _E.invalid_txn_state: _C.NEW_SESSION,
}

CLASSES: Mapping[TxnApi, _Table] = {
    TxnApi.FIND_COORDINATOR: _COORDINATOR
    | {
        _E.coordinator_not_available: _C.RETRY,
        _E.request_timed_out: _C.RETRY,
        _E.group_authorization_failed: _C.NOT_ALLOWED,
        _E.transaction_abortable: _C.REWIND,
        _E.invalid_group_id: _C.BUG,
    },
    TxnApi.INIT_PRODUCER_ID: _TRANSACTION
    | {
        _E.transaction_abortable: _C.NEW_SESSION,  # there is nothing to abort
        _E.invalid_transaction_timeout: _C.INCIDENT,  # it is above transaction.max.timeout.ms
    },
    TxnApi.ADD_PARTITIONS_TO_TXN: _TRANSACTION
    | {
        _E.topic_authorization_failed: _C.NOT_ALLOWED,
        _E.unknown_topic_or_partition: _C.RETRY,
        _E.operation_not_attempted: _C.RETRY,  # because of another partition of the request, whose error counts
    },
    TxnApi.ADD_OFFSETS_TO_TXN: _TRANSACTION
    | {
        _E.group_authorization_failed: _C.NOT_ALLOWED,
        _E.invalid_group_id: _C.BUG,
        _E.operation_not_attempted: _C.RETRY,
    },
    TxnApi.TXN_OFFSET_COMMIT: _TRANSACTION
    | {
        _E.group_authorization_failed: _C.NOT_ALLOWED,
        _E.topic_authorization_failed: _C.NOT_ALLOWED,
        _E.unknown_topic_or_partition: _C.RETRY,
        _E.invalid_txn_state: _C.REWIND,  # how brokers before KIP-1050 say that it is in no transaction
        _E.unknown_member_id: _C.INCIDENT,
        _E.illegal_generation: _C.INCIDENT,
        _E.fenced_instance_id: _C.INCIDENT,
        _E.stale_member_epoch: _C.INCIDENT,
        _E.group_id_not_found: _C.INCIDENT,
        _E.rebalance_in_progress: _C.INCIDENT,
        _E.unsupported_for_message_format: _C.INCIDENT,
        _E.invalid_commit_offset_size: _C.INCIDENT,  # offsets.topic's max.message.bytes is below a request of ours
        _E.offset_metadata_too_large: _C.INCIDENT,  # offset.metadata.max.bytes is below its default
        _E.invalid_group_id: _C.BUG,
    },
    TxnApi.END_TXN: _TRANSACTION
    | {
        # These may follow a decision that was written and not yet acknowledged by all replicas.
        _E.coordinator_not_available: _C.NEW_SESSION,
        _E.not_coordinator: _C.NEW_SESSION,
        _E.request_timed_out: _C.NEW_SESSION,
    },
    TxnApi.PRODUCE: _TRANSACTION
    | {
        _E.unknown_topic_or_partition: _C.LOOK_UP,
        _E.unknown_topic_id: _C.LOOK_UP,
        _E.inconsistent_topic_id: _C.LOOK_UP,
        _E.leader_not_available: _C.LOOK_UP,
        _E.not_leader_or_follower: _C.LOOK_UP,
        _E.replica_not_available: _C.LOOK_UP,
        _E.broker_not_available: _C.LOOK_UP,
        _E.fenced_leader_epoch: _C.LOOK_UP,
        _E.unknown_leader_epoch: _C.LOOK_UP,
        _E.kafka_storage_error: _C.LOOK_UP,
        _E.network_exception: _C.LOOK_UP,
        _E.request_timed_out: _C.RETRY,
        _E.coordinator_not_available: _C.RETRY,  # the broker looks for the coordinator, not the producer
        _E.not_coordinator: _C.RETRY,
        _E.not_enough_replicas: _C.RETRY,
        _E.not_enough_replicas_after_append: _C.RETRY,
        _E.invalid_txn_state: _C.REWIND,
        _E.out_of_order_sequence_number: _C.REWIND,  # of the first one that isn't acknowledged; else see `produce`
        _E.duplicate_sequence_number: _C.NEW_SESSION,  # it is in the log, nobody says where
        _E.topic_authorization_failed: _C.NOT_ALLOWED,
        _E.corrupt_message: _C.REFUSED,
        _E.invalid_record: _C.REFUSED,
        _E.invalid_timestamp: _C.REFUSED,
        _E.message_too_large: _C.REFUSED,
        _E.record_list_too_large: _C.REFUSED,
        _E.unsupported_compression_type: _C.REFUSED,
        _E.unsupported_for_message_format: _C.REFUSED,
        _E.policy_violation: _C.REFUSED,
        _E.invalid_topic_exception: _C.INCIDENT,
        _E.invalid_required_acks: _C.BUG,
    },
}


def classify_answer(api: TxnApi, code: int) -> AnswerClass:
    """Classify an error code. One that isn't known here begins a new session, which is always safe."""
    try:
        return CLASSES[api].get(ErrorCode(code), AnswerClass.NEW_SESSION)
    except ValueError:
        return AnswerClass.NEW_SESSION


def worst(api: TxnApi, codes: Iterable[int]) -> AnswerClass:
    """Return what counts of the codes of one answer, which may have one for each partition."""
    return max((classify_answer(api, code) for code in codes), default=AnswerClass.DONE)
