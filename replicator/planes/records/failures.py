"""librdkafka's errors, classified by what the lane does about them.

Invariant: an error whose effect on the target is not known becomes UnknownOutcome, never Retriable: the
producer is discarded and the lane starts over at the fence (librdkafka speaks EndTxn up to v1 only, so a late
EndTxn could end the next transaction: KIP-890).
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from replicator.errors import (
    Abortable,
    ConfigError,
    Fatal,
    Fenced,
    NotAllowed,
    ReplicatorError,
    Retriable,
    UnknownOutcome,
    Unreachable,
)

FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
NOT_ALLOWED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Read/Write/Describe on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the position group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite or Create on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write and Describe on the transactional id",
}
UNREACHABLE = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
)
BROKEN_CONNECTION = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})
REFUSED_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_MSG,
        KafkaError.POLICY_VIOLATION,
    }
)


# What calls raise that serve callbacks: confluent-kafka runs a delivery callback with librdkafka's fatal error
# already raised, and Python then makes a SystemError of it, with the error as its cause.
SERVING = (KafkaException, SystemError)


def served(error: KafkaException | SystemError) -> KafkaException:
    """The KafkaException that a serving call meant; any other SystemError is raised again."""
    if isinstance(error, KafkaException):
        return error
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    raise error


def kafka_error(error: KafkaException | KafkaError) -> KafkaError:
    """The KafkaError inside whatever confluent-kafka raised or returned."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(inner, KafkaError):
        raise Fatal(f"confluent-kafka raised without an error code: {error!r}")
    return inner


def describe(error: KafkaError, cluster: str, doing: str) -> str:
    """One line for the operator: which cluster, doing what, librdkafka's own words, missing right if known."""
    right = RIGHTS.get(error.code())
    missing = f" (missing right: {right})" if right else ""
    return f"cluster {cluster}: {doing}: {error.name()}: {error.str()}{missing}"


def classify_start(error: KafkaException | KafkaError, cluster: str, doing: str) -> ReplicatorError:
    """Outside a transaction nothing can be half done: retry, or tell the operator what is missing."""
    inner = kafka_error(error)
    text = describe(inner, cluster, doing)
    if inner.code() in FENCED:
        return Fenced(text)
    if inner.code() in NOT_ALLOWED:
        return NotAllowed(text)
    if inner.code() in UNREACHABLE:
        return Unreachable(text)
    if inner.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(f"{text}: limits.transaction_timeout_ms is above its transaction.max.timeout.ms")
    return Retriable(text)


def classify_open(error: KafkaException | KafkaError, cluster: str, doing: str) -> ReplicatorError:
    """Inside a transaction, before EndTxn: abort where librdkafka is sure, otherwise start over."""
    inner = kafka_error(error)
    text = describe(inner, cluster, doing)
    if inner.code() in FENCED:
        return Fenced(text)
    if inner.code() in NOT_ALLOWED:
        return NotAllowed(text)
    if inner.txn_requires_abort() and not inner.fatal():
        return Abortable(text)
    return UnknownOutcome(text)


def classify_end(error: KafkaException | KafkaError, cluster: str, doing: str) -> ReplicatorError:
    """EndTxn was sent or may have been: only fencing is certain (and read again from the position's owner)."""
    inner = kafka_error(error)
    text = describe(inner, cluster, doing)
    if inner.code() in FENCED:
        return Fenced(text)
    if inner.code() in NOT_ALLOWED:
        return NotAllowed(text)
    return UnknownOutcome(text)
