"""Flows with both engines from one cluster of three brokers to another, each partition on all of them and two in sync:
brokers of either side die, leaders move, and workers die at their commits. Nothing is lost, doubled or reordered.

`integration_tests.harness.versions` says which Kafka either side runs.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.harness.copying import Copying
from integration_tests.harness.kafka_cluster import KafkaCluster
from integration_tests.harness.kafka_container import IMAGE, need_kafka
from integration_tests.harness.numbers import led_by
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.versions import SIDES, Side, image, target_transactions

pytestmark = [pytest.mark.kafka, pytest.mark.tier("long"), pytest.mark.timeout(900)]

BROKERS = 3
IN_SYNC = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
POSITIONS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"  # of one partition each


@dataclass(frozen=True)
class Clusters:
    """Both sides."""

    source: KafkaCluster
    target: KafkaCluster

    def of(self, side: Side) -> KafkaCluster:
        """One of them."""
        return self.source if side == "source" else self.target


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    images = {side: image(side, IMAGE) for side in SIDES}
    need_kafka(*images.values())
    found = Clusters(
        KafkaCluster(BROKERS, image=images["source"], settings=IN_SYNC),
        KafkaCluster(BROKERS, image=images["target"], transactions=target_transactions(), settings=IN_SYNC),
    )
    with ExitStack() as closing, ThreadPoolExecutor() as pool:
        for each in (found.source, found.target):
            closing.callback(each.stop)
        list(pool.map(KafkaCluster.start, (found.source, found.target)))
        yield found


@pytest.fixture(params=["records", "batches"])
def copying(request: pytest.FixtureRequest, clusters: Clusters, tmp_path: Path) -> Iterator[Copying]:
    """A flow of each engine; afterwards all that it has made is on three brokers."""
    made = Copying(
        clusters.source,
        clusters.target,
        tmp_path,
        engine=request.param,
        source_replicas=BROKERS,
        topic_configs={"replication_factor": BROKERS},
    )
    yield made
    made.close()
    for side in SIDES:
        clusters.of(side).wait_in_sync()


def goes_on(worker: Replicator) -> None:
    """Wait until it commits again."""
    mark = worker.mark()
    worker.wait_event("committed", after=mark)


@pytest.mark.parametrize("side", SIDES)
def test_each_broker_dies_and_leaders_move_back(clusters: Clusters, copying: Copying, side: Side) -> None:
    """In turn, as in a rolling restart, but without a good-bye. The last one leads nothing, until leaders move back."""
    cluster, topic = clusters.of(side), copying.topic if side == "source" else copying.copy
    worker = copying.running()
    with copying.writing():
        goes_on(worker)
        for broker in range(1, BROKERS + 1):
            cluster.kill(broker)
            goes_on(worker)
            cluster.restart(broker)
            cluster.wait_in_sync()
            assert broker not in led_by(cluster.bootstrap, topic)
        cluster.move_leaders()
        wait_until(lambda: BROKERS in led_by(cluster.bootstrap, topic), "leaders move", worker.tail)
        goes_on(worker)
    copying.finish(worker)


@pytest.mark.parametrize("of", ["copy", "transactions", "positions"])
def test_a_leader_dies_inside_a_transaction(clusters: Clusters, copying: Copying, of: str) -> None:
    copying.load.mixed(300)
    worker = copying.run("before_end_txn@1=stop")
    worker.wait_stopped()
    topic = {"transactions": TRANSACTIONS, "positions": POSITIONS}.get(of, copying.copy)
    clusters.target.kill(broker := min(led_by(clusters.target.bootstrap, topic)))
    worker.resume()
    copying.load.mixed(100)  # the transaction in doubt may have been committed: there must be more to commit
    goes_on(worker)
    clusters.target.restart(broker)
    copying.finish(worker)


@pytest.mark.parametrize("step", ["before_end_txn", "after_end_txn"])
def test_a_worker_dies_at_its_commit_and_a_leader_with_it(clusters: Clusters, copying: Copying, step: str) -> None:
    """The next one is killed there, too, while that broker is away."""
    with copying.writing():
        worker = copying.run(f"{step}@2=kill")
        assert worker.wait_exit() == -signal.SIGKILL, worker.tail()
        clusters.target.kill(broker := min(led_by(clusters.target.bootstrap, copying.copy)))
        worker = copying.run(f"{step}@1=kill")
        assert worker.wait_exit() == -signal.SIGKILL, worker.tail()
        clusters.target.restart(broker)
        worker = copying.running()
        goes_on(worker)
    copying.finish(worker)
