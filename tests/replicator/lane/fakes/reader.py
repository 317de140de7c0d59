"""Reads the records of a simulated cluster to compare them. Implements `contract.RecordReader`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replicator.model.errors import Retriable
from replicator.model.partition import Partition, Span
from replicator.planes.contract import RecordIdentity, WholeRecord
from tests.replicator.lane.fakes.cluster import FakeCluster


class FakeReader:
    """A record `key=value` has that key; any other one has none."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.asked: list[list[Span]] = []  # the spans of each reading

    def identities(self, at: Partition, spans: Sequence[Span]) -> Iterator[Sequence[RecordIdentity]]:
        """One record at a time."""
        self._cluster.fault(f"{self._cluster.name}.identities")
        self.asked.append(list(spans))
        log = self._cluster.log(at)
        for first, end in spans:
            if first < log.start or log.stable < end:
                raise Retriable(f"{at}: {first} to {end} can't be read")
            for offset, entry in log.committed():
                if first <= offset < end:
                    key, equals, _ = entry.value.partition("=")
                    found = entry.value.encode()
                    yield [RecordIdentity(offset, found, key.encode() if equals else None, len(found))]

    def record_now(self, at: Partition, offset: int) -> WholeRecord | None:
        """One record."""
        self._cluster.fault(f"{self._cluster.name}.record")
        found = (entry for here, entry in self._cluster.log(at).committed() if here == offset)
        return next((WholeRecord(b"key", entry.value.encode(), 7, (("h", b"1"),)) for entry in found), None)

    def close(self) -> None:
        """Nothing is open."""
