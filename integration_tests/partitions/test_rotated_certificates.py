"""Certificates that are replaced while the flow runs are taken from their files, without a restart of the process.

With ones that expire, or whose authority isn't trusted any more, before the new ones are there, the flow waits.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.guarded import ON_TARGET_TOPIC
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.secured import Secured, secured_broker
from tests.embedded_broker.security.certificates import CLIENT_PRINCIPAL

pytestmark = pytest.mark.tier("long", kafka="long")

USER = CLIENT_PRINCIPAL.removeprefix("User:")
LIFE = timedelta(seconds=45)
"""Of a certificate that expires: long enough to begin with it."""

WAITS_S = 5.0


@pytest.fixture
def rotating(kind: Kind, tmp_path: Path) -> Iterator[Secured]:
    """A target of this test alone, which is started again with other certificates."""
    directory = tmp_path / "secured"
    directory.mkdir()
    with secured_broker(kind, directory) as broker:
        yield broker


class Rotated:
    """A flow whose target asks for a certificate; its files are its own, as on another machine."""

    def __init__(self, source: BrokerHandle, target: Secured, directory: Path) -> None:
        self.target, self._directory = target, directory
        self._files = {name: directory / f"flow-{name}" for name in ("ca.pem", "client.pem", "client.key")}
        self.put()
        login = {
            "bootstrap.servers": target.addresses.certificates,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self._files["ca.pem"]),
            "ssl.certificate.location": str(self._files["client.pem"]),
            "ssl.key.location": str(self._files["client.key"]),
        }
        self.copying = Copying(source, target, directory, via=login, partitions=2)
        name = self.copying.name
        target.allow(USER, "GROUP", self.copying.group, "DESCRIBE", "READ", prefix=True)
        target.allow(USER, "TOPIC", self.copying.copy, *ON_TARGET_TOPIC)
        target.allow(USER, "TOPIC", f"__eos.{name}", *ON_TARGET_TOPIC, prefix=True)
        target.allow(USER, "TRANSACTIONAL_ID", f"eos.{name}", "DESCRIBE", "WRITE", prefix=True)
        target.allow(USER, "BROKER", "kafka-cluster", "DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")

    def put(self) -> None:
        """Put what the target trusts now into the flow's files, one after the other, as a tool does that renews
        them."""
        now = self.target.authority.certificate, self.target.client_pair.certificate, self.target.client_pair.key
        for file, new in zip(self._files.values(), now, strict=True):
            beside = file.with_suffix(".new")
            shutil.copy(new, beside)
            beside.rename(file)

    def copies(self, *options: str) -> Replicator:
        """Start a process that has copied some records."""
        worker = self.copying.run("", *options)
        worker.wait_event("lane_started")
        self.copying.load.mixed(100)
        worker.wait_event("committed")
        return worker

    def waits(self, worker: Replicator, mark: int) -> None:
        """The target, which runs again since `mark`, is told to be away, and stays so while nothing is changed."""
        self.copying.load.mixed(100)
        worker.wait_event("unreachable", after=mark, cluster="there")
        time.sleep(WAITS_S)
        assert not worker.seen("recovered", after=mark, cluster="there"), worker.tail()

    def finish(self, worker: Replicator) -> None:
        """All is copied, exactly, by the same process, and nothing was an incident."""
        self.copying.finish(worker)
        assert not worker.seen("incident"), worker.tail()
        assert len(worker.seen("started")) == 1, worker.tail()


@pytest.fixture
def rotated(source: BrokerHandle, rotating: Secured, tmp_path: Path) -> Iterator[Rotated]:
    made = Rotated(source, rotating, tmp_path)
    yield made
    made.copying.close()


@pytest.mark.parametrize("how", ["watch", "signal"])
def test_renewed_certificates_are_taken_while_the_old_ones_hold(rotated: Rotated, how: str) -> None:
    worker = rotated.copies(*["--watch-config"] if how == "watch" else [])
    mark = worker.mark()
    rotated.target.client_pair = rotated.target.authority.sign("renewed")
    rotated.put()
    if how == "signal":
        worker.signal(signal.SIGHUP)
    told = worker.wait_event("config_reloaded", changed=[rotated.copying.name])
    worker.wait_event("lane_started", after=worker.events.index(told))
    rotated.copying.load.mixed(100)
    rotated.finish(worker)
    assert not worker.seen("flow_ended")
    assert not worker.seen("unreachable", after=mark, cluster="there")


@pytest.mark.parametrize("how", ["watch", "signal"])
def test_an_authority_that_is_no_longer_trusted_makes_the_flow_wait(rotated: Rotated, how: str) -> None:
    """Neither side trusts the other until the flow's files are replaced."""
    worker = rotated.copies(*["--watch-config"] if how == "watch" else [])
    mark = worker.mark()
    rotated.target.restart(other_authority=True)
    rotated.waits(worker, mark)
    rotated.put()
    if how == "signal":
        worker.signal(signal.SIGHUP)
    worker.wait_event("config_reloaded", changed=[rotated.copying.name])
    worker.wait_event("recovered", after=mark, cluster="there")
    rotated.finish(worker)


def test_a_certificate_that_expires_makes_the_flow_wait(rotated: Rotated) -> None:
    began_s = time.monotonic()
    rotated.target.client_pair = rotated.target.authority.sign("short", life=LIFE)
    rotated.put()
    worker = rotated.copies("--watch-config")
    assert time.monotonic() - began_s < LIFE.total_seconds(), "the flow has begun too late"
    time.sleep(began_s + LIFE.total_seconds() + 1 - time.monotonic())
    mark = worker.mark()
    rotated.target.restart()  # connections that are open go on
    rotated.waits(worker, mark)
    rotated.target.client_pair = rotated.target.authority.sign("renewed")
    rotated.put()
    worker.wait_event("config_reloaded", changed=[rotated.copying.name])
    worker.wait_event("recovered", after=mark, cluster="there")
    rotated.finish(worker)
