"""A transaction at the source that is open for long: its partition waits where it begins, nothing else does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.copying import Copying

pytestmark = pytest.mark.tier(kafka="full")

END: dict[str, Callable[[Producer], None]] = {
    "commit": lambda writer: writer.commit_transaction(clients.TIMEOUT_S),
    "abort": lambda writer: writer.abort_transaction(clients.TIMEOUT_S),
}


def hang(copying: Copying, **properties: int) -> Producer:
    """A producer that has written to partition 0 and stands inside its transaction."""
    writer = clients.transactional(copying.source, f"hanging-{copying.name}", **properties)
    writer.begin_transaction()
    clients.put(writer, copying.topic, b"in the open transaction")
    return writer


def write_around(copying: Copying, word: bytes) -> None:
    """A record behind the open transaction, and one beside it."""
    writer = clients.producer(copying.source)
    for partition in range(copying.partitions):
        clients.put(writer, copying.topic, word, partition=partition)


def copied(copying: Copying, partition: int = 0) -> list[bytes | None]:
    """Values on the target."""
    return clients.values(clients.read(copying.target, copying.copy, partition))


def told(copying: Copying) -> list[dict[str, Any]]:
    """What `status` says of each partition."""
    command = [sys.executable, "-m", "cli.main", "status", "-c", str(copying.file.path), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return list(json.loads(shown.stdout)["flows"][0]["partitions"])


@pytest.mark.parametrize("end", ["commit", pytest.param("abort", marks=pytest.mark.tier("full"))])
def test_only_its_partition_waits_until_it_ends(make_copying: MakeCopying, end: str) -> None:
    copying = make_copying(partitions=2)
    write_around(copying, b"before")
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"before")
    began_ms = int(time.time() * 1000)
    hanging = hang(copying)
    write_around(copying, b"behind")
    clients.wait_value(copying.target, copying.copy, 1, b"behind")
    assert worker.stop() == 0, "it waits for the source, not for its own transaction"
    worker = copying.running()
    write_around(copying, b"further behind")
    clients.wait_value(copying.target, copying.copy, 1, b"further behind")
    assert copied(copying) == [b"before"]
    (first, second) = told(copying)
    assert (first["partition"], first["lag_records"], first["held_back_records"]) == (0, 0, 3)
    assert began_ms <= first["held_back_since_ms"] <= began_ms + 60_000
    assert (second["held_back_records"], second["held_back_since_ms"]) == (0, None)
    assert copying.wait_stable()[0] == 1, "the position is where the open transaction begins"
    END[end](hanging)
    clients.wait_value(copying.target, copying.copy, 0, b"further behind")
    assert worker.stop() == 0
    assert not worker.seen("incident")
    assert_exact(copying.source, copying.topic, copying.target, copying.copy, 2)
    assert (b"in the open transaction" in copied(copying)) == (end == "commit")


@pytest.mark.tier("full")
def test_a_transaction_that_the_source_times_out_is_waited_for(make_copying: MakeCopying) -> None:
    """Its producer is gone for good: the source's coordinator aborts it, and the flow goes on by itself."""
    copying = make_copying(partitions=2)
    worker = copying.running()
    abandoned = hang(copying, transaction_timeout_ms=3_000)
    write_around(copying, b"behind")
    clients.wait_value(copying.target, copying.copy, 1, b"behind")
    assert copied(copying) == []
    clients.wait_value(copying.target, copying.copy, 0, b"behind")
    assert worker.stop() == 0
    assert copied(copying) == [b"behind"]
    abandoned.purge()


@pytest.mark.tier("extended", kafka="full")
def test_a_worker_killed_before_an_open_transaction_goes_on_there(make_copying: MakeCopying) -> None:
    copying = make_copying()
    copying.load.mixed(100)
    hanging = hang(copying)
    with copying.writing():
        copying.run("before_end_txn@2=kill").wait_exit()
    worker = copying.running()
    hanging.abort_transaction(clients.TIMEOUT_S)
    copying.load.mixed(100)
    copying.finish(worker)
