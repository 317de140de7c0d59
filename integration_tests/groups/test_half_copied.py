"""Transactions of the source that are half copied when it dies are named by the failover, and no others."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import PARTITIONS, Copying
from integration_tests.harness.failing_over import command, failover
from integration_tests.harness.guarded import USER, guard, login
from integration_tests.harness.processes import wait_until
from integration_tests.harness.secured import Secured
from integration_tests.harness.source_writers import Writers, matched, read_all
from integration_tests.harness.two_topics import TwoTopics, assert_told
from replicator.model.partition import Partition

pytestmark = pytest.mark.tier("long", kafka="long")


def wait_looked(copying: Copying) -> None:
    """Until a look was taken that has begun after now."""
    now_ms = time.time_ns() // 1_000_000

    def seen_ms() -> int:
        rows = failover(copying, "--rehearse")[1]["transactions_seen"]
        return int(rows[0]["looked_ms"] or 0) if rows else 0

    wait_until(lambda: seen_ms() > now_ms, "a look at the source's transactions", lambda: str(seen_ms()))


def test_without_the_right_it_is_said_and_with_it_looks_begin(
    secured: Secured, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    copying = Copying(secured, target, tmp_path, source_via=login(secured), partitions=1, groups=EVERY)
    with closing(copying):
        guarded = guard(secured, copying, "source")
        clients.transactional(copying.source, unique("any"))  # so that there is a log
        worker = guarded.two.running(10)
        told = worker.wait_event("source_transactions_unknown")
        assert_told({**told, "detail": told["reason"]}, "__transaction_state", guarded.cluster)
        rows: list[dict[str, Any]] = []

        def noted() -> bool:
            rows[:] = failover(copying, "--rehearse")[1]["transactions_seen"]
            return bool(rows)

        wait_until(noted, "it is noted", lambda: str(rows))
        assert rows[0]["looked_ms"] is None
        assert "Describe on topic '__transaction_state'" in rows[0]["problem"]
        secured.allow(USER, "TOPIC", "__transaction_state", "DESCRIBE", "READ")
        worker.wait_event("source_transactions_known_again")
        wait_looked(copying)


def test_torn_transactions_are_named_after_the_source_was_killed_under_load(
    make_copying: MakeCopying, source: BrokerHandle, unique: Callable[[str], str]
) -> None:
    copying = make_copying(groups=EVERY)
    flow = TwoTopics(copying)
    worker = copying.running()
    places = [*(Partition(flow.first, number) for number in range(PARTITIONS)), Partition(flow.second, 0)]
    writers = Writers(flow.source, places, [unique("writer-0"), unique("writer-1")], seed=1)
    writers.start()
    wait_until(lambda: len(writers.all) > 20, "transactions are written", lambda: str(len(writers.all)))
    command(copying, "pause", "--flow", copying.name, "--topics", flow.second)
    time.sleep(3)  # what is under way of it is committed
    wait_looked(copying)
    held = len(writers.all)
    wait_until(lambda: len(writers.all) > held + 40, "more are written", lambda: str(len(writers.all)))
    writers.stop()
    known = list(writers.all)
    wait_looked(copying)
    for number in range(PARTITIONS):
        flow.wait_position(flow.first, clients.stable_end(flow.source, flow.first, number), number)
    writers.start()
    wait_until(lambda: len(writers.all) > len(known) + 20, "and more", lambda: str(len(writers.all)))
    writers.dies()
    source.kill()
    worker.kill()
    copying.file.write(limits={"connect_timeout_ms": 2_000})
    code, verdict = failover(copying)
    source.restart()
    writers.stop()
    positions = {
        Partition(row["source_topic"], row["partition"]): row["position"]
        for row in verdict["partitions"]
    }  # fmt: skip
    records = read_all(flow.source, places)
    writers.find(records)
    certain = {matched(row, writers.all).number for row in verdict["transactions"] if row["half_copied"]}
    named = {matched(row, writers.all).number for row in verdict["transactions"]}
    truth = {it.number for it in writers.all if it.torn(positions)}
    must = truth & {it.number for it in known[held:]}
    print(f"{len(writers.all)} transactions, {len(truth)} torn, {len(certain)} named, {len(named - certain)} unclear")
    assert len(must) > 5
    assert must <= certain, "none that ended before the last look is missed"
    assert certain <= truth, "none is invented"
    assert truth & {it.number for it in known} <= named
    assert (code, verdict["transactions_half_copied"], verdict["complete"]) == (1, len(certain), False)
    for row in verdict["transactions"]:
        it = matched(row, writers.all)
        for part in row["partitions"]:
            at = Partition(part["source_topic"], part["partition"])
            offsets = it.at.get(at, [])
            first, end, position = part["first_offset_at_least"], part["end_offset_at_most"], part["position"]
            assert position == positions[at]
            assert all((first or 0) <= offset < (end or 2**62) for offset in offsets)
            assert part["copied"] is None or all((offset < position) == part["copied"] for offset in offsets)
    assert failover(copying, "--show")[1]["transactions"] == verdict["transactions"]
