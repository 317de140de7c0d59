"""Two real Kafka brokers in containers on the host's network, so that no proxy stands in the way of either side."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from integration_tests.harness.broker import free_port, wait_leaders, wait_ready
from integration_tests.harness.kafka_container import DATA, START

IMAGE = "apache/kafka:4.3.0"


def docker(*arguments: str) -> str:
    """Run docker; its output. Raises CalledProcessError."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


@dataclass(slots=True)
class Kafka:
    """One broker. `pause` stops it without closing a connection."""

    name: str
    bootstrap: str

    @classmethod
    def start(
        cls, role: str, heap: str = "1g", settings: Mapping[str, str] | None = None, far: tuple[int, int] | None = None
    ) -> Kafka:
        """Start a broker and wait until it answers; `docker start` works after a kill. `settings`: more environment.

        `far`: a second port, and the one that is advertised to clients which come that way.
        """
        port, controller = free_port(), free_port()
        name = f"eos-bench-{role}-{uuid.uuid4().hex[:8]}"
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        told = {
            "CLUSTER_ID": cluster,
            "KAFKA_HEAP": heap,
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@127.0.0.1:{controller}",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_LOG_DIRS": DATA,
        }
        if far is not None:
            told["KAFKA_LISTENERS"] += f",FAR://127.0.0.1:{far[0]}"
            told["KAFKA_ADVERTISED_LISTENERS"] += f",FAR://127.0.0.1:{far[1]}"
            told["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] += ",FAR:PLAINTEXT"
        told |= settings or {}
        environment = [word for key, value in told.items() for word in ("-e", f"{key}={value}")]
        command = ("run", "-d", "--name", name, "--network", "host", "--entrypoint", "sh")
        docker(*command, *environment, IMAGE, "-c", START)
        kafka = cls(name, f"127.0.0.1:{port}")
        try:
            wait_ready(kafka.bootstrap, 90)
            wait_leaders(kafka.bootstrap)
        except BaseException:
            kafka.stop()
            raise
        return kafka

    @classmethod
    @contextmanager
    def running(cls, role: str, heap: str = "1g", far: tuple[int, int] | None = None) -> Iterator[Kafka]:
        """A broker that is removed at the end; `heap` and `far` as in `start`."""
        kafka = cls.start(role, heap, far=far)
        try:
            yield kafka
        finally:
            kafka.stop()

    def pause(self) -> None:
        """Freeze the broker."""
        docker("pause", self.name)

    def resume(self) -> None:
        """Let it go on."""
        docker("unpause", self.name)

    def stop(self) -> None:
        """Remove the container."""
        docker("rm", "-f", "-v", self.name)
