"""One protected broker of each kind: SASL in plain text, SASL over TLS, certificates; ACLs; the same users on both.

A further listener without login is the harness's own: there everybody is User:ANONYMOUS and may do everything.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.x509.oid import NameOID
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from integration_tests.harness import acls
from integration_tests.harness.broker import Kind, free_port
from integration_tests.harness.kafka_container import DATA, IMAGE, QUICK_START, START
from integration_tests.harness.versions import image
from tests.embedded_broker.security.certificates import Authority, Pair

USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
START_S_MAX, ANSWER_S_MAX = 180.0, 20.0
REAUTH_MS = 3_600_000
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True, slots=True)
class Addresses:
    """HOST:PORT of each listener."""

    sasl: str
    sasl_tls: str
    certificates: str
    open: str


class Secured:
    """A running broker. User:admin may do everything; nobody who logs in as somebody else may do anything yet."""

    admin: AdminClient
    """Of User:admin; lives as long as the broker, since futures end with their client."""

    def __init__(self, kind: Kind, directory: Path, reauth_ms: int = REAUTH_MS) -> None:
        self._reauth_ms = reauth_ms
        self.kind, self.directory = kind, directory
        self.addresses = Addresses(*(f"127.0.0.1:{free_port()}" for _ in range(4)))
        self.authority = Authority(directory)
        self.client_pair: Pair = self.authority.sign("client")
        self._broker = self.authority.sign("broker", ((NameOID.COMMON_NAME, "broker"),))
        self._process: subprocess.Popen[str] | None = None
        self._container: DockerContainer | None = None

    @property
    def bootstrap(self) -> str:
        """For the harness's own clients."""
        return self.addresses.open

    def start(self) -> None:
        """Return once the admin can log in and is answered."""
        if self.kind == "embedded":
            self._start_embedded()
        else:
            self._start_kafka()
        self.admin = AdminClient(self.config("admin"))
        self.admin.list_topics(timeout=START_S_MAX)

    def _start_embedded(self) -> None:
        users = self.directory / "users.txt"
        users.write_text("".join(f"{name}:{password}\n" for name, password in USERS.items()))
        command = [
            sys.executable,
            "-m",
            "cli.main",
            "broker",
            "--no-auto-create",
            "--data-dir",
            str(self.directory / "data"),
        ]
        for protocol, address in self._listeners():
            command += ["--listen", f"{protocol}://{address}"]
        command += ["--tls-certificate", str(self._broker.certificate), "--tls-key", str(self._broker.key)]
        command += ["--tls-client-ca", str(self.authority.certificate), "--tls-client-auth", "requested"]
        command += ["--users", str(users), "--authorizer", "--super-user", "User:admin"]
        command += ["--super-user", "User:ANONYMOUS"]
        command += ["--config", f"connections.max.reauth.ms={self._reauth_ms}"]
        for mechanism in MECHANISMS:
            command += ["--sasl-mechanism", mechanism]
        command += ["--oauth-unsecured"]
        with (self.directory / "broker.log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on "), (self.directory / "broker.log").read_text()

    def _listeners(self) -> list[tuple[str, str]]:
        each = self.addresses
        return [
            ("SASL_PLAINTEXT", each.sasl),
            ("SASL_SSL", each.sasl_tls),
            ("SSL", each.certificates),
            ("PLAINTEXT", each.open),
        ]

    def _start_kafka(self) -> None:
        testcontainers_config.ryuk_disabled = True
        (self.directory / "server.properties").write_text(self._properties())
        self._write_keystore()
        self._container = DockerContainer(image("target", IMAGE)).with_envs(
            KAFKA_HEAP="320m", JAVA_TOOL_OPTIONS=QUICK_START
        )
        self._container.with_kwargs(entrypoint=["sh", "-c", START])
        self._container.with_volume_mapping(str(self.directory), "/secrets", "ro")
        self._container.with_volume_mapping(
            str(self.directory / "server.properties"), "/mnt/shared/config/server.properties"
        )
        for protocol, address in self._listeners():
            self._container.with_bind_ports(f"{PORTS[protocol]}/tcp", int(address.rpartition(":")[2]))
        self._container.start()

    def _write_keystore(self) -> None:
        """For Kafka, which reads both in one file."""
        (self.directory / "keystore.pem").write_bytes(
            self._broker.key.read_bytes() + self._broker.certificate.read_bytes()
        )
        for path in (self.directory, *self.directory.iterdir()):
            path.chmod(0o755)

    def restart(self, *, other_authority: bool = False) -> None:
        """End it, start it again with what it has stored, and return once the admin is answered.

        Args:
            other_authority: with a certificate of a new one, which is the only one that it trusts from then on.
        """
        if other_authority:
            self.authority = Authority(self.directory)
            self.client_pair = self.authority.sign("client")
            self._broker = self.authority.sign("broker", ((NameOID.COMMON_NAME, "broker"),))
        if self._container is not None:
            self._write_keystore()
            self._container.get_wrapped_container().restart()
        else:
            self.stop()
            self._start_embedded()
        self.admin = AdminClient(self.config("admin"))
        self.admin.list_topics(timeout=START_S_MAX)

    def _properties(self) -> str:
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        lines = [
            *FIXED.strip().splitlines(),
            f"connections.max.reauth.ms={self._reauth_ms}",
            "listeners=" + ",".join(f"{name}://:{port}" for name, port in PORTS.items()),
            "advertised.listeners=BROKER://localhost:9096,"
            + ",".join(f"{protocol}://{address}" for protocol, address in self._listeners()),
        ]
        for name in ("sasl_plaintext", "sasl_ssl"):
            lines.append(f"listener.name.{name}.plain.sasl.jaas.config={PLAIN} {users};")
            lines.append(f"listener.name.{name}.oauthbearer.sasl.jaas.config={OAUTH}")
            for size in (256, 512):
                lines.append(f"listener.name.{name}.scram-sha-{size}.sasl.jaas.config={SCRAM}")
        return "\n".join(lines) + "\n"

    def create_topic(self, name: str) -> None:
        """With one partition."""
        self.admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=ANSWER_S_MAX)[name].result(ANSWER_S_MAX)

    def config(self, name: str, mechanism: str = "PLAIN", *, tls: bool = False, password: str = "") -> dict[str, Any]:
        """For a librdkafka client that logs in as `name`."""
        return {
            "bootstrap.servers": self.addresses.sasl_tls if tls else self.addresses.sasl,
            "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password or USERS[name],
            "ssl.ca.location": str(self.authority.certificate),
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }

    def with_token(self, name: str, life_s: int = 3_600) -> dict[str, Any]:
        """For a librdkafka client that shows a token without a signature, which it writes itself."""
        wanted = {"bootstrap.servers", "security.protocol", "log_level", "reconnect.backoff.ms"}
        shared = {key: value for key, value in self.config("admin").items() if key in wanted}
        return shared | {
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={name} lifeSeconds={life_s}",
        }

    def with_certificate(self) -> dict[str, Any]:
        """For a librdkafka client that shows its certificate."""
        return {
            "bootstrap.servers": self.addresses.certificates,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "ssl.certificate.location": str(self.client_pair.certificate),
            "ssl.key.location": str(self.client_pair.key),
            "log_level": 0,
        }

    def add_scram_user(self, name: str, mechanism: str, password: str) -> None:
        """Create a user with 4,096 iterations, and return once the broker lets the user in."""
        which = ScramMechanism[mechanism.replace("-", "_")]
        made = UserScramCredentialUpsertion(name, ScramCredentialInfo(which, 4_096), password.encode())
        self.admin.alter_user_scram_credentials([made])[name].result(ANSWER_S_MAX)
        AdminClient(self.config(name, mechanism, password=password)).list_topics(timeout=ANSWER_S_MAX)

    def remove_scram_user(self, name: str, mechanism: str) -> None:
        """Remove a user; who is logged in stays so until its login has expired."""
        which = ScramMechanism[mechanism.replace("-", "_")]
        self.admin.alter_user_scram_credentials([UserScramCredentialDeletion(name, which)])[name].result(ANSWER_S_MAX)

    def allow(self, user: str, resource: str, name: str, *operations: str, prefix: bool = False) -> None:
        """Add rights, and return once the broker acts by them.

        Args:
            user: without `User:`.
            resource: TOPIC, GROUP, TRANSACTIONAL_ID or BROKER (the cluster).
            name: of the resource; the cluster's is kafka-cluster.
            operations: names as in `AclOperation`, e.g. READ.
            prefix: for all resources whose names begin with `name`.
        """
        pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
        bindings = [
            AclBinding(
                ResourceType[resource], name, pattern, f"User:{user}", "*", AclOperation[each], AclPermissionType.ALLOW
            )
            for each in operations
        ]
        acls.create(self.admin, *bindings)

    def take_away(self, user: str, resource: str, name: str, *operations: str) -> None:
        """Remove rights that `allow` has given for exactly this name, and see that they were there."""
        for each in operations:
            wanted = AclBindingFilter(
                ResourceType[resource],
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[each],
                AclPermissionType.ALLOW,
            )
            assert len(acls.delete(self.admin, wanted)) == 1, f"{user} had no {each} on {resource} {name}"

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._container is not None:
            self._container.stop(force=True)


@contextmanager
def secured_broker(kind: Kind, directory: Path, reauth_ms: int = REAUTH_MS) -> Iterator[Secured]:
    """Start one with `directory` for its files, and stop it whatever happens. `reauth_ms`: so long a login holds."""
    broker = Secured(kind, directory, reauth_ms)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


PORTS = {"PLAINTEXT": 9091, "SASL_PLAINTEXT": 9092, "SASL_SSL": 9094, "SSL": 9095, "BROKER": 9096, "CONTROLLER": 9093}
FIXED = f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
controller.listener.names=CONTROLLER
inter.broker.listener.name=BROKER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs={DATA}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
ssl.keystore.type=PEM
ssl.keystore.location=/secrets/keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=/secrets/authority.pem
listener.name.ssl.ssl.client.auth=required
"""
