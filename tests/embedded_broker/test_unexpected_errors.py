"""An exception that nobody expected, in any timer, task or handler: told, counted, tried again; the broker goes on.

Each place where the event loop calls the broker has a row; a place without one fails `test_every_place_has_a_row`.
"""

from __future__ import annotations

import ast
import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.api import produce as produce_api
from embedded_broker.config.thresholds import Thresholds
from embedded_broker.coordinators import background
from embedded_broker.coordinators.compaction import Compactor
from embedded_broker.coordinators.expiry import Expiry
from embedded_broker.net import server
from embedded_broker.net.budget import Budget
from embedded_broker.net.connection import Connection
from embedded_broker.state.groups import Group
from embedded_broker.storage import disk_space
from embedded_broker.storage.cleaner import Compaction
from embedded_broker.storage.disk_space import DiskSpace
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.storage.partition import Partition
from embedded_broker.storage.retention import Retention
from tests.embedded_broker.served import Served, batch, fetch, produce, serving

PACKAGE = Path(server.__file__).parents[1]
pytestmark = pytest.mark.tier("default")
QUICK_MS = 20
QUICK = Thresholds(
    groups_sweep_interval_ms=QUICK_MS, transactions_sweep_interval_ms=QUICK_MS, compaction_interval_ms=QUICK_MS
)
CALLS = {"create_task", "ensure_future", "call_later", "call_at", "call_soon", "call_soon_threadsafe", "spawn"}
SCHEDULED = {
    "net/connection.py": "handler; goes on cutting frames",
    "net/deadline.py": "deadlines, which only close their connection",
    "net/server.py": "sweep of idle connections; handler",
    "net/budget.py": "budget",
    "coordinators/background.py": "every timer and task of the coordinators",
    "coordinators/compaction.py": "cut of an internal log",
    "coordinators/deadlines.py": "time-out of a transaction",
    "api/produce.py": "a flush that nobody waits for",
    "metadata/changes.py": "handler that runs on without its connection; see test_changes",
    "storage/disk_space.py": "disk space",
    "storage/flush_scheduler.py": "round, checkpoint",
    "storage/retention.py": "retention",
    "runtime/workers.py": "the end of calls in threads: sets a result",
}


class Failing:
    """A function that raises at its first call or calls, and then does what it did before."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception, times: int = 1) -> None:
        self.calls, self.failed, self.worked = 0, asyncio.Event(), asyncio.Event()
        before, failing = getattr(owner, name), self

        def call(*arguments: Any, **named: Any) -> Any:
            failing.calls += 1
            if failing.calls <= times:
                failing.failed.set()
                raise error
            failing.worked.set()
            return before(*arguments, **named)

        patch.setattr(owner, name, call)


async def _nothing(served: Served) -> None:
    """It happens by itself."""


async def _produced(served: Served) -> None:
    client = await served.client()
    client.send("produce", 9, **produce("t", batch(b"v")))


async def _joined(served: Served) -> None:
    client = await served.client()
    group: dict[str, Any] = {"group_id": "g", "session_timeout": 6_000, "rebalance_timeout": 50, "member_id": ""}
    client.send(
        "join_group", 3, **group, group_instance_id=None, protocol_type="p", protocols=[{"name": "r", "metadata": b""}]
    )
    await client.receive()


async def _full(served: Served) -> None:
    served.broker.disk_space.mark_full(OSError(errno.ENOSPC, "full"))


async def _crowded(served: Served) -> None:
    client = await served.client()
    await client.call("api_versions", 0)
    (held,) = served.server._connections
    served.server.requests.held(held, 1_500)


ROWS: dict[str, tuple[Any, str, Callable[[Served], Awaitable[None]]]] = {
    "groups: sweep": (Expiry, "expired", _joined),
    "groups: compaction of their log": (Compactor, "check", _nothing),
    "groups: time-out of a member": (Group, "expired", _joined),
    "retention": (Retention, "enforce_one", _nothing),
    "compaction": (Compaction, "run_for", _nothing),
    "disk space": (DiskSpace, "check", _full),
    "round": (FlushScheduler, "_flush", _produced),
    "checkpoint": (Partition, "capture", _produced),
    "store a checkpoint": (PartitionLog, "store_checkpoint", _produced),
    "sweep of idle connections": (Connection, "expire", _crowded),
    "budget": (Budget, "_shed", _crowded),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """All intervals are short."""
    for module, name in (
        (background, "RETRY_MS"),
        (disk_space, "RETRY_MS"),
    ):
        monkeypatch.setattr(module, name, QUICK_MS, raising=False)
    monkeypatch.setattr(server, "SWEEP_S_MAX", QUICK_MS / 1000)


async def _serves(served: Served) -> None:
    client = await served.client()
    answer = await client.call("produce", 9, **produce("t", batch(b"after")))
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
    assert (await client.call("fetch", 12, **fetch("t", 0))).responses[0].partitions[0].records


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.usefixtures("quick")
def test_whatever_fails_unexpectedly_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    owner, name, trigger = ROWS[row]

    async def main() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
        settings: dict[str, Any] = {
            "retention_check_interval_ms": QUICK_MS,
            "scan_bytes_max": 0,
            "buffered_bytes_max": 1_000,
            "thresholds": QUICK,
        }
        async with serving(tmp_path, **settings) as served:
            await served.topic("t", cleanup_policy="compact")
            error = ValueError(row)
            failing = Failing(monkeypatch, owner, name, error)
            await trigger(served)
            async with asyncio.timeout(20):
                await failing.failed.wait()
                if trigger is _produced:
                    await _produced(served)
                await failing.worked.wait()
            assert not served.broker.failed.done()
            assert error in told
            if row != "disk space":
                served.broker.disk_space.full = False
            await _serves(served)

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_an_exception_in_a_handler_closes_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
        async with serving(tmp_path) as served:
            await served.topic("t")
            for error in (ValueError("bug"), RecursionError(), MemoryError(), OSError(errno.EMFILE, "no more files")):
                failing = Failing(monkeypatch, produce_api, "_Appends", error)
                client = await served.client()
                client.send("produce", 9, **produce("t", batch(b"v")))
                assert await client.closed()
                assert failing.failed.is_set()
            assert [type(error) for error in told] == [ValueError, RecursionError, MemoryError]
            assert served.broker.errors == 3
            assert not served.broker.failed.done()
            await _serves(served)

    asyncio.run(main())


def test_a_partition_stops_whose_flush_fails_unexpectedly_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with serving(tmp_path) as served:
            await served.topic("stops")
            await served.topic("t")
            failing = Failing(monkeypatch, PartitionLog, "flush", ValueError("bug"))
            client = await served.client()
            client.send("produce", 9, **produce("stops", batch(b"v")))
            assert await client.closed()
            assert failing.failed.is_set()
            stopped = served.broker.topics.partition("stops", 0)
            assert stopped is not None
            assert stopped.stopped is not None
            await _serves(served)

    asyncio.run(main())


def test_the_disk_does_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            Failing(monkeypatch, PartitionLog, "flush", OSError(errno.EIO, "broken"))
            await _produced(served)
            async with asyncio.timeout(10):
                assert isinstance(await served.broker.failed, OSError)

    asyncio.run(main())


def test_every_place_has_a_row() -> None:
    """Whoever gives the event loop something new to call says here what becomes of its exceptions."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        if name.startswith(("testing/", "simulation/")):
            continue
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        if any(isinstance(function, ast.Attribute) and function.attr in CALLS for function in calls):
            found.add(name)
    assert found == set(SCHEDULED)
