"""The process that `ProcessRunner` starts: one broker, told what to do line by line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedded_broker.testing.life import Life
from embedded_broker.testing.runner import Launch

FAILED = 70


def say(event: str, **more: object) -> None:
    """One line to the parent."""
    print(json.dumps({"event": event, **more}), flush=True)


async def main() -> None:
    """Serve until told to stop, or until the parent is gone: then there is nobody to finish anything for."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    first = json.loads(await lines.readline())
    try:
        life = await _begin(first["launch"], dict(first["faults"]))
    except ValueError as error:
        say("refused", reason=str(error))
        return
    except Exception as error:  # noqa: BLE001 - the parent raises it
        say("died", reason=repr(error))
        return
    life.failed.add_done_callback(_failed)
    say("done")
    while line := await lines.readline():
        said = json.loads(line)
        if "stop" in said:
            await life.stop()
            say("done")
            return
        try:
            _do(life, said)
        except ValueError as error:
            say("refused", reason=str(error))
        else:
            say("done")
    os._exit(FAILED)


async def _begin(launch: Mapping[str, Any], faults: Mapping[int, Mapping[str, Any]]) -> Life:
    paths = {name: Path(launch[name]) for name in ("data_dir", "log")}
    life = Life(Launch(**{**launch, **paths}), lambda number: say("hit", number=number), sys.stderr)
    await life.start(faults)
    return life


def _do(life: Life, said: Mapping[str, Any]) -> None:
    if "add" in said:
        life.add_fault(said["add"], said["spec"])
    elif "release" in said:
        life.faults.release(said["release"])
    else:
        life.faults.remove(said["remove"])


def _failed(failure: asyncio.Future[BaseException]) -> None:
    say("died", reason=repr(failure.result()))
    os._exit(FAILED)


if __name__ == "__main__":
    asyncio.run(main())
