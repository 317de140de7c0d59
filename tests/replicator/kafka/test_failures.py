"""What a Kafka error means, and what the operator reads: cluster, what was tried, right and resource."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from replicator.kafka import failures
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

DOING = "read topic 'orders'"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._FENCED, Fenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAllowed),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Unreachable),
        (KafkaError._TRANSPORT, Unreachable),
        (KafkaError.REQUEST_TIMED_OUT, Unreachable),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing),
        (KafkaError._UNKNOWN_PARTITION, TopicMissing),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Retriable),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, Retriable),
        (KafkaError._STATE, Retriable),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, ConfigError),
        (KafkaError.INVALID_CONFIG, Incident),
        (KafkaError.UNSUPPORTED_VERSION, Incident),
    ],
)
def test_outside_a_transaction(code: int, kind: type[ReplicatorError]) -> None:
    found = failures.classify(KafkaException(KafkaError(code)), "east", DOING)
    assert type(found) is kind
    assert "cluster 'east'" in str(found)


def test_a_code_of_a_response_means_the_same() -> None:
    found = failures.classify_code(KafkaError.TOPIC_AUTHORIZATION_FAILED, "east", DOING, "Read on topic 'orders'")
    assert type(found) is NotAllowed
    assert "the user needs Read on topic 'orders'" in str(found)
    found = failures.classify_code(KafkaError.SASL_AUTHENTICATION_FAILED, "east", DOING, said="No such user")
    assert (type(found), str(found)) == (Unreachable, "cluster 'east' refused the credentials: No such user")
    assert type(failures.classify_code(KafkaError.UNSUPPORTED_VERSION, "east", DOING)) is Unsupported


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(KafkaError._FENCED, fatal=True), Fenced),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True), NotAllowed),
        (KafkaError(KafkaError._TIMED_OUT, txn_requires_abort=True), Abortable),
        (KafkaError(KafkaError.INVALID_TXN_STATE, fatal=True), UnknownOutcome),
        (KafkaError(KafkaError._TIMED_OUT), UnknownOutcome),
    ],
)
def test_inside_a_transaction_what_is_not_certain_is_unknown(error: KafkaError, kind: type[ReplicatorError]) -> None:
    assert type(failures.classify_open(error, "west", "write records")) is kind


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_once_end_txn_may_have_gone_out_only_fencing_is_certain(code: int) -> None:
    assert type(failures.classify_end(KafkaError(code), "west", "commit")) is UnknownOutcome
    assert type(failures.classify_end(KafkaError(KafkaError._FENCED), "west", "commit")) is Fenced


def test_a_missing_right_is_named_with_its_resource_and_cluster() -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed (after 3ms)")
    assert failures.describe(error, "east", DOING, "Read on topic 'orders'") == (
        "cluster 'east': cannot read topic 'orders': the user needs Read on topic 'orders' "
        "(TOPIC_AUTHORIZATION_FAILED: Topic authorization failed)"
    )


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("ProduceRequest for a.b-c_d [3] with 10 message(s) failed: Broker: x", {Partition("a.b-c_d", 3)}),
        ('TxnCoordinator/1: Failed to add partition "ok" [2] to transaction: Broker: x', {Partition("ok", 2)}),
        (
            "Failed to commit offsets to transaction on broker sasl_plaintext://127.0.0.1:1/1: "
            "ok((null))[0](Broker: Topic authorization failed), o2((null))[1](Broker: Topic authorization failed)",
            {Partition("ok", 0), Partition("o2", 1)},
        ),
        ("ok [77]: desired partition is not available (Local: Unknown partition)", {Partition("ok", 77)}),
        ("1/1 brokers are down", set()),
    ],
)
def test_partitions_that_librdkafka_names(text: str, partitions: set[Partition]) -> None:
    assert failures.partitions_named(text) == partitions


def test_how_librdkafka_is_called_is_no_news_for_an_operator() -> None:
    error = KafkaError(KafkaError._TIMED_OUT, "Timed out waiting for operation to finish, retry call to resume")
    assert failures.describe(error, "there", "commit") == (
        "cluster 'there': cannot commit: _TIMED_OUT: Timed out waiting for operation to finish"
    )


def test_an_exception_without_a_code_is_a_bug() -> None:
    with pytest.raises(Fatal):
        failures.kafka_error(KafkaException("no code"))


def no_token(_: str) -> tuple[str, float]:
    raise RuntimeError("no token")


@pytest.mark.tier("long")
def test_a_client_that_gets_no_token_is_made_again_later() -> None:
    """librdkafka waits for the first one while the client is made."""
    settings = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": no_token}
    with pytest.raises(Unreachable, match=r"no client can be made.*token not set"), failures.making("there"):
        Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})


def test_a_client_whose_certificates_have_gone_is_the_processs_own_fault() -> None:
    settings = {"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"}
    with pytest.raises(LocalFault, match="no client can be made"), failures.making("there"):
        Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})
