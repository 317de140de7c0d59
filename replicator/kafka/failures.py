"""Kafka's and librdkafka's errors: one table of what each code means, and what the replicator does about it.

Used by everything in `kafka/` and by the `records` plane.

Invariant: inside a transaction an error whose effect on the target is not known becomes UnknownOutcome, never
Retriable: the producer is discarded and the lane starts over at the fence (librdkafka speaks EndTxn up to v1 only, so
a late EndTxn could end the next transaction: KIP-890).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from confluent_kafka import KafkaError, KafkaException

from replicator.kafka.token_command import no_token
from replicator.model.errors import (
    Abortable,
    ConfigError,
    Fatal,
    Fenced,
    Incident,
    LocalFault,
    NotAllowed,
    ReplicatorError,
    Retriable,
    TopicMissing,
    UnknownOutcome,
    Unreachable,
    Unsupported,
)
from replicator.model.partition import Partition


class Meaning(Enum):
    """What a code says, whatever call it came from."""

    FENCED = auto()  # another producer has this transactional id, or the transaction timed out
    NOT_ALLOWED = auto()  # a right is missing
    CREDENTIALS = auto()  # user or password is wrong
    UNREACHABLE = auto()  # no answer; librdkafka connects again by itself
    MISSING = auto()  # no such topic or partition
    TRANSIENT = auto()  # leaders, coordinators or replicas on the move
    REFUSED_RECORD = auto()  # the broker won't take a record as it is


_MEANING = {
    KafkaError._FENCED: Meaning.FENCED,
    KafkaError.PRODUCER_FENCED: Meaning.FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH: Meaning.FENCED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Meaning.NOT_ALLOWED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Meaning.NOT_ALLOWED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Meaning.NOT_ALLOWED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Meaning.NOT_ALLOWED,
    KafkaError._AUTHENTICATION: Meaning.CREDENTIALS,
    KafkaError.SASL_AUTHENTICATION_FAILED: Meaning.CREDENTIALS,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: Meaning.CREDENTIALS,
    KafkaError._TRANSPORT: Meaning.UNREACHABLE,
    KafkaError._ALL_BROKERS_DOWN: Meaning.UNREACHABLE,
    KafkaError._RESOLVE: Meaning.UNREACHABLE,
    KafkaError._SSL: Meaning.UNREACHABLE,
    KafkaError._TIMED_OUT: Meaning.UNREACHABLE,
    KafkaError.REQUEST_TIMED_OUT: Meaning.UNREACHABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART: Meaning.MISSING,
    KafkaError._UNKNOWN_TOPIC: Meaning.MISSING,
    KafkaError._UNKNOWN_PARTITION: Meaning.MISSING,
    KafkaError.UNKNOWN_TOPIC_ID: Meaning.MISSING,
    KafkaError.LEADER_NOT_AVAILABLE: Meaning.TRANSIENT,
    KafkaError.NOT_LEADER_FOR_PARTITION: Meaning.TRANSIENT,
    KafkaError.BROKER_NOT_AVAILABLE: Meaning.TRANSIENT,
    KafkaError.REPLICA_NOT_AVAILABLE: Meaning.TRANSIENT,
    KafkaError.NETWORK_EXCEPTION: Meaning.TRANSIENT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: Meaning.TRANSIENT,
    KafkaError.COORDINATOR_NOT_AVAILABLE: Meaning.TRANSIENT,
    KafkaError.NOT_COORDINATOR: Meaning.TRANSIENT,
    KafkaError.NOT_CONTROLLER: Meaning.TRANSIENT,
    KafkaError.NOT_ENOUGH_REPLICAS: Meaning.TRANSIENT,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Meaning.TRANSIENT,
    KafkaError.KAFKA_STORAGE_ERROR: Meaning.TRANSIENT,
    KafkaError.FENCED_LEADER_EPOCH: Meaning.TRANSIENT,
    KafkaError.UNKNOWN_LEADER_EPOCH: Meaning.TRANSIENT,
    KafkaError.OFFSET_NOT_AVAILABLE: Meaning.TRANSIENT,
    KafkaError.PREFERRED_LEADER_NOT_AVAILABLE: Meaning.TRANSIENT,
    KafkaError.CONCURRENT_TRANSACTIONS: Meaning.TRANSIENT,
    KafkaError.UNSTABLE_OFFSET_COMMIT: Meaning.TRANSIENT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED: Meaning.TRANSIENT,
    KafkaError.MSG_SIZE_TOO_LARGE: Meaning.REFUSED_RECORD,
    KafkaError.RECORD_LIST_TOO_LARGE: Meaning.REFUSED_RECORD,
    KafkaError.INVALID_RECORD: Meaning.REFUSED_RECORD,
    KafkaError.INVALID_TIMESTAMP: Meaning.REFUSED_RECORD,
    KafkaError.INVALID_MSG: Meaning.REFUSED_RECORD,
    KafkaError.POLICY_VIOLATION: Meaning.REFUSED_RECORD,
}


def _codes(*meanings: Meaning) -> frozenset[int]:
    return frozenset(code for code, meaning in _MEANING.items() if meaning in meanings)


FENCED = _codes(Meaning.FENCED)
NOT_ALLOWED = _codes(Meaning.NOT_ALLOWED)
CREDENTIALS = _codes(Meaning.CREDENTIALS)
UNREACHABLE = _codes(Meaning.UNREACHABLE)
MISSING = _codes(Meaning.MISSING)
TRANSIENT = _codes(Meaning.TRANSIENT)
REFUSED_RECORD = _codes(Meaning.REFUSED_RECORD)
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
OF_GROUP = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""What a consumer that reads by assignment says of its group, which it has no use for: it reads all the same."""
FOR_TIMESTAMP = frozenset({KafkaError.INVALID_TIMESTAMP})
BROKEN_CONNECTION = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})

