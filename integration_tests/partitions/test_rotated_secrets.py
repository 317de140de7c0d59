"""A password that is replaced while the flow runs is taken from its file, without a restart of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.guarded import ON_TARGET_TOPIC
from integration_tests.harness.secured import Secured

USER, MECHANISM = "rotator", "SCRAM-SHA-512"
OLD, NEW = "old-secret", "new-secret"


@pytest.mark.tier("full", kafka="full")
def test_a_new_password_is_taken_and_the_old_one_is_no_incident(
    source: BrokerHandle, secured: Secured, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(OLD)
    secured.add_scram_user(USER, MECHANISM, OLD)
    login = {
        "bootstrap.servers": secured.addresses.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": "file:secret",
    }
    copying = Copying(source, secured, tmp_path, via=login, partitions=2)
    secured.allow(USER, "GROUP", copying.group, "DESCRIBE", "READ")
    secured.allow(USER, "TOPIC", copying.copy, *ON_TARGET_TOPIC)
    secured.allow(USER, "TOPIC", f"__eos.{copying.name}", *ON_TARGET_TOPIC, prefix=True)
    secured.allow(USER, "TRANSACTIONAL_ID", f"eos.{copying.name}", "DESCRIBE", "WRITE", prefix=True)
    secured.allow(USER, "BROKER", "kafka-cluster", "DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")
    try:
        worker = copying.run("", "--watch-config")
        worker.wait_event("lane_started")
        copying.load.mixed(100)
        worker.wait_event("committed")
        secured.add_scram_user(USER, MECHANISM, NEW)
        copying.load.mixed(100)
        beside = tmp_path / "new"
        beside.write_text(NEW)
        beside.rename(secret)
        told = worker.wait_event("config_reloaded", changed=[copying.name])
        worker.wait_event("lane_started", after=worker.events.index(told))
        copying.load.mixed(100)
        copying.finish(worker)
        assert not worker.seen("incident")
        assert not worker.seen("flow_ended")
    finally:
        copying.close()
