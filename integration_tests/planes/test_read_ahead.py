"""How far the source is read ahead while the target doesn't answer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.planes.conftest import MakePlane, make_flow
from replicator.planes.contract import Written

MakePair = Callable[..., tuple[str, str]]
RECORDS, RECORD_BYTES = 400, 100_000
QUEUE_BYTES, FETCH_BYTES = 4 << 20, 1 << 20
LOOKS = 4


@pytest.mark.tier("full", kafka="full")
@pytest.mark.parametrize("engine", ["batches"], indirect=True)
def test_no_more_is_fetched_than_may_be_held_while_acknowledgements_are_late(
    source: BrokerHandle, target: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(1)
    values = [random.Random(number).randbytes(RECORD_BYTES) for number in range(RECORDS)]
    clients.put(clients.producer(source.bootstrap, linger_ms=20), name, *values, key=b"k")
    fetches: list[int] = []
    with Proxy(source.bootstrap) as near, Proxy(target.bootstrap) as far:
        flow = make_flow(near.bootstrap, far.bootstrap, limits={"fetch_queue_bytes_max": QUEUE_BYTES})
        driven = make_plane({name: (1, copy)}, flow=flow)
        driven.seek()
        held = far.rule("Produce", Side.REPLY, Action.HOLD)
        read = driven.read(1)

        def look(written: Written) -> None:
            fetches.append(near.count("Fetch", Side.REPLY))
            if len(fetches) == LOOKS:
                held.release()

        driven.plane.on_stall(look)
        driven.plane.flush()
        assert fetches[-1] == fetches[-2], "it goes on fetching"
        assert fetches[-1] <= QUEUE_BYTES // FETCH_BYTES + 5  # of 40: a few are empty
        driven.read(RECORDS - read)  # and it goes on from there
