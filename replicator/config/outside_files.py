"""Files beside the flow file that hold a cluster's secrets and certificates: which they are, and what they hold now.

A secret behind `file:` is in the properties that are read. Of what the client library reads itself, a digest stands in
its place: so a cluster whose certificate was renewed is another one than before, as with any other property.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from replicator.config.properties import FILE, PATH_PROPERTIES

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Of a larger one size and time tell."""


def outside_files(raw: Mapping[str, str], resolved: Mapping[str, str], directory: Path) -> tuple[tuple[str, str], ...]:
    """Find the files that a cluster's properties name, each with a digest of what it holds, empty for a secret that was
    read from it. `raw`: as written; relative paths behind `file:` begin in `directory`, others where the process runs.
    """
    found = {
        key: directory / Path(text[len(FILE) :]).expanduser() for key, text in raw.items() if text.startswith(FILE)
    }
    secrets = [(str(path), "") for key, path in sorted(found.items())]
    paths = [Path(resolved[key]) for key in sorted(resolved) if re.search(PATH_PROPERTIES, key) and resolved[key]]
    return (*secrets, *((str(path), _digest(path)) for path in paths))


def _digest(path: Path) -> str:
    try:
        if path.is_dir():
            held = sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in path.iterdir())
            return hashlib.sha256(repr(held).encode()).hexdigest()
        if not path.is_file():
            return ""
        found = path.stat()
        if found.st_size > FILE_BYTES_MAX:
            return f"{found.st_size} {found.st_mtime_ns}"
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""  # the client library says what is wrong with it
