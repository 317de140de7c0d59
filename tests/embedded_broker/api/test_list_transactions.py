"""ListTransactions: its pattern takes time in proportion, and is tried on ids only that the client may describe."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state.patterns import NamePattern
from tests.embedded_broker.served import Client, serving

SLOW = "(a+)+b"
IDS = [f"{'a' * 60}-{number}" for number in range(200)]


async def _listed(client: Client, pattern: str | None) -> Any:
    filters = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
    return await client.call("list_transactions", 2, transactional_id_pattern=pattern, **filters)


async def _begin(client: Client, *names: str) -> None:
    for name in names:
        fields = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        assert (await client.call("init_producer_id", 4, **fields)).error_code is ErrorCode.none


@pytest.mark.timeout(60)
def test_a_pattern_that_backtracks_stops_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, fsync="never") as served:
            client = await served.client()
            await _begin(client, *IDS[:3], "other")
            assert (await _listed(client, SLOW)).transaction_states == ()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("pattern", "found"),
    [(None, {"ab", "abc", "ä"}), ("", {"ab", "abc", "ä"}), ("ab", {"ab"}), ("a.*", {"ab", "abc"}), (".", {"ä"})],
)
def test_a_pattern_matches_whole_ids(tmp_path: Path, pattern: str | None, found: set[str]) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            await _begin(client, "ab", "abc", "ä")
            answer = await _listed(client, pattern)
            assert {each.transactional_id for each in answer.transaction_states} == found
            assert (await _listed(client, "(")).error_code is ErrorCode.invalid_regular_expression
            assert (await _listed(client, r"(a)\1")).error_code is ErrorCode.invalid_regular_expression

    asyncio.run(main())


def test_others_have_their_turn_between_ids(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            await _begin(client, *IDS)
            before = served.broker.fair_share.turns
            await _listed(client, "(a|b)*a(a|b){30}.*")
            assert served.broker.fair_share.turns - before > 2

    asyncio.run(main())


def test_a_client_without_rights_has_no_pattern_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def matches(self: NamePattern, name: str) -> bool:
        tried.append(name)
        return True

    monkeypatch.setattr(NamePattern, "matches", matches)

    async def main() -> None:
        async with serving(tmp_path, authorizer=True) as served:
            await served.broker.transactions.init_producer_id("mine", 60_000, None)
            assert (await _listed(await served.client(), ".*")).transaction_states == ()
            assert not tried

    asyncio.run(main())
