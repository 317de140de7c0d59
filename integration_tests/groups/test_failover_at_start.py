"""A flow whose process starts while its source is dead takes a failover up at once: what says so stands at the
target."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import failover

TOLD_S_MAX = 10.0
"""3 s, and what a busy machine takes besides; far from limits.connect_timeout_ms."""
CONNECT_MS = 120_000
ONE_TIMEOUT_MS = 6_000
UNREACHABLE = 3


@pytest.fixture(params=["refuses", "silent"])
def nowhere(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address that refuses connections, or takes them and never answers."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        if request.param == "silent":
            made.listen(50)
        yield f"127.0.0.1:{made.getsockname()[1]}"


def without_source(make_copying: MakeCopying, nowhere: str) -> Copying:
    """A flow that has copied, and whose source is gone."""
    copying = make_copying()
    copying.load.plain(100)
    copying.finish(copying.running())
    copying.file.log_in(nowhere)
    copying.file.write(limits={"connect_timeout_ms": CONNECT_MS})
    return copying


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("options", [("--standalone",), ("--shared",)], ids=["alone", "shared"])
def test_one_that_was_failed_over_before(make_copying: MakeCopying, nowhere: str, options: tuple[str, ...]) -> None:
    copying = without_source(make_copying, nowhere)
    assert failover(copying)[1]["generation"] is not None
    worker = copying.run("", *options)
    worker.wait_event("connecting")
    worker.wait_event("failed_over", timeout_s=TOLD_S_MAX)
    worker.wait_event("positions_kept")
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("options", [("--standalone",), ("--shared",)], ids=["alone", "shared"])
def test_one_that_is_failed_over_while_it_waits(
    make_copying: MakeCopying, nowhere: str, options: tuple[str, ...]
) -> None:
    copying = without_source(make_copying, nowhere)
    worker = copying.run("", *options)
    worker.wait_event("connecting")
    worker.wait_event("unreachable", cluster="here", timeout_s=TOLD_S_MAX)
    failover(copying)
    worker.wait_event("failed_over", timeout_s=TOLD_S_MAX)
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("options", [("--standalone",), ("--shared",)], ids=["alone", "shared"])
def test_one_whose_failover_is_undone_says_at_once_that_its_source_is_still_dead(
    make_copying: MakeCopying, nowhere: str, options: tuple[str, ...]
) -> None:
    copying = without_source(make_copying, nowhere)
    assert failover(copying)[1]["generation"] is not None
    worker = copying.run("", *options)
    worker.wait_event("failed_over", timeout_s=TOLD_S_MAX)
    mark = worker.mark()
    assert failover(copying, "--undo")[1]["generation"] is not None
    worker.wait_event("failover_undone", after=mark, timeout_s=TOLD_S_MAX)
    worker.wait_event("unreachable", after=mark, cluster="here", level="error", timeout_s=TOLD_S_MAX)
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long", kafka="long")
def test_one_that_waits_for_its_source_stops_when_it_is_asked_to(make_copying: MakeCopying, nowhere: str) -> None:
    copying = without_source(make_copying, nowhere)
    worker = copying.run()
    worker.wait_event("unreachable", cluster="here", timeout_s=TOLD_S_MAX)
    began_s = time.monotonic()
    worker.stop()
    assert time.monotonic() - began_s < TOLD_S_MAX


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("options", [("--standalone",), ("--shared",)], ids=["alone", "shared"])
def test_one_whose_target_is_dead_ends_after_one_timeout(
    make_copying: MakeCopying, nowhere: str, options: tuple[str, ...]
) -> None:
    """A target that doesn't answer can't say whether the flow was failed over: it isn't asked for that besides."""
    copying = make_copying(limits={"connect_timeout_ms": ONE_TIMEOUT_MS}, via=nowhere)
    worker = copying.run("", *options)
    worker.wait_event("connecting")
    began_s = time.monotonic()
    assert worker.wait_exit() == UNREACHABLE
    assert time.monotonic() - began_s < 1.7 * ONE_TIMEOUT_MS / 1000, worker.tail()
