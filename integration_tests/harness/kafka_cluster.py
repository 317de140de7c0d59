"""Real Kafka as a cluster: several brokers and a controller, all in one network, each in a container of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from integration_tests.harness import clients, raw
from integration_tests.harness.broker import POLL_S, READY_S_MAX, free_port, wait_leaders, wait_ready
from integration_tests.harness.kafka_container import (
    CONTROLLER,
    CONTROLLER_PORT,
    IMAGE,
    SETTINGS,
    START,
    cluster_id,
    need_kafka,
    variables,
)

HEAP_MIB = 224
CLIENT_PORTS, INNER_PORTS = 9200, 9300  # plus the broker's id: they share one network


class KafkaCluster:
    """`brokers` brokers that copy every internal topic to each other. `start`, `kill` and `restart` some, `stop`.

    The controller is no broker, because it must outlive them: of controllers a majority must live, not one.
    """

    def __init__(
        self,
        brokers: int = 3,
        image: str = IMAGE,
        transactions: int | None = None,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`transactions`, and `settings` of all of them: as of `KafkaContainer`."""
        testcontainers_config.ryuk_disabled = True
        self._ids = range(1, brokers + 1)
        ports = {broker: free_port() for broker in self._ids}
        controller_port = free_port()
        self._controller_address = f"127.0.0.1:{controller_port}"
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self._transactions = transactions
        common = {
            **SETTINGS,
            "CLUSTER_ID": cluster_id(),
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": str(brokers),
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": str(brokers),
            "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
            "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "1",
            **variables(settings or {}),
        }
        self._controller = DockerContainer(image).with_envs(**common, **CONTROLLER)
        self._controller.with_bind_ports(f"{CONTROLLER_PORT}/tcp", controller_port)
        self._brokers: dict[int, DockerContainer] = {}
        for broker, port in ports.items():
            self._controller.with_bind_ports(f"{CLIENT_PORTS + broker}/tcp", port)
            self._brokers[broker] = DockerContainer(image).with_envs(**common, **_broker(broker, port))

    def start(self) -> None:
        """Return once all of them lead something that answers."""
        self._controller.start()
        network = f"container:{self._controller.get_wrapped_container().id}"
        for container in self._brokers.values():
            container.with_kwargs(network_mode=network, entrypoint=["sh", "-c", START])
        with ThreadPoolExecutor() as pool:
            list(pool.map(DockerContainer.start, self._brokers.values()))
        try:
            wait_ready(self.bootstrap)
            self._wait_registered()
            wait_leaders(self.bootstrap)
        except Exception as error:
            for container in self._brokers.values():
                error.add_note(container.get_wrapped_container().logs(tail=20).decode(errors="replace"))
            raise
        if self._transactions is not None:
            raw.offer_transactions(self.bootstrap.partition(",")[0], self._transactions)

    def _wait_registered(self) -> None:
        """Until the controller knows every broker: one that answers doesn't say that the others do."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + READY_S_MAX
        while (known := _brokers(admin)) != set(self._ids):
            assert time.monotonic() < deadline, f"only brokers {sorted(known)} are registered"
            time.sleep(POLL_S)

    def kill(self, broker: int) -> None:
        """SIGKILL. The controller is told: it would wait for the end of the broker's session."""
        container = self._brokers[broker].get_wrapped_container()
        container.kill()
        container.wait()
        raw.unregister_broker(self._controller_address, broker)

    def restart(self, broker: int) -> None:
        """Start one that was killed, and return once all of them know each other."""
        self._brokers[broker].get_wrapped_container().start()
        self._wait_registered()

    def wait_in_sync(self) -> None:
        """Until each partition is on all brokers, and all its replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline, behind = time.monotonic() + READY_S_MAX, [""]
        while behind:
            assert time.monotonic() < deadline, f"not all in sync: {behind}"
            time.sleep(POLL_S)
            behind = [
                f"{name}[{number}]: {sorted(found.isrs)} of {sorted(found.replicas)}"
                for name, topic in admin.list_topics(timeout=READY_S_MAX).topics.items()
                for number, found in topic.partitions.items()
                if set(found.isrs) != set(self._ids)
            ]

    def move_leaders(self) -> None:
        """Have all partitions led by the brokers that led them at first."""
        admin = clients.admin(self.bootstrap)
        admin.elect_leaders(ElectionType.PREFERRED).result(READY_S_MAX)

    def suspend(self, broker: int) -> None:
        """Freeze its processes."""
        self._brokers[broker].get_wrapped_container().pause()

    def resume(self, broker: int) -> None:
        """Let them go on."""
        self._brokers[broker].get_wrapped_container().unpause()

    def stop(self) -> None:
        """Remove all of them."""
        for container in (*self._brokers.values(), self._controller):
            container.stop(force=True)


def _brokers(admin: AdminClient) -> set[int]:
    """The brokers that one of them knows; none while it can't say."""
    try:
        return set(admin.list_topics(timeout=READY_S_MAX).brokers)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._PARTIAL:
            raise
        return set()


def _broker(broker: int, port: int) -> dict[str, str]:
    """What is this broker's own."""
    client, inner = CLIENT_PORTS + broker, INNER_PORTS + broker
    return {
        "KAFKA_NODE_ID": str(broker),
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{client},BROKER://:{inner}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},BROKER://localhost:{inner}",
        "KAFKA_HEAP": f"{HEAP_MIB}m",
        "KAFKA_HEAP_OPTS": f"-Xmx{HEAP_MIB}m",
    }


@contextmanager
def running(brokers: int) -> Iterator[KafkaCluster]:
    """A cluster for as long as the block runs; the test is skipped where there is no Docker."""
    need_kafka()
    cluster = KafkaCluster(brokers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
