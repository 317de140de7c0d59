"""A whole cluster goes away and comes back: told once, not once for each partition, and before any lane notices."""

from __future__ import annotations

import signal
import time
from datetime import datetime, timedelta

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.proxy import Proxy
from integration_tests.harness.replicator import Event
from replicator.flow.cluster_watch import LEADERS_S

PARTITIONS = 6
AWAY_S = 15.0
CONNECTIONS_PER_S_MAX = 6.0
"""Of one client to a cluster that doesn't answer, which it has two addresses of: the one that it was given, and the
broker behind it."""
TOLD_S_MAX = 25.0
"""10 s, and what a busy machine takes besides."""


@pytest.mark.tier("full")
@pytest.mark.parametrize("frozen", [False, True], ids=["dead", "frozen"])
@pytest.mark.parametrize("cluster", ["here", "there"])
def test_it_is_told_once_and_once_when_it_is_back(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, cluster: str, *, frozen: bool
) -> None:
    copying = make_copying(partitions=PARTITIONS)
    handle = {"here": source, "there": target}[cluster]
    copying.load.plain(200)
    worker = copying.running()
    copying.wait_positions()
    if cluster == "there":
        copying.load.plain(200)
    (handle.suspend if frozen else handle.kill)()
    worker.wait_event("unreachable", cluster=cluster)
    noticed = ("aborted", "restarted", "discovery_failed")
    worker.wait_any(lambda event: event["event"] in noticed, "word of a lane or of discovery")
    (handle.resume if frozen else handle.restart)()
    recovered = worker.wait_event("recovered", cluster=cluster)
    copying.finish(worker)
    assert len(worker.seen("unreachable")) == len(worker.seen("recovered")) == 1, worker.tail()
    # A cluster that answers again may have no leaders yet. Partitions are told that still wait for theirs after that.
    settled = _at(recovered) + timedelta(seconds=LEADERS_S)
    assert [event for event in worker.seen("waiting") if _at(event) < settled] == [], worker.tail()


def _at(event: Event) -> datetime:
    return datetime.fromisoformat(event["timestamp"])


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("shared", [False, True], ids=["standalone", "shared"])
def test_it_is_told_that_it_is_back_after_the_flow_was_started_again_meanwhile(
    make_copying: MakeCopying, source: BrokerHandle, *, shared: bool
) -> None:
    """By its process, since its file has changed while the cluster was away."""
    copying = make_copying()
    copying.load.plain(200)
    worker = copying.running("", "--shared" if shared else "--standalone")
    copying.wait_positions()
    source.kill()
    worker.wait_event("unreachable", cluster="here")
    copying.file.write(commit={"linger_ms": 7})
    mark = worker.mark()
    worker.signal(signal.SIGHUP)
    worker.wait_event("config_reloaded", changed=[copying.name])
    worker.wait_event("connecting", after=mark)
    source.restart()
    worker.wait_event("recovered", cluster="here")
    copying.finish(worker)
    assert len(worker.seen("recovered")) == 1, worker.tail()


@pytest.mark.tier("long")
@pytest.mark.parametrize("engine", ["records", "batches"])
def test_a_frozen_source_is_told_within_seconds_and_the_lane_stops_when_it_is_asked_to(
    make_copying: MakeCopying, source: BrokerHandle, engine: str
) -> None:
    copying = make_copying(engine=engine)
    copying.load.plain(200)
    worker = copying.running()
    copying.wait_positions()
    mark, began_s = worker.mark(), time.monotonic()
    source.suspend()
    try:
        worker.wait_event("unreachable", cluster="here", after=mark)
        assert time.monotonic() - began_s < TOLD_S_MAX
        assert worker.stop() == 0, worker.tail()
        assert time.monotonic() - began_s < 2 * TOLD_S_MAX
    finally:
        source.resume()
    copying.finish(copying.running())
    copying.assert_exact()


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("engine", ["records", "batches"])
def test_a_source_that_is_away_is_connected_to_a_few_times_a_second_by_each_client(
    make_copying: MakeCopying, source: BrokerHandle, engine: str
) -> None:
    """With the product's own pauses, the harness has others; by what accepts connections and ends them, as a load
    balancer does, which is counted here."""
    with Proxy(source.bootstrap) as proxy:
        via = {"bootstrap.servers": proxy.bootstrap, "reconnect.backoff.max.ms": "1000"}
        copying = make_copying(source_via=via, engine=engine)
        copying.load.plain(200)
        worker = copying.running()
        copying.wait_positions()
        clients = {client for client, _ in proxy.asked()}
        source.kill()
        worker.wait_event("unreachable", cluster="here")
        before, began_s = proxy.accepted(), time.monotonic()
        time.sleep(AWAY_S)
        per_s = (proxy.accepted() - before) / (time.monotonic() - began_s)
        source.restart()
        copying.finish(worker)
    print(f"{per_s:.1f} connections a second of {len(clients)} clients")
    assert 0 < per_s <= CONNECTIONS_PER_S_MAX * len(clients), worker.tail()
