"""A wrong password that comes with a reload: the flow waits for the right one, and the process lives."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle, free_port
from integration_tests.harness.copying import Copying
from integration_tests.harness.observed import Observed
from integration_tests.harness.processes import wait_until
from integration_tests.harness.secured import USERS, Secured

RIGHT, WRONG = USERS["admin"], "a-typo"
UNREACHABLE = 3


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """The file that has the password."""
    file = tmp_path / "secret"
    file.write_text(RIGHT)
    return file


def flow(source: BrokerHandle, secured: Secured, secret: Path) -> Copying:
    """A flow whose target asks for a password."""
    login = {
        "bootstrap.servers": secured.addresses.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": f"file:{secret}",
    }
    return Copying(source, secured, secret.parent, via=login)


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("watched", [False, True], ids=["SIGHUP", "watched"])
def test_a_wrong_password_after_a_reload_is_waited_out(
    source: BrokerHandle, secured: Secured, secret: Path, watched: bool
) -> None:
    copying = flow(source, secured, secret)
    address = f"127.0.0.1:{free_port()}"
    copying.file.listen(address)
    seen = Observed(address)
    try:
        worker = copying.run("", *(["--watch-config"] if watched else []))
        worker.wait_event("lane_started")
        copying.load.mixed(100)
        copying.wait_copied()
        for password in (WRONG, RIGHT):
            mark = worker.mark()
            secret.write_text(password)
            if not watched:
                worker.signal(signal.SIGHUP)
            worker.wait_event("config_reloaded", changed=[copying.name], after=mark)
            if password == WRONG:
                told = worker.wait_event("flow_ended", after=mark)
                assert (told["kind"], told["exit_code"]) == ("Unreachable", UNREACHABLE)
                assert "refused the credentials" in told["detail"]
                wait_until(lambda: not seen.ready()[0], "it isn't ready", worker.tail)
                worker.wait_event("connecting", after=worker.mark())
        worker.wait_event("lane_started", after=mark)
        wait_until(lambda: seen.ready()[0], "it is ready again", worker.tail)
        copying.load.mixed(100)
        copying.finish(worker)
        assert not worker.seen("incident")
    finally:
        copying.close()


@pytest.mark.tier("long", kafka="long")
def test_a_wrong_password_at_the_start_ends_the_process(source: BrokerHandle, secured: Secured, secret: Path) -> None:
    copying = flow(source, secured, secret)
    secret.write_text(WRONG)
    try:
        assert copying.run().wait_exit() == UNREACHABLE
    finally:
        copying.close()
