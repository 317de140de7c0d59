"""The process that `ProcessRunner` starts: runs one broker and takes commands as JSON lines on stdin."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedded_broker.testing.broker_run import BrokerRun
from embedded_broker.testing.runner import Launch

FAILED = 70


def say(event: str, **more: object) -> None:
    """Write one JSON line to the parent."""
    print(json.dumps({"event": event, **more}), flush=True)


async def main() -> None:
    """Serve until the parent sends `stop`, or until stdin is closed: then the parent has ended."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    first = json.loads(await lines.readline())
    try:
        run = await _begin(first["launch"], dict(first["faults"]))
    except ValueError as error:
        say("refused", reason=str(error))
        return
    except Exception as error:  # noqa: BLE001 - the parent raises it
        say("died", reason=repr(error))
        return
    run.failed.add_done_callback(_failed)
    say("done")
    while line := await lines.readline():
        said = json.loads(line)
        if "stop" in said:
            await run.stop()
            say("done")
            return
        try:
            _do(run, said)
        except ValueError as error:
            say("refused", reason=str(error))
        else:
            say("done")
    os._exit(FAILED)


async def _begin(launch: Mapping[str, Any], faults: Mapping[int, Mapping[str, Any]]) -> BrokerRun:
    paths = {name: Path(launch[name]) for name in ("data_dir", "log")}
    run = BrokerRun(Launch(**{**launch, **paths}), lambda number: say("hit", number=number), sys.stderr)
    await run.start(faults)
    return run


def _do(run: BrokerRun, said: Mapping[str, Any]) -> None:
    if "add" in said:
        run.add_fault(said["add"], said["spec"])
    elif "release" in said:
        run.faults.release(said["release"])
    else:
        run.faults.remove(said["remove"])


def _failed(failure: asyncio.Future[BaseException]) -> None:
    say("died", reason=repr(failure.result()))
    os._exit(FAILED)


if __name__ == "__main__":
    asyncio.run(main())
