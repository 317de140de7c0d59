"""Who is shed when a limit on bytes is reached, and what fits below it."""

from __future__ import annotations

import asyncio

from embedded_broker.net.budget import Budget
from tests.embedded_broker.net.test_limits import Holding
from tests.embedded_broker.simulated import simulated

LIMIT = 96 << 20


def _holders(budget: Budget[Holding], count: int) -> list[Holding]:
    holders = [Holding() for _ in range(count)]
    for each in holders:
        each.budget = budget
    return holders


def test_who_has_just_been_granted_a_reservation_is_not_shed_for_what_others_have_done() -> None:
    async def main() -> None:
        shed: list[int] = []
        budget = Budget[Holding](
            "things", LIMIT, lambda full: None, has_shed=lambda: shed.append(sum(bool(each.shed_for) for each in deaf))
        )
        deaf = _holders(budget, 9)
        (honest,) = _holders(budget, 1)
        waiting = [asyncio.create_task(budget.reserve(each, 24 << 20)) for each in deaf]
        await asyncio.sleep(0)
        assert [each.bytes for each in deaf] == [24 << 20] * 3 + [0] * 6
        async with asyncio.timeout(3.5):
            await budget.reserve(honest, 24 << 20)
        assert shed == [3, 6, 7], "as many as must go in each second"
        assert not honest.shed_for
        await asyncio.gather(*waiting)
        budget.held(honest, 0)

    simulated(main())


def test_what_is_granted_at_once_is_never_refused_as_too_large() -> None:
    async def main() -> None:
        budget = Budget[Holding]("things", LIMIT, lambda full: None)
        (one,) = _holders(budget, 1)
        assert budget.fits(one, LIMIT)
        assert not budget.fits(one, LIMIT + 1)
        assert budget.fits(one, LIMIT + 1, whole=True)
        await budget.reserve(one, LIMIT)
        assert not budget.fits(one, 1)

    simulated(main())


def test_who_reads_an_answer_that_is_freed_as_a_whole_is_not_shed() -> None:
    """Of more than the limit, by a client that takes a twelfth of it in a second; and then no more."""

    async def main() -> None:
        budget = Budget[Holding]("things", LIMIT, lambda full: None)
        one, other = _holders(budget, 2)
        await budget.reserve(one, LIMIT + 1, whole=True)
        waiting = asyncio.create_task(budget.reserve(other, 24 << 20))
        for _ in range(24):
            budget.held(one, LIMIT + 1, read_bytes=LIMIT // 24)
            await asyncio.sleep(0.5)
            assert not one.shed_for
        await asyncio.sleep(2.1)
        assert one.shed_for
        await waiting
        budget.held(other, 0)

    simulated(main())
