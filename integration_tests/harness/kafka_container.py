"""Real Kafka in two containers, a controller and a broker that survives SIGKILL: same host port, same data.

Three things that are easily got wrong:
- A broker that is its own controller comes back with the metadata of before its death, in which it leads everything.
  It is fenced then, and Kafka 4.3 skips the markers of transactions that end just then, because their partitions have
  no leader: they hang for ever. So the controller lives on, and is told of the death.
- The broker connects to itself (transaction verification), at its inter-broker address. The advertised client
  address is only reachable from outside, so there is a second listener, BROKER://localhost:9094.
- The image's entry point formats its data directory and refuses one that is formatted. A second start goes to
  the broker directly, with the configuration that the first start wrote.
"""

from __future__ import annotations

import base64
import io
import os
import tarfile
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from integration_tests.harness import raw
from integration_tests.harness.broker import SHORT_SESSIONS, Kind, free_port, wait_leaders, wait_ready
from integration_tests.harness.cutting import FIRST_SEGMENT, batches_below, flipped

IMAGE = os.environ.get("EOS_KAFKA_IMAGE") or "apache/kafka:4.3.0"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the virtual machine: a test's broker lives for minutes and is killed and started often. It compiles little."""
CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
CONTROLLER_ID, BROKER_ID = 100, 1
DATA = "/tmp/eos-data"
START = f"""
if [ -e {DATA}/meta.properties ]; then
  LOGGING="-Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml"
  LOGGING="$LOGGING -Dlog4j.configuration=file:/opt/kafka/config/log4j.properties"  # Kafka 3
  exec java "-Xmx$KAFKA_HEAP" $LOGGING -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
fi
exec /etc/kafka/docker/run
"""


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of a broker as the image's entry point takes them."""
    return {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in settings.items()}


SETTINGS = {
    "JAVA_TOOL_OPTIONS": QUICK_START,
    "KAFKA_CONTROLLER_QUORUM_VOTERS": f"{CONTROLLER_ID}@localhost:{CONTROLLER_PORT}",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_LOG_DIRS": DATA,
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    # The default of 9 s fences a broker that was alive all the time, on a machine without CPU or while it is suspended:
    # its partitions have no leader for a while, and topics cannot be created.
    "KAFKA_BROKER_SESSION_TIMEOUT_MS": "60000",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS": "4",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
    "KAFKA_TRANSACTION_MAX_TIMEOUT_MS": "900000",
    **variables(SHORT_SESSIONS),
    "KAFKA_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS": "1000",
    "KAFKA_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS": "100",
    # how often Kafka looks for transactions that are past their timeout; its default of 10 s would be waited for
    "KAFKA_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": "200",
}
CONTROLLER = {
    "KAFKA_NODE_ID": str(CONTROLLER_ID),
    "KAFKA_PROCESS_ROLES": "controller",
    "KAFKA_LISTENERS": f"CONTROLLER://:{CONTROLLER_PORT}",
    "KAFKA_ADVERTISED_LISTENERS": f"CONTROLLER://localhost:{CONTROLLER_PORT}",
    "KAFKA_HEAP": "192m",
    "KAFKA_HEAP_OPTS": "-Xmx192m",
}
BROKER = {
    "KAFKA_NODE_ID": str(BROKER_ID),
    "KAFKA_PROCESS_ROLES": "broker",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_LISTENERS": f"PLAINTEXT://:{CLIENT_PORT},BROKER://:9094",
}


def cluster_id() -> str:
    """Clusters must differ: a flow whose source and target are one cluster is refused."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def docker_problem(*images: str) -> str | None:
    """Why containers of these images, or of `IMAGE`, can't be run here; None if they can."""
    import docker
    from docker.errors import DockerException, ImageNotFound

    needed = IMAGE
    try:
        client = docker.from_env(timeout=10)
        for needed in images or (IMAGE,):
            client.images.get(needed)
    except ImageNotFound:
        return f"Docker has no image {needed}"
    except DockerException as error:
        return f"Docker isn't there: {error}"
    return None


def need_kafka(*images: str) -> None:
    """Skip the test where containers of these images, or of `IMAGE`, can't be run; EOS_REQUIRE_KAFKA=1 makes it fail
    instead."""
    problem = docker_problem(*images)
    if problem is not None:
        if os.environ.get("EOS_REQUIRE_KAFKA") == "1":
            pytest.fail(f"EOS_REQUIRE_KAFKA=1, but {problem}")
        pytest.skip(problem)


