"""Logging in and being refused: librdkafka and Kafka's own tools meet the same on both brokers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
import subprocess
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from kio.schema.errors import ErrorCode

from integration_tests.harness import acls, raw
from integration_tests.harness.kafka_container import IMAGE, docker_problem
from integration_tests.harness.processes import wait_until
from integration_tests.harness.secured import USERS, Secured
from tests.embedded_broker.security.certificates import CLIENT_PRINCIPAL
from tests.embedded_broker.security.denials import DENIED
from tests.embedded_broker.security.test_login import bare, log_in_again
from tests.embedded_broker.security.test_operations import CLUSTER, GROUP, NOT_ASKED, TOPIC, make_group, told_rights
from tests.embedded_broker.served import Client

TIMEOUT_S = 60.0
DORA = "SCRAM-SHA-512=[iterations=8192,password=dora-secret]"


def test_a_token_says_who_a_client_is(secured: Secured) -> None:
    topic = f"token-{uuid.uuid4().hex[:8]}"
    secured.create_topic(topic)
    assert _write(secured.with_token("tina"), topic).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED  # type: ignore[union-attr]
    secured.allow("tina", "TOPIC", topic, "WRITE", "DESCRIBE")
    assert _write(secured.with_token("tina"), topic) is None


@pytest.mark.parametrize("salt", [b"", b"s", b"11 bytes .."])
def test_any_salt_will_do(secured: Secured, salt: bytes) -> None:
    """Kafka asks for nothing of a salt, which clients choose."""
    name, password = f"salted-{uuid.uuid4().hex[:8]}", "secret"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4_096)
    made = {"name": name, "mechanism": 1, "iterations": 4_096, "salt": salt, "salted_password": salted}
    answer = raw.call(secured.bootstrap, "alter_user_scram_credentials", 0, deletions=[], upsertions=[made])
    assert answer.results[0].error_code is ErrorCode.none
    topic = f"salted-{uuid.uuid4().hex[:8]}"
    secured.create_topic(topic)
    secured.allow(name, "TOPIC", topic, "WRITE", "DESCRIBE")
    assert _write(secured.config(name, "SCRAM-SHA-256", password=password), topic) is None


def _allow(broker: Secured, principal: str, resource: ResourceType, name: str, *operations: AclOperation) -> None:
    literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    bindings = [AclBinding(resource, name, literal, principal, "*", each, allowed) for each in operations]
    acls.create(broker.admin, *bindings)


def _write(config: dict[str, Any], topic: str, value: bytes = b"v") -> KafkaError | None:
    """Produce one record; its error."""
    errors: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": int(TIMEOUT_S * 1000)})
    producer.produce(topic, value, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return errors[0]


def _read(config: dict[str, Any], topic: str, group: str) -> bytes:
    """The first record; raises KafkaException."""
    consumer = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        consumer.commit(message=message, asynchronous=False)
        return bytes(message.value() or b"")
    finally:
        consumer.close()


def _refusal(config: dict[str, Any]) -> KafkaError | None:
    """What the client is told of its login; None once it is let in."""
    errors: list[KafkaError] = []
    told: dict[str, Any] = {**config, "error_cb": errors.append}
    admin = AdminClient(told)
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            admin.list_topics(timeout=0.3)
            return None
        admin.poll(0)
        for error in errors:
            if error.code() != KafkaError._ALL_BROKERS_DOWN:
                return error
    raise AssertionError("the client was told nothing")


def _login_error(config: dict[str, Any]) -> tuple[int, str]:
    """(code, text) of what the client is told."""
    error = _refusal(config)
    assert error is not None
    return error.code(), error.str()


def test_without_a_right_every_api_is_refused_in_the_same_way(secured: Secured) -> None:
    async def main() -> None:
        host, _, port = secured.addresses.sasl.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port), limit=1 << 26))
        assert (await client.call("sasl_handshake", 1, mechanism="PLAIN")).error_code == 0
        token = f"\0alice\0{USERS['alice']}".encode()
        assert (await client.call("sasl_authenticate", 2, auth_bytes=token)).error_code == 0
        found = {what: await ask(client) for what, (ask, _) in DENIED.items()}
        assert found == {what: expected for what, (_, expected) in DENIED.items()}
        client.writer.close()

    asyncio.run(main())


async def _connected(secured: Secured, address: str = "", tls: ssl.SSLContext | None = None) -> Client:
    """By SASL in plain text, or at another address."""
    host, _, port = (address or secured.addresses.sasl).rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port), limit=1 << 26, ssl=tls))


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("owners", [None, [], [{"principal_type": "User", "principal_name": "bob"}]])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_delegation_token_is_issued(secured: Secured, version: int, owners: Any) -> None:
    """Kafka without `delegation.token.secret.key` (KIP-48). No right is needed to be told so."""
    tls = ssl.create_default_context(cafile=secured.authority.certificate)
    tls.load_cert_chain(secured.client_pair.certificate, secured.client_pair.key)

    async def main() -> None:
        unknown, disabled = ErrorCode.delegation_token_request_not_allowed, ErrorCode.delegation_token_auth_disabled
        addresses = secured.addresses
        for address, context, user, expected in (
            (addresses.open, None, "", unknown),
            (addresses.sasl, None, "alice", disabled),
            (addresses.sasl, None, "admin", disabled),
            (addresses.certificates, tls, "", disabled),
        ):
            client = await _connected(secured, address, context)
            if user:
                assert (await log_in_again(client, user, USERS[user])).error_code is ErrorCode.none
            answer = await client.call("describe_delegation_token", version, owners=owners)
            assert (answer.error_code, answer.tokens) == (expected, ()), (address, user)
            client.writer.close()

    asyncio.run(main())


def test_what_clients_are_told_they_may_do(secured: Secured) -> None:
    """KIP-430."""

    async def main() -> None:
        told = {}
        for name in ("admin", "bob"):
            client = await _connected(secured)
            await log_in_again(client, name, USERS[name])
            if name == "admin":
                async with asyncio.timeout(TIMEOUT_S):  # Kafka makes the offsets' topic now
                    while (await client.call("find_coordinator", 2, key="g", key_type=0)).error_code != 0:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                    while await make_group(client) is ErrorCode.not_coordinator:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                assert await told_rights(client, "missing") == {"topic": TOPIC, "cluster": CLUSTER, "group": GROUP}
            told[name] = await told_rights(client)
            client.writer.close()
        assert told["admin"] == {"topic": TOPIC, "cluster": CLUSTER, "group": GROUP}
        assert told["bob"] == {"topic": NOT_ASKED, "cluster": 0, "group": NOT_ASKED}

    asyncio.run(main())


def test_another_login_on_the_same_connection(secured: Secured) -> None:
    """KIP-368."""
    alice, bob = ("alice", USERS["alice"]), ("bob", USERS["bob"])

    async def main() -> None:
        client = await _connected(secured)
        for _ in range(2):
            assert (await log_in_again(client, *alice)).session_lifetime.total_seconds() == 3_600
        too_soon = await client.call("sasl_handshake", 1, mechanism="PLAIN")
        assert (too_soon.error_code, tuple(too_soon.mechanisms)) == (ErrorCode.illegal_sasl_state, ())
        client.writer.close()
        client = await _connected(secured)
        await log_in_again(client, *alice)
        refused = await log_in_again(client, *bob)
        assert refused.error_code is ErrorCode.sasl_authentication_failed
        assert refused.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
        assert await client.closed()
        client = await _connected(secured)
        await log_in_again(client, *alice)
        handshake = await client.call("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
        assert handshake.error_code is ErrorCode.none
        client.send("sasl_authenticate", 2, auth_bytes=b"n,,n=alice,r=x")
        assert await client.closed()

    asyncio.run(main())


def test_tokens_without_headers(secured: Secured) -> None:
    """SaslHandshake 0."""

    async def main() -> None:
        client = await _connected(secured)
        assert (await client.call("sasl_handshake", 0, mechanism="PLAIN")).error_code is ErrorCode.none
        assert await bare(client, f"\0alice\0{USERS['alice']}".encode()) == b""
        assert (await client.call("metadata", 0, topics=[])).brokers
        client.writer.close()
        client = await _connected(secured)
        await client.call("sasl_handshake", 0, mechanism="PLAIN")
        token = b"\0alice\0wrong"
        client.send_bytes(len(token).to_bytes(4, "big") + token)
        assert await client.closed()

    asyncio.run(main())


@pytest.mark.parametrize("tls", [False, True])
def test_plain_lets_in_who_knows_the_password(secured: Secured, tls: bool) -> None:
    assert _write(secured.config("admin", tls=tls), "t") is None
    code, text = _login_error(secured.config("alice", tls=tls, password="wrong"))
    assert code == KafkaError._AUTHENTICATION
    assert "Authentication failed: Invalid username or password" in text


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("tls", [False, True])
def test_scram_users_are_made_and_let_in_and_forgotten(secured: Secured, mechanism: str, tls: bool) -> None:
    name = f"carol-{uuid.uuid4().hex[:6]}"
    which = ScramMechanism.SCRAM_SHA_256 if mechanism == "SCRAM-SHA-256" else ScramMechanism.SCRAM_SHA_512
    config = secured.config(name, mechanism, tls=tls, password="carol, s3cret")
    admin = secured.admin
    secured.add_scram_user(name, mechanism, "carol, s3cret")
    described: Any = admin.describe_user_scram_credentials([name])
    found = described[name].result(TIMEOUT_S)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [(which, 4096)]
    error = _write(config, "t")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    _allow(secured, f"User:{name}", ResourceType.TOPIC, "t", AclOperation.WRITE)
    assert _write(config, "t") is None
    code, text = _login_error({**config, "sasl.password": "wrong"})
    assert code == KafkaError._AUTHENTICATION
    assert f"due to invalid credentials with SASL mechanism {mechanism}" in text
    admin.alter_user_scram_credentials([UserScramCredentialDeletion(name, which)])[name].result(TIMEOUT_S)
    wait_until(lambda: _refusal(config) is not None, "the broker has forgotten the user", lambda: name)
    assert _login_error(config)[0] == KafkaError._AUTHENTICATION


def test_a_certificate_is_a_principal(secured: Secured) -> None:
    secured.create_topic("by-certificate")
    refused = _write(secured.with_certificate(), "by-certificate")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    operations = AclOperation.READ, AclOperation.WRITE
    _allow(secured, CLIENT_PRINCIPAL, ResourceType.TOPIC, "by-certificate", *operations)
    _allow(secured, CLIENT_PRINCIPAL, ResourceType.GROUP, "certified", AclOperation.READ)
    assert _write(secured.with_certificate(), "by-certificate", b"hello") is None
    assert _read(secured.with_certificate(), "by-certificate", "certified") == b"hello"


def test_what_librdkafka_is_told_without_a_right(secured: Secured) -> None:
    bob = secured.config("bob")
    with pytest.raises(KafkaException) as caught:
        _read(bob, "t", "bobs")
    assert caught.value.args[0].code() in (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )
    producer = Producer({**bob, "transactional.id": "bobs"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert caught.value.args[0].fatal()
    admin = AdminClient(bob)
    assert "t" not in admin.list_topics(timeout=TIMEOUT_S).topics
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic("bobs", 1, 1)])["bobs"].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_acls_are_described_and_deleted_by_filter(secured: Secured) -> None:
    principal = f"User:{uuid.uuid4().hex[:6]}"
    _allow(secured, principal, ResourceType.TOPIC, "t", AclOperation.READ, AclOperation.WRITE)
    of_any: Any = None  # the stubs say str, the documentation says str or None
    wanted = AclBindingFilter(ResourceType.ANY, of_any, ResourcePatternType.ANY, principal, of_any, AclOperation.ANY,
                              AclPermissionType.ANY)  # fmt: skip
    found = secured.admin.describe_acls(wanted).result(TIMEOUT_S)
    assert sorted(each.operation.name for each in found) == ["READ", "WRITE"]
    assert {each.principal for each in found} == {principal}
    assert len(acls.delete(secured.admin, wanted)) == 2
    assert secured.admin.describe_acls(wanted).result(TIMEOUT_S) == []


def _tool(broker: Secured, config: str, command: str, *arguments: str, stdin: str = "") -> str:
    """What one of Kafka's command-line tools says."""
    (broker.directory / "tool.properties").write_text(config)
    java = ["docker", "run", "--rm", "-i", "--network", "host", "-v", f"{broker.directory}:/secrets:ro"]
    java += ["--entrypoint", "java", IMAGE, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", "/opt/kafka/libs/*", command]
    done = subprocess.run([*java, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.tier("full")
def test_kafkas_own_tools_make_users_and_acls_and_use_them(secured: Secured) -> None:
    if docker_problem() is not None or secured.kind != "embedded":
        pytest.skip("Kafka's tools against this broker; they come from Kafka's image")
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = (
        "security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.truststore.type=PEM\n"
        "ssl.truststore.location=/secrets/authority.pem\n"
        'sasl.jaas.config={module} required username="{name}" password="{password}";\n'
    )
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    as_admin = config.format(mechanism="PLAIN", module=plain, name="admin", password=USERS["admin"])
    as_dora = config.format(mechanism="SCRAM-SHA-512", module=scram, name="dora", password="dora-secret")
    server = ("--bootstrap-server", secured.addresses.sasl_tls, "--command-config", "/secrets/tool.properties")
    said = _tool(secured, as_admin, "kafka.admin.ConfigCommand", *server, "--alter", "--entity-type", "users",
                 "--entity-name", "dora", "--add-config", DORA)  # fmt: skip
    assert "Completed updating config for user dora" in said, said
    said = _tool(secured, as_admin, "org.apache.kafka.tools.AclCommand", *server, "--add", "--allow-principal",
                 "User:dora", "--producer", "--topic", "t")  # fmt: skip
    assert "(principal=User:dora, host=*, operation=WRITE, permissionType=ALLOW)" in said, said
    said = _tool(secured, as_admin, "org.apache.kafka.tools.AclCommand", *server, "--list", "--principal", "User:dora")
    assert "operation=CREATE, permissionType=ALLOW" in said, said
    produce = ("--bootstrap-server", secured.addresses.sasl_tls, "--command-config", "/secrets/tool.properties")
    said = _tool(
        secured, as_dora, "org.apache.kafka.tools.ConsoleProducer", *produce, "--topic", "t", stdin="from java\n"
    )
    assert "rror" not in said, said
    wrong = as_dora.replace("dora-secret", "wrong")
    said = _tool(secured, wrong, "org.apache.kafka.tools.TopicCommand", *server, "--list")
    assert "SaslAuthenticationException" in said, said
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in said, said
    log = (secured.directory / "broker.log").read_text()
    assert "(apache-kafka-java 4.3.0), User:dora, SASL_SSL" in log
    assert "login failed: Authentication failed during authentication due to invalid credentials" in log
