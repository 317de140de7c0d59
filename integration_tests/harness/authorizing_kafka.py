"""A real broker that checks rights, and flow files whose clusters are that one under several names."""

from __future__ import annotations

import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from integration_tests.harness import acls
from integration_tests.harness.broker import free_port
from integration_tests.harness.kafka_container import IMAGE, need_kafka
from integration_tests.harness.processes import wait_until
from integration_tests.harness.versions import image
from replicator.config import Config, Flow, load
from replicator.flow.setup import Setup
from replicator.flow.topics import ControlPlane
from replicator.model import checkpoint, names
from replicator.model.checkpoint import Evidence

PASSWORDS = {"admin": "admin-pw", "alice": "alice-pw"}


@dataclass(frozen=True)
class Kafka:
    """One broker: `plain` is for its super user, `secured` asks for a password and checks ACLs."""

    plain: str
    secured: str
    admin: AdminClient

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(30)
        wait_until(lambda: topic in self.topics(), f"{topic} is there", str)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)
        wait_until(lambda: topic not in self.topics(), f"{topic} is gone", str)

    def topics(self) -> dict[str, int]:
        listed = self.admin.list_topics(timeout=30).topics
        return {name: len(topic.partitions) for name, topic in listed.items() if name != "__consumer_offsets"}

    def allow(self, operation: str, kind: str, name: str) -> None:
        binding = AclBinding(
            ResourceType[kind],
            name,
            ResourcePatternType.PREFIXED if kind != "BROKER" else ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        acls.create(self.admin, binding)


def settings(plain: int, secured: int, inner: int, controller: int) -> dict[str, str]:
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    inside = f"PLAINTEXT://:{plain},SASL_PLAINTEXT://:{secured},BROKER://127.0.0.1:{inner}"
    outside = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured},BROKER://127.0.0.1:{inner}"
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"{inside},CONTROLLER://127.0.0.1:{controller}",
        "KAFKA_ADVERTISED_LISTENERS": outside,
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@127.0.0.1:{controller}",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "true",
        "KAFKA_AUTHORIZER_CLASS_NAME": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "KAFKA_SUPER_USERS": "User:ANONYMOUS;User:admin",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "KAFKA_HEAP_OPTS": "-Xmx384m",
    }


@contextmanager
def running() -> Iterator[Kafka]:
    """Skips the test where it can't be; EOS_REQUIRE_KAFKA=1 makes it fail instead."""
    need_kafka()
    ports = [free_port() for _ in range(4)]
    name = f"eos-secured-{uuid.uuid4().hex[:8]}"
    variables = [part for key, value in settings(*ports).items() for part in ("-e", f"{key}={value}")]
    mapped = [part for port in ports[:2] for part in ("-p", f"127.0.0.1:{port}:{port}")]
    subprocess.run(
        ["docker", "run", "-d", "--rm", "--name", name, *mapped, *variables, image("target", IMAGE)],
        check=True,
        capture_output=True,
    )
    try:
        plain, secured = (f"127.0.0.1:{port}" for port in ports[:2])
        admin = AdminClient({"bootstrap.servers": plain, "log_level": 0})
        admin.list_topics(timeout=60)
        yield Kafka(plain, secured, admin)
    finally:
        subprocess.run(["docker", "rm", "-f", name], check=True, capture_output=True)


@dataclass
class World:
    """A flow file whose clusters are one broker under several names, and topics with a prefix of their own."""

    kafka: Kafka
    path: Path
    prefix: str

    def write(self, more: str = "", *, source: str = "a", target: str = "b", topics: str = "") -> Config:
        pattern = topics or f'"^{self.prefix}.*"'
        login = "security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: alice"
        self.path.write_text(
            f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "{self.kafka.plain}"}}}}
  b: {{properties: {{bootstrap.servers: "{self.kafka.plain.replace("127.0.0.1", "localhost")}"}}}}
  alice: {{properties: {{bootstrap.servers: "{self.kafka.secured}", {login}, sasl.password: alice-pw}}}}
  wrong: {{properties: {{bootstrap.servers: "{self.kafka.secured}", {login}, sasl.password: secret-typo}}}}
  nobody: {{properties: {{bootstrap.servers: "127.0.0.1:1"}}}}
  nowhere: {{properties: {{bootstrap.servers: "no-such-host.invalid:9092"}}}}
flows:
  {self.prefix}:
    {{source: {source}, target: {target}, topics: [{pattern}], {more}}}
"""
        )
        return load(self.path, {})

    def flow(self, more: str = "", **sides: str) -> Flow:
        return self.write(more, **sides).flows[self.prefix]

    def config(self) -> Config:
        return load(self.path, {})

    def mine(self) -> dict[str, int]:
        return {name: count for name, count in self.kafka.topics().items() if self.prefix in name}


def commit_position(world: World, flow: Flow, topic: str, partition: int, offset: int, **evidence: object) -> None:
    """What a lane does: a position with evidence, in a transaction on the target."""
    known = {
        "source_topic": topic.removeprefix("a."),
        "source_cluster": "",
        "source_topic_id": "",
        "target_topic_id": "",
    }
    metadata = checkpoint.encode(Evidence(**{"generation": 1, "owner": "me", **known, **evidence}))  # type: ignore[arg-type]
    producer = Producer({"bootstrap.servers": world.kafka.plain, "transactional.id": f"t-{flow.name}", "log_level": 0})
    consumer = Consumer({"bootstrap.servers": world.kafka.plain, "group.id": names.position_group(flow.name)})
    producer.init_transactions(60)
    producer.begin_transaction()
    position = TopicPartition(topic, partition, offset, metadata)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    consumer.close()


def produce(world: World, topic: str, count: int, partition: int = 0, timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": world.kafka.plain, "log_level": 0})
    for _ in range(count):
        producer.produce(topic, b"value", partition=partition, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


@contextmanager
def begun(flow: Flow) -> Iterator[tuple[Setup, ControlPlane]]:
    """A flow's setup on connected clusters."""
    with ControlPlane(flow) as plane:
        asked = threading.Event()
        config = Config(clusters={}, flows={flow.name: flow})
        yield Setup(flow, config, plane, "me", structlog.get_logger(), asked), plane
