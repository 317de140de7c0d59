"""The broker for tests, as a thread and as a process, met by librdkafka as its users do."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Message, Producer

from embedded_broker.testing import BrokerDied, KafkaBroker
from embedded_broker.testing.handle import Mode
from integration_tests.harness import clients

pytestmark = pytest.mark.tier("default")  # brokers in processes

TOPIC = "t"


@pytest.fixture(params=["thread", pytest.param("process", marks=pytest.mark.tier("extended"))])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def broker(mode: Mode) -> Iterator[KafkaBroker]:
    with KafkaBroker(mode=mode) as made:
        yield made


def written(broker: KafkaBroker, *values: bytes) -> list[Message]:
    return clients.put(clients.producer(broker.bootstrap), TOPIC, *values)


def seen(broker: KafkaBroker) -> list[bytes | None]:
    return clients.values(clients.read(broker.bootstrap, TOPIC))


def test_killed_in_the_middle_of_a_transaction_it_goes_on_where_it_was(broker: KafkaBroker) -> None:
    address = broker.bootstrap
    writer = clients.transactional(address, "id")
    writer.begin_transaction()
    clients.put(writer, TOPIC, b"before")
    held = broker.faults.hold("EndTxn")
    commit = threading.Thread(target=writer.commit_transaction, args=(clients.TIMEOUT_S,))
    commit.start()
    held.wait_hit()
    broker.kill()
    assert not broker.alive()
    held_again = broker.faults.hold("EndTxn")  # in force from the start: the client comes back at once
    broker.start()
    assert (broker.bootstrap, broker.alive()) == (address, True)
    held_again.wait_hit()
    assert seen(broker) == [], "an open transaction is visible"
    held_again.release()
    commit.join(clients.TIMEOUT_S)
    assert not commit.is_alive()
    assert seen(broker) == [b"before"]


def test_killed_after_the_commit_and_before_its_answer_the_transaction_stands(broker: KafkaBroker) -> None:
    writer = clients.transactional(broker.bootstrap, "id")
    writer.begin_transaction()
    clients.put(writer, TOPIC, b"a")
    held = broker.faults.hold("EndTxn", at="reply")
    commit = threading.Thread(target=writer.commit_transaction, args=(clients.TIMEOUT_S,))
    commit.start()
    held.wait_hit()
    broker.kill()
    broker.start()
    commit.join(clients.TIMEOUT_S)
    assert not commit.is_alive()
    assert seen(broker) == [b"a"]


def test_a_lost_ack_is_sent_again_and_recognised(broker: KafkaBroker) -> None:
    written(broker, b"first")
    lost = broker.faults.drop("Produce", at="reply")
    assert written(broker, b"second")[0].error() is None
    assert lost.hits == 1
    assert seen(broker) == [b"first", b"second"]


def test_an_error_reaches_the_client_and_what_it_may_retry_it_retries(broker: KafkaBroker) -> None:
    retried = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    written(broker, b"a")
    assert retried.hits == 2
    with broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None):
        reports: list[str | None] = []
        client = clients.producer(broker.bootstrap, enable_idempotence=False)
        client.produce(TOPIC, b"b", on_delivery=lambda error, _: reports.append(error.name() if error else None))
        assert client.flush(clients.TIMEOUT_S) == 0
        assert reports == ["TOPIC_AUTHORIZATION_FAILED"]
    written(broker, b"c")
    assert seen(broker) == [b"a", b"c"]


def test_a_delay_is_felt_by_the_named_client_alone(broker: KafkaBroker) -> None:
    slow = broker.faults.delay("InitProducerId", 60_000, client="slow", times=None)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "slow", "transactional.id": "s"})
    with pytest.raises(KafkaException):
        producer.init_transactions(0.5)
    slow.wait_hit()  # on a busy machine its request comes later than that, but it comes
    clients.transactional(broker.bootstrap, "quick")
    assert slow.hits == 1
    broker.faults.clear()


def test_a_clean_stop_and_a_restart_keep_everything(broker: KafkaBroker) -> None:
    written(broker, b"a")
    broker.stop()
    assert not broker.alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(broker.bootstrap.rpartition(":")[2])))
    broker.start()
    broker.restart()
    written(broker, b"b")
    assert seen(broker) == [b"a", b"b"]
    assert "connected" in broker.log()


def test_a_fault_that_does_not_exist_is_refused_at_once(broker: KafkaBroker) -> None:
    with pytest.raises(ValueError, match="no API 'Nothing'"):
        broker.faults.drop("Nothing")
    with pytest.raises(ValueError, match="no error 'NOTHING'"):
        broker.faults.fail("Fetch", "NOTHING")
    with pytest.raises(TimeoutError, match=r"drop Fetch request: 0 hits"):
        broker.faults.drop("Fetch").wait_hit(0.01)


def test_settings_are_kafkas_and_unknown_ones_are_refused(mode: Mode) -> None:
    with KafkaBroker(mode=mode, settings={"num.partitions": "3"}, fsync="never") as broker:
        written(broker, b"a")
        assert clients.topics(broker.bootstrap)[TOPIC] == 3
    with pytest.raises(ValueError, match=r"no\.such"), KafkaBroker(mode=mode, settings={"no.such": "1"}):
        pass


def test_a_directory_of_ones_own_is_kept_and_another_broker_cannot_have_it(mode: Mode, tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kept", mode=mode) as broker:
        written(broker, b"a")
        with pytest.raises(BrokerDied, match="DataDirInUse"), KafkaBroker(tmp_path / "kept", mode=mode):
            pass
    with KafkaBroker(tmp_path / "kept", mode=mode) as broker:
        assert seen(broker) == [b"a"]
    with KafkaBroker(mode=mode) as broker:
        directory = broker.directory
        assert directory.is_dir()
    assert not directory.exists()


def test_a_thread_that_was_killed_leaves_nothing_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with KafkaBroker() as broker:
        with socket.create_connection(("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))):
            written(broker, b"a")
            broker.kill()
        before, threads = descriptors(), threading.active_count()
        for _ in range(3):
            broker.start()
            broker.kill()
        assert descriptors() <= before
        assert threading.active_count() <= threads
        broker.start()
        assert seen(broker) == [b"a"]


def test_a_process_that_died_by_itself_is_noticed() -> None:
    with KafkaBroker(mode="process") as broker:
        runner = broker._runner
        runner._process.kill()  # type: ignore[union-attr]
        runner._process.wait()  # type: ignore[union-attr]
        assert not broker.alive()
        with pytest.raises(BrokerDied):
            broker.faults.drop("Fetch")
        broker.start()
        written(broker, b"a")


PARENT = """
import os
from embedded_broker.testing import KafkaBroker
broker = KafkaBroker({directory!r}, mode="process")
broker.start()
print(broker._runner._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_process_dies_with_the_one_that_started_it(tmp_path: Path) -> None:
    directory = str(tmp_path / "d")
    ended = subprocess.run(
        [sys.executable, "-c", PARENT.format(directory=directory)], stdout=subprocess.PIPE, check=False
    )
    assert ended.returncode == -9
    with contextlib.suppress(ProcessLookupError):  # it is gone already
        process = os.pidfd_open(int(ended.stdout))
        assert select.select([process], [], [], clients.TIMEOUT_S)[0], "the broker lives on"
        os.close(process)
    with KafkaBroker(directory):
        pass


ALONE = """
import sys
for name in {unwanted!r}:
    sys.modules[name] = None
from embedded_broker.testing import KafkaBroker
assert "kio" not in sys.modules, "loaded before a broker is started"
from confluent_kafka import Producer
for mode in ("thread", "process"):
    with KafkaBroker(mode=mode) as broker:
        producer = Producer({{"bootstrap.servers": broker.bootstrap}})
        producer.produce("t", b"v")
        assert producer.flush(20) == 0
"""


def test_it_needs_no_package_of_the_developers() -> None:
    unwanted = (
        "hypothesis",
        "aiokafka",
        "cryptography",
        "testcontainers",
        "pyspark",
        "pytest_timeout",
        "replicator",
        "cli",
    )
    subprocess.run([sys.executable, "-c", ALONE.format(unwanted=unwanted)], check=True)


def test_a_broker_at_work_loads_none_of_this() -> None:
    code = (
        "import json, sys, embedded_broker.net.server, embedded_broker.api.registry as registry; registry.load_all();"
        "print(json.dumps(list(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = set(json.loads(loaded))
    assert "embedded_broker.api.produce" in names
    assert not names & {
        "pytest",
        "embedded_broker.testing",
        "embedded_broker.testing.faults",
        "embedded_broker.testing.error_answers",
    }
