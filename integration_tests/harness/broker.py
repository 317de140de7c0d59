"""One handle over both brokers, so that a test doesn't know which one it runs on."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import time
import uuid
from pathlib import Path
from typing import Literal, Protocol

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from integration_tests.harness import clients

Kind = Literal["embedded", "kafka"]
READY_S_MAX = 180.0  # on a busy machine; an answer ends the wait
# Both brokers of a session are started with these: Kafka's own values would have tests wait for most of a minute.
SHORT_SESSIONS = {
    "group.min.session.timeout.ms": "1500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "200",
}
POLL_S, ANSWER_S_MAX = 0.05, 5.0


class HasAddress(Protocol):
    """A cluster that the harness's own clients reach at `bootstrap`, where they may do everything."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""


class BrokerHandle(Protocol):
    """A broker in a process of its own. Address, cluster id and data stay the same over kill and restart."""

    kind: Kind
    bootstrap: str

    def start(self) -> None:
        """Start and return once a client's request was answered."""

    def kill(self) -> None:
        """SIGKILL; returns once the process is gone. Nothing is flushed."""

    def restart(self) -> None:
        """Start again after `kill` or `stop`, with the same address and data."""

    def suspend(self) -> None:
        """Stop its execution: connections stay open, and no request is answered any more."""

    def resume(self) -> None:
        """Let a suspended process go on."""

    def stop(self) -> None:
        """Stop for good and remove what was started."""

    def alive(self) -> bool:
        """Whether the process runs."""

    def cut_log(self, topic: str, topic_id: uuid.UUID, partition: int, offset: int) -> None:
        """Lose a partition's records from `offset` on, which must begin a batch. Only while the process is dead."""


_OURS: list[int] = []
"""Files with locks on the ports that this process was given: while it lives no other run of the tests takes them."""


def free_port() -> int:
    """A TCP port that is free and stays this process's, from below the range that outgoing connections take theirs
    from."""
    for port in random.sample(range(20_000, 32_000), 100):
        path = Path(tempfile.gettempdir(), f"eos-test-{os.getuid()}-port-{port}")
        claim = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        with socket.socket() as probe:
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                probe.bind(("127.0.0.1", port))
            except OSError:
                os.close(claim)
                continue
        _OURS.append(claim)
        return port
    raise RuntimeError("no free TCP port")


def wait_ready(bootstrap: str, timeout_s: float = READY_S_MAX) -> str:
    """Wait for the answer to a real metadata request; returns the cluster id. librdkafka reconnects inside."""
    admin = AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    metadata = admin.list_topics(timeout=timeout_s)
    return str(metadata.cluster_id)


def lose_end(broker: BrokerHandle, topic: str, offset: int) -> None:
    """Kill a broker, and start it again without the records that the topic's first partition had from `offset` on."""
    topic_id = clients.topic_id(broker.bootstrap, topic)
    broker.kill()
    broker.cut_log(topic, topic_id, 0, offset)
    broker.restart()
    wait_leaders(broker.bootstrap)


def wait_leaders(bootstrap: str, timeout_s: float = READY_S_MAX) -> None:
    """Wait until every partition of every topic has a leader that answers: a broker answers for itself before that."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + timeout_s
    while True:
        metadata = admin.list_topics(timeout=timeout_s)
        latest = {
            TopicPartition(name, number): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for name, topic in metadata.topics.items()
            for number in topic.partitions
        }
        late = (
            [
                future
                for future in admin.list_offsets(latest, request_timeout=ANSWER_S_MAX).values()
                if future.exception(timeout_s)
            ]
            if latest
            else []
        )
        if metadata.brokers and not late:
            return
        assert time.monotonic() < deadline, f"{bootstrap}: {len(late)} partitions have no leader that answers"
        time.sleep(POLL_S)
