"""A login that has expired and can't be renewed keeps a flow waiting, which is no incident; then it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.guarded import ON_TARGET_TOPIC
from integration_tests.harness.replicator import Event
from integration_tests.harness.secured import Secured, secured_broker

USER, MECHANISM, PASSWORD = "expiring", "SCRAM-SHA-512", "a-secret"
LOGIN_MS = 4_000
"""So long a login holds (connections.max.reauth.ms): the client has to show its password again (KIP-368)."""


@pytest.fixture
def expiring(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker at which logins expire."""
    with secured_broker(kind, tmp_path_factory.mktemp("expiring"), LOGIN_MS) as broker:
        yield broker


def held_up(event: Event) -> bool:
    """Whether the flow says that it can't go on."""
    return event["event"] in ("unreachable", "waiting", "restarted", "discovery_failed")


@pytest.mark.tier("full")
def test_a_flow_waits_while_its_user_is_gone_and_goes_on_when_it_is_back(
    source: BrokerHandle, expiring: Secured, tmp_path: Path
) -> None:
    expiring.add_scram_user(USER, MECHANISM, PASSWORD)
    login = {
        "bootstrap.servers": expiring.addresses.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    copying = Copying(source, expiring, tmp_path, via=login, partitions=2)
    expiring.allow(USER, "GROUP", copying.group, "DESCRIBE", "READ")
    expiring.allow(USER, "TOPIC", copying.copy, *ON_TARGET_TOPIC)
    expiring.allow(USER, "TOPIC", f"__eos.{copying.name}", *ON_TARGET_TOPIC, prefix=True)
    expiring.allow(USER, "TRANSACTIONAL_ID", f"eos.{copying.name}", "DESCRIBE", "WRITE", prefix=True)
    expiring.allow(USER, "BROKER", "kafka-cluster", "DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")
    try:
        worker = copying.running()
        copying.load.mixed(100)
        worker.wait_event("committed")
        expiring.remove_scram_user(USER, MECHANISM)
        mark = worker.mark()
        copying.load.mixed(100)
        worker.wait_any(held_up, "event that says that the flow is held up", after=mark)
        assert worker.runs_on(3 * LOGIN_MS / 1000)
        expiring.add_scram_user(USER, MECHANISM, PASSWORD)
        copying.finish(worker)
        assert worker.seen("incident") == []
    finally:
        copying.close()
