"""The log of a flow at 100 records a second is at most 1.5 MB a day, by what a process really writes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.background import repeated
from integration_tests.harness.processes import wait_until
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("long", kafka="long")

DAY_S, DAY_BYTES_MAX = 86_400, 1_500_000
RECORDS, EVERY_S = 10, 0.1
SUMMARIES = 2
STOP_S = 60.0


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_day_of_a_flow_at_100_records_a_second_fits_into_one_and_a_half_megabytes(
    make_copying: MakeCopying, log_format: str
) -> None:
    """All lines at the default level: those of the start once, those that follow as often as a day has the time."""
    copying = make_copying()
    log = copying.file.path.with_suffix(".log")
    command = [sys.executable, "-m", "cli.main", "run", "-c", str(copying.file.path), "--log-format", log_format]
    producer = clients.producer(copying.source)

    def write() -> None:
        clients.put(producer, copying.topic, *[b"some value"] * RECORDS, partition=0)

    def summaries() -> int:
        return log.read_text().count("summary")

    with log.open("w") as file, subprocess.Popen(command, stderr=file, env=users_packages()) as running:
        try:
            wait_until(lambda: "lane_started" in log.read_text(), "lane_started", log.read_text)
            with repeated(write, EVERY_S):
                wait_until(lambda: summaries() > 0, "a summary", log.read_text)
                start_bytes, began_s = log.stat().st_size, time.monotonic()
                wait_until(lambda: summaries() > SUMMARIES, "summaries", log.read_text)
                later_bytes, took_s = log.stat().st_size - start_bytes, time.monotonic() - began_s
            running.terminate()
            assert running.wait(STOP_S) == 0, log.read_text()
        finally:
            running.kill()
    of_a_day = start_bytes + later_bytes * DAY_S / took_s
    print(f"{of_a_day:.0f} bytes a day: {start_bytes} at the start, {later_bytes} in {took_s:.1f} s")
    assert of_a_day <= DAY_BYTES_MAX, log.read_text()
