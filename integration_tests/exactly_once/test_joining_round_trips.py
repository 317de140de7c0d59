"""How much a worker asks that joins a flow, until it copies: far from its clusters each round trip counts.

What comes by the clock is left out: heartbeats, polls, and the threads that watch clusters, settings, lag and members.
"""

from __future__ import annotations

from collections import Counter

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.proxy import Proxy

PARTITIONS, LANES = 8, 2
WATCHING = ("watch", "settings", "lag", "members")
ASKED = ("metadata", "list_offsets", "describe_configs", "find_coordinator", "offset_fetch", "api_versions")
REQUESTS_MAX = 165
"""143 to 151 were seen, and 192 when each question was asked by itself; the rest is what librdkafka asks once more."""


@pytest.mark.tier("long")
def test_a_worker_that_joins_asks_little(make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle) -> None:
    copying = make_copying(partitions=PARTITIONS, lanes=LANES)
    with copying.writing(), Proxy(source.bootstrap) as here, Proxy(target.bootstrap) as there:
        copying.run("", "--shared").wait_event("committed", lane=LANES - 1)
        copying.file.log_in(here.bootstrap)
        copying.file.write_to_target({"bootstrap.servers": there.bootstrap})
        copying.run("", "--shared").wait_event("lane_started")
        asked = here.asked() + there.asked()
    counted: Counter[tuple[str, str]] = Counter()
    for (client, api), number in asked.items():
        if client.rpartition(".")[2] not in WATCHING and api in ASKED:
            counted[client.removeprefix(f"eos-replicate.{copying.name}."), api] += number
    assert counted.total() <= REQUESTS_MAX, sorted(counted.items())
