"""A partition whose only replica is on a dead broker of three holds up no group in other partitions, and is synced once
that broker is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from integration_tests.groups.test_group_sync import EVERY
from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.copying import Copying
from integration_tests.harness.group_reading import begin, left, offsets
from integration_tests.harness.kafka_cluster import KafkaCluster, running
from integration_tests.harness.kafka_container import KafkaContainer, need_kafka
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator

pytestmark = [pytest.mark.kafka, pytest.mark.tier("long"), pytest.mark.timeout(600)]

BROKERS, ALIVE, DEAD = 3, 0, 1
STAYS, DIES = 1, 3
"""A broker that stays, and the one that dies."""
RECORDS = 40
ELSEWHERE, BOTH = "reads-elsewhere", "reads-both"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with running(BROKERS) as made:
        yield made


@pytest.fixture(scope="module")
def other() -> Iterator[KafkaContainer]:
    need_kafka()
    made = KafkaContainer()
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Scene:
    """A flow of two topics. The second one's partitions are on one broker each, on the side that has three."""

    def __init__(self, copying: Copying, cluster: KafkaCluster) -> None:
        self._flow, self._cluster = copying, cluster
        self.topic, self.second = copying.topic, f"{copying.name}.second"
        self.elsewhere, self.both = f"{copying.name}.{ELSEWHERE}", f"{copying.name}.{BOTH}"
        self._written = 0
        on_three = self.second if cluster.bootstrap == copying.source else self.copy(self.second)
        replicas = [[STAYS], [DIES]]
        new = NewTopic(on_three, 2, replica_assignment=replicas, config=clients.FOR_EVER)
        admin = clients.admin(cluster.bootstrap)
        admin.create_topics([new], operation_timeout=clients.TIMEOUT_S)[on_three].result(clients.TIMEOUT_S)
        clients.settle(cluster.bootstrap, on_three, 2)
        if on_three != self.second:
            clients.create_topic(copying.source, self.second, 2)
        copying.file.write(topics=[self.topic, self.second])

    @staticmethod
    def copy(topic: str) -> str:
        """The target topic."""
        return f"{topic}.copy"

    def write(self, *ats: tuple[str, int]) -> None:
        """Write records to these partitions of the source."""
        producer = clients.producer(self._flow.source)
        for number in range(self._written, self._written + RECORDS):
            for topic, partition in ats:
                producer.produce(topic, b"v", b"%d" % number, partition=partition)
        assert producer.flush(clients.TIMEOUT_S) == 0
        self._written += RECORDS

    def read_on(self, in_dead: int, in_others: int) -> None:
        """Both groups have read so many records of each partition."""
        begin(self._flow.source, self.elsewhere, [(self.topic, ALIVE, in_others)])
        begin(self._flow.source, self.both, [(self.second, ALIVE, in_others), (self.second, DEAD, in_dead)])

    def wait_synced(self, worker: Replicator, group: str, topic: str, partitions: int = 1) -> None:
        """Until a consumer of the group reads at the target what it would read at the source, from partition 0 on."""
        here = left(self._flow.source, group, topic, partitions)
        assert here is not None
        wait_until(
            lambda: left(self._flow.target, group, self.copy(topic), partitions) == here,
            f"{group} in {topic}",
            lambda: f"{offsets(self._flow.target, group, self.copy(topic), partitions)}\n{worker.tail()}",
        )

    def at_dead(self) -> int:
        """Where the group stands at the target in the partition of the dead broker."""
        return offsets(self._flow.target, self.both, self.copy(self.second), 2)[DEAD]

    def shown(self) -> dict[int, str]:
        """What `groups` says of the group, by partition of the second topic."""
        _, said = self._flow.said("groups")
        (found,) = (it for it in said["flows"][0]["groups"] if it["group"] == self.both)
        return {row["partition"]: row["verdict"] for row in found["partitions"] if row["topic"] == self.second}


def wait_told(worker: Replicator, why: str, mark: int) -> None:
    """Until the log says so of groups: at first it may say that the broker, which is still taken for a leader, doesn't
    answer."""
    worker.wait_any(lambda event: event["event"] == "groups_not_synced" and why in event["reason"], why, mark)


@pytest.mark.parametrize("side", ["source", "target"])
def test_groups_are_synced_in_other_partitions_while_one_has_no_leader(
    cluster: KafkaCluster, other: KafkaContainer, tmp_path: Path, side: str
) -> None:
    """No transaction is open in the partition when its broker dies: one would hold up the lane at the target."""
    source, target = (cluster, other) if side == "source" else (other, cluster)
    made = {"source_replicas": BROKERS} if side == "source" else {"topic_configs": {"replication_factor": BROKERS}}
    copying = Copying(source, target, tmp_path, partitions=1, groups=EVERY, **made)
    try:
        scene = Scene(copying, cluster)
        scene.write((scene.topic, ALIVE), (scene.second, ALIVE), (scene.second, DEAD))
        scene.read_on(in_dead=10, in_others=10)
        worker = copying.running()
        scene.wait_synced(worker, scene.elsewhere, scene.topic)
        scene.wait_synced(worker, scene.both, scene.second, 2)
        before, mark = scene.at_dead(), worker.mark()
        cluster.kill(DIES)
        scene.write((scene.topic, ALIVE), (scene.second, ALIVE))
        scene.read_on(in_dead=20, in_others=RECORDS + 20)
        dead = f"{scene.second if side == 'source' else scene.copy(scene.second)}[{DEAD}]"
        wait_told(worker, f"{dead} has no leader", mark)
        scene.wait_synced(worker, scene.elsewhere, scene.topic)
        scene.wait_synced(worker, scene.both, scene.second)
        assert scene.shown() == {ALIVE: "in_sync", DEAD: "not_copied"}
        assert scene.at_dead() == before
        assert not worker.seen("groups_synced_again", after=mark)
        mark = worker.mark()
        cluster.restart(DIES)
        worker.wait_event("groups_synced_again", after=mark)
        scene.wait_synced(worker, scene.both, scene.second, 2)
        assert scene.at_dead() > before
        scene.write((scene.topic, ALIVE), (scene.second, ALIVE), (scene.second, DEAD))
        scene.read_on(in_dead=RECORDS + 20, in_others=2 * RECORDS + 20)
        scene.wait_synced(worker, scene.elsewhere, scene.topic)
        scene.wait_synced(worker, scene.both, scene.second, 2)
        assert worker.stop() == 0, worker.tail()
        assert not worker.seen("incident")
        assert_exact(source.bootstrap, scene.second, target.bootstrap, scene.copy(scene.second), 2)
    finally:
        copying.close()