class KafkaContainer:
    """A `BrokerHandle` over a broker's container, which is in the network of its controller's."""

    kind: Kind = "kafka"

    def __init__(
        self,
        heap_mib: int = 320,
        image: str = IMAGE,
        transactions: int | None = None,
        *,
        auto_create: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`transactions`: the transaction protocol that it offers (KIP-890); None: the newest that it can.
        `auto_create`: create topics that clients ask for, as Kafka does by default. `settings`: more of the broker's,
        by their names in Kafka."""
        testcontainers_config.ryuk_disabled = True  # one image is enough; fixtures remove their containers
        port, controller_port = free_port(), free_port()
        self.bootstrap, self._controller_address = f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}"
        common = SETTINGS | {"CLUSTER_ID": cluster_id()}
        self._transactions = transactions
        self._controller = DockerContainer(image).with_envs(**common, **CONTROLLER)
        self._controller.with_bind_ports(f"{CLIENT_PORT}/tcp", port)
        self._controller.with_bind_ports(f"{CONTROLLER_PORT}/tcp", controller_port)
        self._container = DockerContainer(image).with_envs(
            **common | {"KAFKA_AUTO_CREATE_TOPICS_ENABLE": str(auto_create).lower()} | variables(settings or {}),
            **BROKER,
            KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://{self.bootstrap},BROKER://localhost:9094",
            KAFKA_HEAP=f"{heap_mib}m",
            KAFKA_HEAP_OPTS=f"-Xmx{heap_mib}m",
        )
        self._options: dict[str, Any] = {"entrypoint": ["sh", "-c", START]}

    @property
    def _docker(self) -> Any:
        return self._container.get_wrapped_container()

    def start(self) -> None:
        """See `BrokerHandle`."""
        self.begin()
        self.wait()
        if self._transactions is not None:
            raw.offer_transactions(self.bootstrap, self._transactions)

    def begin(self) -> None:
        """Start without waiting, so that several can come up at the same time."""
        self._controller.start()
        network = f"container:{self._controller.get_wrapped_container().id}"
        self._container.with_kwargs(**self._options, network_mode=network)
        self._container.start()

    def wait(self) -> None:
        """Wait until it answers."""
        try:
            wait_ready(self.bootstrap)
            wait_leaders(self.bootstrap)
        except Exception as error:
            error.add_note(self._docker.logs(tail=50).decode(errors="replace"))
            raise

    def kill(self) -> None:
        """See `BrokerHandle`."""
        self._docker.kill()
        self._docker.wait()

    def restart(self) -> None:
        """See `BrokerHandle`."""
        raw.unregister_broker(self._controller_address, BROKER_ID)
        self._docker.start()
        self.wait()

    def suspend(self) -> None:
        """See `BrokerHandle`."""
        self._docker.pause()

    def resume(self) -> None:
        """See `BrokerHandle`."""
        self._docker.unpause()

    def flip_byte(self, topic: str, topic_id: uuid.UUID, partition: int, value: bytes, *, mend: bool = False) -> None:
        """Damage the first byte of a value that stands once, uncompressed, in a partition's log; or mend it again. The
        broker serves the batch as it is (the embedded one looks first)."""
        path = f"{DATA}/{topic}-{partition}/{FIRST_SEGMENT}"
        code, segment = self._docker.exec_run(["cat", path])
        assert code == 0, segment
        at, byte = flipped(segment, value, mend=mend)
        written = f"printf '\\{byte[0]:03o}' | dd of={path} bs=1 seek={at} conv=notrunc"
        code, said = self._docker.exec_run(["sh", "-c", written])
        assert code == 0, said

    def cut_log(self, topic: str, topic_id: uuid.UUID, partition: int, offset: int) -> None:
        """See `BrokerHandle`. A log that was not closed is recovered at the start: Kafka makes its indexes anew."""
        directory = f"{DATA}/{topic}-{partition}"
        stream, _ = self._docker.get_archive(f"{directory}/{FIRST_SEGMENT}")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as packed:
            member = packed.getmember(FIRST_SEGMENT)
            segment = packed.extractfile(member)
            assert segment is not None, f"{FIRST_SEGMENT} is no file"
            left = batches_below(segment.read(), offset)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as packed:
            member.size = len(left)  # owner and mode stay
            packed.addfile(member, io.BytesIO(left))
        assert self._docker.put_archive(directory, buffer.getvalue())

    def alive(self) -> bool:
        """See `BrokerHandle`."""
        self._docker.reload()
        return bool(self._docker.status == "running")

    def stop(self) -> None:
        """See `BrokerHandle`."""
        self._container.stop(force=True)
        self._controller.stop(force=True)
