"""The rights that `eos-replicate rights` names are enough: with them, and no others, each command works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.granting import grant, said
from integration_tests.harness.guarded import Side, login
from integration_tests.harness.secured import Secured, secured_broker

MORE = 300
pytestmark = pytest.mark.tier("full")


@pytest.fixture
def secured(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that checks rights, on which nobody but the admin has any yet."""
    with secured_broker(kind, tmp_path_factory.mktemp("secured")) as broker:
        clients.warm_up(broker.bootstrap)
        yield broker


@pytest.mark.parametrize("side", ["source", "target"])
def test_each_command_works_with_them_and_no_others(
    side: Side, secured: Secured, source: BrokerHandle, target: BrokerHandle, tmp_path: Path
) -> None:
    if side == "source":
        copying = Copying(secured, target, tmp_path, partitions=2, source_via=login(secured))
    else:
        copying = Copying(source, secured, tmp_path, partitions=2, via=login(secured))
    try:
        code, _ = copying.asked("plan")
        assert code == 3, "without any right"
        grant(secured, copying.file.path, side)
        code, found = copying.asked("plan")
        assert (code, found["findings"]) == (0, []), found
        copying.load.plain(MORE)
        worker = copying.running("", "--shared")
        copying.wait_positions()
        assert [event["event"] for event in worker.events if event["level"] in ("warning", "error")] == []
        said(copying.file.path, "status", "--check")
        said(copying.file.path, "incident", "list")
        assert worker.stop() == 0, worker.tail()
        copying.file.write(lanes=2)
        clients.grow_topic(copying.source, copying.topic, 3)
        worker = copying.running("", "--shared")
        copying.finish(worker)
    finally:
        copying.close()
