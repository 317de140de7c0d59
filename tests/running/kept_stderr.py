"""Keeps what tests write to file descriptors 1 and 2 in files that outlive the process, for one that aborts in C code:
librdkafka writes what it asserts there, and pytest's own file is gone with the process.

    EOS_KEEP_STDERR=/tmp/kept PYTHONPATH=. PYTEST_ADDOPTS="-p tests.running.kept_stderr" make test

A file has what its process has written since its last test began; those of processes that end well are removed.
"""

from __future__ import annotations

import atexit
import os
import uuid
from pathlib import Path
from typing import IO

from _pytest import capture

DIRECTORY = "EOS_KEEP_STDERR"


def _named(buffering: int = -1) -> IO[bytes]:
    directory = Path(os.environ[DIRECTORY])
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    atexit.register(lambda: path.unlink(missing_ok=True))
    return path.open("w+b", buffering=buffering)


if DIRECTORY in os.environ:
    # Before pytest makes its own, so -p must load it.
    setattr(capture, "TemporaryFile", _named)  # noqa: B010 - the name is pytest's own, which its types don't show
