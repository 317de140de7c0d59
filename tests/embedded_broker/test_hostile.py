"""The attacks of the soak do what they say: the broker answers what is costly, and refuses what it must."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.embedded_broker.hostile import ATTACKS, prepare
from tests.embedded_broker.watched import WatchedBroker


@pytest.mark.tier("long")
def test_each_attack_does_what_it_is_about(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await asyncio.to_thread(WatchedBroker, tmp_path, subprocess.DEVNULL)
        try:
            await prepare(broker.port)
            did = {attack.__name__: await attack(f"127.0.0.1:{broker.port}") for attack in ATTACKS}
            least = {attack.__name__: count for attack, count in ATTACKS.items()}
            assert {name: count for name, count in did.items() if count < least[name]} == {}
        finally:
            await asyncio.to_thread(broker.stop)

    asyncio.run(main())
