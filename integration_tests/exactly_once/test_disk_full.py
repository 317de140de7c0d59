"""The target's disk is full: the flow waits within its bounds, and goes on when there is disk space again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.clients import warm_up
from integration_tests.harness.copying import Copying
from integration_tests.harness.disk import Cramped, CrampedEmbedded, CrampedKafka

pytestmark = pytest.mark.tier(kafka="long")
MIB = 1024 * 1024
LIMITS = {
    "fetch_queue_bytes_max": 2 * MIB,
    "produce_queue_bytes_max": 2 * MIB,
    "request_timeout_ms": 2_000,
    "transaction_timeout_ms": 4_000,
}
BEHIND = 50_000  # records that wait meanwhile: some 27 MiB
GROWTH_BYTES_MAX = 16 * MIB  # both queues, and what librdkafka and Python need around them


@pytest.fixture
def cramped(kind: Kind, tmp_path: Path) -> Iterator[Cramped]:
    """A target on a small disk of its own."""
    made: Cramped = CrampedKafka() if kind == "kafka" else CrampedEmbedded(tmp_path / "cramped")
    try:
        made.start()
        warm_up(made.bootstrap)
        yield made
    finally:
        made.stop()


@pytest.fixture
def squeezed(source: BrokerHandle, cramped: Cramped, tmp_path: Path) -> Iterator[Copying]:
    """A flow with small queues to that target."""
    made = Copying(source, cramped, tmp_path, limits=LIMITS)
    yield made
    made.close()


@pytest.mark.tier("full")
@pytest.mark.timeout(400)
def test_a_full_disk_at_the_target_costs_time_and_nothing_else(squeezed: Copying, cramped: Cramped) -> None:
    """Kafka dies of it, the embedded broker refuses writes; nothing piles up in the worker until it is back."""
    worker = squeezed.running()
    squeezed.load.mixed(5_000)
    squeezed.wait_copied()
    before, mark = worker.memory_bytes(), worker.mark()
    cramped.fill_disk()
    squeezed.load.plain(BEHIND)
    worker.wait_any(lambda event: event.get("event") in ("aborted", "restarted"), "reaction to the full disk", mark)
    squeezed.load.plain(1_000)
    grown = worker.memory_bytes() - before
    assert cramped.alive() or not cramped.survives()
    cramped.free_disk()
    if not cramped.alive():
        cramped.restart()
    squeezed.finish(worker)
    assert grown < GROWTH_BYTES_MAX, f"{grown / MIB:.0f} MiB more than before"
