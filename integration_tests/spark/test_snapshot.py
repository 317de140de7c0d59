"""What a reconciliation begins from: everything that knows of a partition, and not only the source's listing."""

from __future__ import annotations

from pathlib import Path

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from replicator import config
from replicator.model import names
from replicator.proof import snapshot
from replicator.proof.snapshot import Snapshot, Window


def test_what_only_some_know_of_is_named(source: BrokerHandle, target: BrokerHandle, tmp_path: Path) -> None:
    copying = Copying(source, target, tmp_path)
    try:
        copying.file.write(topics=[f"^{copying.name}\\..*"])
        other, last = f"{copying.name}.other", f"{copying.name}.last"
        for topic in (other, last):
            clients.create_topic(copying.source, topic)
            clients.put(clients.producer(copying.source), topic, b"a", b"b")
        copying.load.mixed(50)
        worker = copying.running()
        for topic in (other, last):
            clients.wait_value(copying.target, f"{topic}.copy", 0, b"b")
        copying.finish(worker)
        flow = config.load(copying.file.path).flows[copying.file.flow]

        def taken() -> Snapshot:
            return snapshot.take(flow, (), Window(), connect_timeout_ms=30_000)

        def unclear(found: Snapshot) -> set[tuple[str, str, int]]:
            return {(it.name, str(it.topic), it.partition or 0) for it in found.not_compared}

        before = taken()
        assert not before.not_compared
        clients.delete_topic(copying.source, other)
        clients.grow_topic(copying.target, f"{last}.copy", 3)
        clients.put(clients.producer(copying.target), f"{last}.copy", b"foreign", partition=2)
        found = taken()
        assert unclear(found) == {("source_topic_deleted", other, 0), ("target_partition_unknown", last, 2)}
        assert len(found.pairs) == len(before.pairs) - 1
        clients.delete_topic(copying.target, f"{last}.copy")
        assert ("target_topic_deleted", last, 0) in unclear(taken())
        clients.delete_topic(copying.target, names.claims_topic(flow.name))
        found = taken()
        assert unclear(found) == {("source_topic_deleted", other, 0), ("claims_topic_lost", last, 0)}
        assert not found.waiting
    finally:
        copying.close()
