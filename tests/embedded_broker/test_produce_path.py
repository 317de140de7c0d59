"""The Produce path in docs/architecture.md is the one that a batch takes."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from tests.embedded_broker.served import batch, produce, serving

TEXT = (Path(__file__).parents[2] / "docs/architecture.md").read_text()
SECTION = TEXT.partition("## A batch, from the socket to its acknowledgement\n")[2].partition("\n## ")[0]
PACKAGE, RECORDS = "embedded_broker.", "kafka_records."
STEPS_MAX, LOG_THREAD = 12, "log"


def _modules(text: str) -> list[str]:
    names = [path.replace("/", ".") for path in re.findall(r"`([a-z_/]+)\.py`", text)]
    return [name if name.startswith(RECORDS) else PACKAGE + name for name in names]


def test_the_documented_path_is_the_one_taken(tmp_path: Path) -> None:
    steps, _, beside = SECTION.partition("\nBeside the path")
    visited = set[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        # The log's own thread writes down whenever it gets round to it that a client has connected.
        if event == "call" and threading.current_thread().name != LOG_THREAD:
            visited.add(frame.f_globals.get("__name__", ""))

    async def main() -> None:
        async with serving(tmp_path, retention_check_interval_ms=3_600_000) as served:
            await served.topic("t")
            client = await served.client()
            await client.call("produce", 9, **produce("t", batch(b"a")))  # what is loaded once is loaded then
            visited.clear()
            await client.call("produce", 9, **produce("t", batch(b"b")))
            entered = {name for name in visited if name.startswith((PACKAGE, RECORDS))}
            path = _modules(steps)
            assert len(set(path)) <= STEPS_MAX
            assert set(path) <= entered
            assert entered <= {*path, *_modules(beside)}
            assert all(find_spec(name) for name in _modules(beside))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        asyncio.run(main())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
