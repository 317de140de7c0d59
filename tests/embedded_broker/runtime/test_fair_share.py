"""Whose turn it is: small requests meet the slices of large ones rarely."""

from __future__ import annotations

import asyncio

import pytest

from embedded_broker.runtime.fair_share import REST_ITERATIONS, FairShare


@pytest.mark.parametrize("requests", [1, 7])
def test_however_many_large_requests_there_are_one_slice_is_done_in_several_iterations(requests: int) -> None:
    async def main() -> tuple[int, int]:
        fair, done = FairShare(slice_steps=10), False

        async def large() -> None:
            share = fair.request()
            for _ in range(50):
                await share.spent(10)

        async def count() -> int:
            iterations = 0
            while not done:
                iterations += 1
                await asyncio.sleep(0)
            return iterations

        counting = asyncio.create_task(count())
        await asyncio.gather(*(large() for _ in range(requests)))
        done = True
        return await counting, fair.turns

    iterations, turns = asyncio.run(main())
    assert turns == 50 * requests
    assert iterations >= REST_ITERATIONS * turns