# What calls raise that serve callbacks: confluent-kafka runs a delivery callback with librdkafka's fatal error
# already raised, and Python then makes a SystemError of it, with the error as its cause.
SERVING = (KafkaException, SystemError)
NOTHING_RAISED = "returned NULL without setting an exception"

_NO_TOKEN = re.compile("OAuth callback raised exception|OAuth token not set|no token available")
"""What librdkafka and confluent-kafka say where a token command has no token for them."""
_NAMED_PARTITIONS = (
    re.compile(r"ProduceRequest for (?P<topic>[\w.-]+) \[(?P<partition>\d+)\]"),
    re.compile(r"Failed to add partition \"(?P<topic>[\w.-]+)\" \[(?P<partition>\d+)\]"),
    re.compile(r"(?P<topic>[\w.-]+)\([^()]*(?:\(null\))?\)\[(?P<partition>\d+)\](?:@-?\d+)?\("),  # of TxnOffsetCommit
    re.compile(r"(?P<topic>[\w.-]+) \[(?P<partition>\d+)\]: desired partition is not available"),
)


def served(error: KafkaException | SystemError) -> KafkaException:
    """Return the KafkaException that a serving call meant; any other SystemError is raised again.

    A callback that handles an exception of its own loses the fatal error that was raised before it: then the call
    returns nothing, and only the producer's state says which error it was.
    """
    if isinstance(error, KafkaException):
        return error
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    if NOTHING_RAISED in str(error):
        return KafkaException(KafkaError(KafkaError._FATAL, "a fatal error, which a callback has lost", fatal=True))
    raise error


def kafka_error(error: KafkaException | KafkaError) -> KafkaError:
    """Return the KafkaError inside whatever confluent-kafka raised or returned."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(inner, KafkaError):
        raise Fatal(f"confluent-kafka raised without an error code: {error!r}")
    return inner


def partitions_named(text: str) -> set[Partition]:
    """Return partitions that librdkafka (2.16) names in the text of an error or a log line; empty where it names
    none."""
    return {
        Partition(match["topic"], int(match["partition"]))
        for pattern in _NAMED_PARTITIONS
        for match in pattern.finditer(text)
    }


def reason(error: KafkaError) -> str:
    """Return librdkafka's text without its remarks about states and retries, and about how its own calls are made."""
    text = str(error.str()).split(" (after ")[0].removesuffix(", retry call to resume")
    return text.removeprefix("Broker: ").strip() or str(error.name())


