"""What an operator sets on a running broker: defaults of topics, quotas, lists; and what its quorum and disks are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.api.protocol_document import OUTSIDE
from embedded_broker.api.registry import load_all
from integration_tests.harness import raw
from integration_tests.harness.broker import Kind
from integration_tests.harness.configs import (
    ALL,
    APPEND,
    BROKER,
    DELETE,
    NONE,
    OF_ALL,
    OF_BROKER,
    OF_NONE,
    OF_TOPIC,
    REFUSED,
    SET,
    SUBTRACT,
    THIS,
    TOPIC,
    alter,
    described,
    dynamic,
    entity,
    is_set,
    seen,
)
from integration_tests.harness.processes import wait_until

OF_ONE_BROKER = {
    "sasl.login.refresh.buffer.seconds": ("300", "3601", "3601"),
    "sasl.login.refresh.min.period.seconds": ("60", "901", "901"),
    "sasl.login.refresh.window.factor": ("0.8", "2", "2.0"),
    "sasl.login.refresh.window.jitter": ("0.05", "0.1", "0.1"),
    "sasl.kerberos.kinit.cmd": ("/usr/bin/kinit", "/usr/bin/k", "/usr/bin/k"),
    "sasl.kerberos.min.time.before.relogin": ("60000", "-1", "-1"),
    "sasl.kerberos.principal.to.local.rules": ("DEFAULT", "RULE:[1:$1]", "RULE:[1:$1]"),
    "sasl.kerberos.service.name": (None, "svc", "svc"),
    "sasl.kerberos.ticket.renew.jitter": ("0.05", "-1", "-1.0"),
    "sasl.kerberos.ticket.renew.window.factor": ("0.8", "2", "2.0"),
}
"""Default, another value, and how it is described."""
EXACT, DEFAULT, SPECIFIED = range(3)
TELEMETRY = {71, 72}
METADATA = "__cluster_metadata"


@pytest.fixture(scope="module")
def bootstrap(brokers: Any) -> str:
    return str(brokers.target.bootstrap)


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    name = f"settings-{uuid.uuid4().hex[:8]}"
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    assert raw.call(bootstrap, "create_topics", 7, topics=[topic], timeout=10_000).topics[0].error_code is NONE
    return name


@pytest.fixture
def no_retention_of_brokers(bootstrap: str) -> Iterator[None]:
    yield
    for broker in (THIS, ALL):
        assert alter(bootstrap, BROKER, broker, ("log.retention.ms", DELETE, None)) is NONE
    wait_until(lambda: "log.retention.ms" not in dynamic(bootstrap, THIS), "it has gone", str)


@pytest.mark.usefixtures("no_retention_of_brokers")
def test_defaults_of_topics_are_set_for_all_brokers_and_for_one(bootstrap: str, topic: str) -> None:
    def wait_topic(value: str, source: int) -> None:
        wait_until(
            lambda: seen(bootstrap, TOPIC, topic, "retention.ms") == (value, source),
            f"the topic's retention is {value} of {source}",
            lambda: str(seen(bootstrap, TOPIC, topic, "retention.ms")),
        )

    assert alter(bootstrap, BROKER, ALL, ("log.retention.ms", SET, "700000000")) is NONE
    wait_topic("700000000", OF_ALL)
    assert alter(bootstrap, BROKER, THIS, ("log.retention.ms", SET, "800000000")) is NONE
    wait_topic("800000000", OF_BROKER)
    assert seen(bootstrap, BROKER, ALL, "log.retention.ms") == ("700000000", OF_ALL)
    found = described(bootstrap, BROKER, THIS, "log.retention.ms")["log.retention.ms"]
    assert (found.value, found.config_source, found.read_only) == ("800000000", OF_BROKER, False)
    sources = [(each.name, each.value, each.source) for each in found.synonyms]
    assert sources[:2] == [("log.retention.ms", "800000000", OF_BROKER), ("log.retention.ms", "700000000", OF_ALL)]
    assert alter(bootstrap, TOPIC, topic, ("retention.ms", SET, "900000000")) is NONE
    wait_topic("900000000", OF_TOPIC)
    assert alter(bootstrap, TOPIC, topic, ("retention.ms", DELETE, None)) is NONE
    assert alter(bootstrap, BROKER, THIS, ("log.retention.ms", DELETE, None)) is NONE
    wait_topic("700000000", OF_ALL)


@pytest.fixture
def no_logins(bootstrap: str) -> Iterator[None]:
    yield
    names = [*OF_ONE_BROKER, "sasl.enabled.mechanisms", "sasl.jaas.config"]
    assert alter(bootstrap, BROKER, THIS, *((name, DELETE, None) for name in names)) is NONE


@pytest.mark.usefixtures("no_logins")
def test_what_concerns_logins_is_set_for_one_broker_and_not_for_all(bootstrap: str) -> None:
    for name, (default, value, shown) in OF_ONE_BROKER.items():
        assert seen(bootstrap, BROKER, THIS, name) == (default, OF_NONE), name
        assert alter(bootstrap, BROKER, ALL, (name, SET, value)) is REFUSED, name
        assert alter(bootstrap, BROKER, THIS, (name, SET, value)) is NONE, name
        wait_until(partial(is_set, bootstrap, name, shown), f"{name} is {shown}", str)
        found = described(bootstrap, BROKER, THIS, name)[name]
        where = [(name, value, OF_BROKER)] + ([] if default is None else [(name, default, OF_NONE)])
        assert [(each.name, each.value, each.source) for each in found.synonyms] == where
        assert not found.read_only
    for name in OF_ONE_BROKER:
        if name.endswith(("relogin", "jitter", "factor", "seconds")):
            assert alter(bootstrap, BROKER, THIS, (name, SET, "x")) is REFUSED, name
    assert alter(bootstrap, BROKER, THIS, ("sasl.login.refresh.buffer.seconds", SET, "32768")) is REFUSED
    assert not set(OF_ONE_BROKER) & set(dynamic(bootstrap, ALL))


@pytest.mark.usefixtures("no_logins")
def test_mechanisms_and_the_secrets_of_logins_are_set_for_one_broker(bootstrap: str) -> None:
    name = "sasl.enabled.mechanisms"
    for value in ("PLAIN", "SCRAM-SHA-256,PLAIN", "NONSENSE"):
        assert alter(bootstrap, BROKER, ALL, (name, SET, value)) is REFUSED
        assert alter(bootstrap, BROKER, THIS, (name, SET, value)) is NONE
        wait_until(partial(is_set, bootstrap, name, value), f"{name} is {value}", str)
    assert alter(bootstrap, BROKER, THIS, (name, APPEND, "PLAIN")) is NONE
    wait_until(partial(is_set, bootstrap, name, "NONSENSE,PLAIN"), "one more", str)
    assert not described(bootstrap, BROKER, THIS, name)[name].read_only
    secret = "sasl.jaas.config"
    for value in ('org.apache.kafka.common.security.plain.PlainLoginModule required password="p";', "anything"):
        assert alter(bootstrap, BROKER, ALL, (secret, SET, value)) is REFUSED
        assert alter(bootstrap, BROKER, THIS, (secret, SET, value)) is NONE
        wait_until(lambda: seen(bootstrap, BROKER, THIS, secret) == (None, OF_BROKER), "it is hidden", str)
    found = described(bootstrap, BROKER, THIS, secret)[secret]
    assert (found.is_sensitive, found.config_type, found.read_only) == (True, 9, False)
    assert [(each.name, each.value, each.source) for each in found.synonyms] == [(secret, None, OF_BROKER)]


def test_what_needs_a_new_start_or_makes_no_sense_is_refused(bootstrap: str) -> None:
    for name, change, error_code in (
        (THIS, ("num.partitions", SET, "3"), REFUSED),
        (ALL, ("num.partitions", SET, "3"), REFUSED),
        ("99", ("log.retention.ms", SET, "1000"), REFUSED),
        ("x", ("log.retention.ms", SET, "1000"), REFUSED),
        (ALL, ("log.retention.ms", SET, "x"), REFUSED),
        (ALL, ("log.retention.ms", APPEND, "5"), ErrorCode.invalid_config),
    ):
        assert alter(bootstrap, BROKER, name, change) is error_code, (name, change)
    assert alter(bootstrap, BROKER, ALL, ("log.retention.ms", SET, "5000"), dry=True) is NONE
    assert "log.retention.ms" not in dynamic(bootstrap, ALL)


def test_lists_keep_their_order(bootstrap: str, topic: str) -> None:
    def policy() -> str:
        return str(described(bootstrap, TOPIC, topic, "cleanup.policy")["cleanup.policy"].value)

    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (APPEND, "delete,compact", "compact,delete"),
        (SET, "delete,compact", "delete,compact"),
        (SET, "compact,delete", "compact,delete"),
        (DELETE, None, "delete"),
    ):
        assert alter(bootstrap, TOPIC, topic, ("cleanup.policy", operation, value)) is NONE
        wait_until(lambda expected=expected: policy() == expected, f"the policy is {expected}", policy)  # type: ignore[misc]


def test_how_the_broker_is_reached_is_described(bootstrap: str) -> None:
    found = described(bootstrap, BROKER, THIS)
    assert any(bootstrap in address for address in found["advertised.listeners"].value.split(","))
    assert "PLAINTEXT:PLAINTEXT" in found["listener.security.protocol.map"].value
    assert found["listeners"].value
    assert "broker" in found["process.roles"].value.split(",")


def set_quotas(
    bootstrap: str, who: list[dict[str, str | None]], *, dry: bool = False, **values: float | None
) -> ErrorCode:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    answer = raw.call(bootstrap, "alter_client_quotas", 1, entries=[{"entity": who, "ops": ops}], validate_only=dry)
    assert answer.throttle_time.total_seconds() == 0
    return ErrorCode(answer.entries[0].error_code)


def quotas(bootstrap: str, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    parts = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    answer = raw.call(bootstrap, "describe_client_quotas", 1, components=parts, strict=strict)
    if answer.error_code is not NONE:
        return answer.error_code
    return {
        tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


def test_quotas_are_kept_and_described(bootstrap: str) -> None:
    user, client = uuid.uuid4().hex, uuid.uuid4().hex
    both, alone = entity(user=user, client_id=client), entity(user=user)
    of_both, of_alone = (("client-id", client), ("user", user)), (("user", user),)
    assert set_quotas(bootstrap, both, producer_byte_rate=1000.0, request_percentage=12.5) is NONE
    assert set_quotas(bootstrap, alone, consumer_byte_rate=5.0) is NONE
    assert set_quotas(bootstrap, alone, dry=True, producer_byte_rate=6.0) is NONE
    wanted = {
        of_both: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        of_alone: {"consumer_byte_rate": 5.0},
    }
    exact = ("user", EXACT, user)
    wait_until(lambda: quotas(bootstrap, exact) == wanted, "both are described", lambda: str(quotas(bootstrap, exact)))
    assert quotas(bootstrap, exact, strict=True).keys() == {of_alone}
    assert quotas(bootstrap, exact, ("client-id", SPECIFIED, None)).keys() == {of_both}
    assert quotas(bootstrap, exact, ("client-id", DEFAULT, None)) == {}
    assert wanted.keys() <= quotas(bootstrap).keys()
    assert set_quotas(bootstrap, both, producer_byte_rate=None, request_percentage=None) is NONE
    assert set_quotas(bootstrap, alone, consumer_byte_rate=None, producer_byte_rate=None) is NONE
    wait_until(lambda: quotas(bootstrap, exact) == {}, "they have gone", lambda: str(quotas(bootstrap, exact)))


@pytest.mark.parametrize(
    ("who", "values"),
    [
        ([], {"producer_byte_rate": 1.0}),
        (entity(nonsense="x"), {"producer_byte_rate": 1.0}),
        (entity(user=""), {"producer_byte_rate": 1.0}),
        (entity(user="u"), {"nonsense": 1.0}),
        (entity(user="u"), {"connection_creation_rate": 1.0}),
        (entity(user="u"), {"producer_byte_rate": 1.5}),
        (entity(user="u"), {"producer_byte_rate": -1.0}),
        (entity(user="u"), {"producer_byte_rate": 1e30}),
        (entity(ip="1.2.3.4"), {"producer_byte_rate": 1.0}),
        (entity(ip="1.2.3.4", user="u"), {"connection_creation_rate": 1.0}),
        (entity(ip="no address"), {"connection_creation_rate": 1.0}),
        (entity(ip="1.2.3.4"), {"connection_creation_rate": 1e12}),
    ],
)
def test_quotas_that_make_no_sense_are_refused(bootstrap: str, who: Any, values: Any) -> None:
    assert set_quotas(bootstrap, who, **values) is REFUSED


def test_filters_that_make_no_sense_are_refused(bootstrap: str) -> None:
    for components, error_code in (
        ([("nonsense", EXACT, "x")], ErrorCode.unsupported_version),
        ([("user", EXACT, None)], REFUSED),
        ([("user", DEFAULT, "x")], REFUSED),
        ([("user", SPECIFIED, "x")], REFUSED),
        ([("user", 9, None)], REFUSED),
        ([("user", EXACT, "x"), ("user", DEFAULT, None)], REFUSED),
        ([("user", EXACT, "x"), ("ip", SPECIFIED, None)], REFUSED),
    ):
        assert quotas(bootstrap, *components) is error_code, components


def test_what_kafka_speaks_is_spoken_or_left_out_for_a_reason(bootstrap: str, kind: Kind) -> None:
    answer = raw.call(bootstrap, "api_versions", 4, client_software_name="test", client_software_version="1")
    others = {each.api_key for each in answer.api_keys} - set(load_all())
    left_out = {key for _, keys, _ in OUTSIDE for key in keys}
    assert not left_out & set(load_all())
    assert others <= left_out
    if kind == "kafka":
        assert left_out - others == TELEMETRY, "only a broker that has somewhere to send metrics takes them"


def test_the_quorum_is_one_voter(bootstrap: str) -> None:
    asked = [{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}]
    for version in range(3):
        answer = raw.call(bootstrap, "describe_quorum", version, topics=asked)
        assert answer.error_code is NONE
        (partition,) = answer.topics[0].partitions
        assert partition.error_code is NONE
        assert [each.replica_id for each in partition.current_voters] == [partition.leader_id]
        assert 0 < partition.high_watermark <= partition.current_voters[0].log_end_offset
    other = raw.call(bootstrap, "describe_quorum", 2, topics=[{**asked[0], "topic_name": "t"}])
    assert (other.error_code, other.topics[0].partitions[0].error_code) == (NONE, ErrorCode.unknown_topic_or_partition)


def test_replicas_stay_in_the_one_log_directory(bootstrap: str, topic: str) -> None:
    listed = raw.call(bootstrap, "describe_log_dirs", 4, topics=[{"topic": topic, "partitions": [0]}])
    here = listed.results[0].log_dir

    def move(path: str, name: str) -> ErrorCode:
        dirs = [{"path": path, "topics": [{"name": name, "partitions": [0]}]}]
        answer = raw.call(bootstrap, "alter_replica_log_dirs", 2, dirs=dirs)
        return ErrorCode(answer.results[0].partitions[0].error_code)

    assert move(here, topic) is NONE
    assert move("/no/such/directory", topic) is ErrorCode.log_dir_not_found
    assert move(here, "no-such-topic") is ErrorCode.unknown_topic_or_partition