def describe(error: KafkaError, cluster: str, doing: str, right: str = "") -> str:
    """Make one line for the operator: which cluster, what was tried (in words that follow "cannot"), the missing right
    (operation and resource, such as "Write on topic 'x'") and librdkafka's own words."""
    why = f"{error.name()}: {reason(error)}"
    if error.code() in NOT_ALLOWED:
        return f"cluster {cluster!r}: cannot {doing}: the user needs {right or 'a right that it lacks'} ({why})"
    if error.code() in CREDENTIALS:
        if _NO_TOKEN.search(error.str()) and (missing := no_token(cluster)):
            return missing
        return f"cluster {cluster!r} refused the credentials: {reason(error)}"
    return f"cluster {cluster!r}: cannot {doing}: {why}"


def refuses_credentials(error: ReplicatorError, cluster: str) -> bool:
    """Tell whether an error says that user or password is wrong, which waiting doesn't change."""
    return str(error).startswith(f"cluster {cluster!r} refused the credentials")


@contextmanager
def making(cluster: str) -> Iterator[None]:
    """Make a client of a cluster in this block.

    Raises Unreachable where librdkafka has waited for a token for 10 s in vain: the next attempt asks for one again;
    LocalFault for all else: a file of its properties has gone, or there are no more threads.
    """
    try:
        yield
    except KafkaException as error:
        inner = kafka_error(error)
        text = f"cluster {cluster!r}: no client can be made: {inner}"
        if _MEANING.get(inner.code()) is Meaning.CREDENTIALS:
            raise Unreachable(text) from error
        raise LocalFault(text) from error


def classify(error: KafkaException | KafkaError, cluster: str, doing: str, right: str = "") -> ReplicatorError:
    """Say what follows from an error outside a transaction, where nothing can be half done. Arguments as of
    `describe`."""
    inner = kafka_error(error)
    text, meaning = describe(inner, cluster, doing, right), _MEANING.get(inner.code())
    if meaning is Meaning.FENCED:
        return Fenced(text)
    if meaning is Meaning.NOT_ALLOWED:
        return NotAllowed(text)
    if meaning in (Meaning.UNREACHABLE, Meaning.CREDENTIALS):
        return Unreachable(text)
    if meaning is Meaning.MISSING:
        return TopicMissing(text)
    if inner.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(f"{text}: limits.transaction_timeout_ms is above its transaction.max.timeout.ms")
    if meaning is Meaning.TRANSIENT or inner.retriable() or inner.code() < 0:  # below 0: the client's own state
        return Retriable(text)
    return Incident("refused_by_cluster", text)


def classify_code(code: int, cluster: str, doing: str, right: str = "", said: str = "") -> ReplicatorError:
    """Classify, as `classify` does, a code in a response that didn't come through librdkafka; `said` is the broker's
    text."""
    if code == KafkaError.UNSUPPORTED_VERSION:
        return Unsupported(f"cluster {cluster!r}: cannot {doing}: it doesn't speak this version of the request")
    return classify(KafkaError(code, said) if said else KafkaError(code), cluster, doing, right)


def classify_open(error: KafkaException | KafkaError, cluster: str, doing: str, right: str = "") -> ReplicatorError:
    """Classify an error inside a transaction, before EndTxn: abort where librdkafka is sure, otherwise start over."""
    inner = kafka_error(error)
    text = describe(inner, cluster, doing, right)
    if inner.code() in FENCED:
        return Fenced(text)
    if inner.code() in NOT_ALLOWED:
        return NotAllowed(text)
    if inner.txn_requires_abort() and not inner.fatal():
        return Abortable(text)
    return UnknownOutcome(text)


def classify_plain(error: KafkaException | KafkaError, cluster: str, doing: str) -> ReplicatorError:
    """Classify an error of an idempotent producer without transactions: a fatal error leaves open what the target
    holds."""
    inner = kafka_error(error)
    if inner.code() in NOT_ALLOWED:
        right = "IdempotentWrite on the cluster" if inner.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED else ""
        return NotAllowed(describe(inner, cluster, doing, right))
    text = describe(inner, cluster, doing)
    return UnknownOutcome(text) if inner.fatal() else Abortable(text)


def classify_end(error: KafkaException | KafkaError, cluster: str, doing: str, right: str = "") -> ReplicatorError:
    """Classify an error after EndTxn was sent, or may have been: only fencing is certain (and read again from the
    position's owner)."""
    inner = kafka_error(error)
    text = describe(inner, cluster, doing, right)
    return Fenced(text) if inner.code() in FENCED else UnknownOutcome(text)
