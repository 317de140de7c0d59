"""What a signed report says of its files: their names, sizes and SHA-256, when it was made, and by whose key. Pure.

Invariants
- The bytes that are signed are those of `manifest.json` as they stand; nothing of it is encoded anew to check it.
- A file of the directory that the manifest doesn't name counts as much as one that is missing or altered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KIND, VERSION = "eos-replicate evidence", 1
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
MADE_MS_END = 253_402_300_800_000
"""The year 10000, which no calendar of Python has."""
OWN = frozenset({MANIFEST, SIGNATURE})


class BadManifest(ValueError):
    """It isn't one, or one of a newer version."""


@dataclass(frozen=True, slots=True)
class SignedFile:
    """One file of the directory: its size in bytes, and its SHA-256 in hexadecimal digits."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`files` by name. `command` made the report, of `flow`, at `made_ms`, in version `tool_version`. `public_key`: the
    signer's, 32 bytes in hexadecimal digits."""

    command: str
    flow: str
    made_ms: int
    tool_version: str
    public_key: str
    files: Mapping[str, SignedFile]

    def encode(self) -> bytes:
        """Return what is written, and signed."""
        content = {
            "kind": KIND,
            "version": VERSION,
            "command": self.command,
            "flow": self.flow,
            "made_ms": self.made_ms,
            "tool_version": self.tool_version,
            "public_key": self.public_key,
            "files": {name: {"bytes": it.size, "sha256": it.sha256} for name, it in sorted(self.files.items())},
        }
        return (json.dumps(content, indent=2) + "\n").encode()


def decode(content: bytes) -> Manifest:
    """Decode the manifest that `encode` has written. Raises BadManifest."""
    try:
        body: Any = json.loads(content)
        kind, version = body["kind"], body["version"]
        if (kind, version) != (KIND, VERSION):
            raise BadManifest(f"it is of kind {kind!r} and version {version!r}, not {KIND!r} and {VERSION}")
        made_ms = int(body["made_ms"])
        if not 0 <= made_ms < MADE_MS_END:
            raise BadManifest(f"it was made at {made_ms}, which is no time")
        return Manifest(
            command=str(body["command"]),
            flow=str(body["flow"]),
            made_ms=made_ms,
            tool_version=str(body["tool_version"]),
            public_key=str(body["public_key"]),
            files={str(name): SignedFile(int(it["bytes"]), str(it["sha256"])) for name, it in body["files"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise error if isinstance(error, BadManifest) else BadManifest(f"it can't be read: {error!r}") from error


def compare(named: Mapping[str, SignedFile], found: Mapping[str, SignedFile]) -> list[str]:
    """Say what of a directory isn't as its manifest says: of the files that are named, and of those that are found."""
    said = []
    for name in sorted(named.keys() | found.keys()):
        was, now = named.get(name), found.get(name)
        if now is None:
            said.append(f"{name} is missing")
        elif was is None:
            said.append(f"{name} was not there when this was signed")
        elif was.size != now.size:
            said.append(f"{name} had {was.size} bytes, and has {now.size}")
        elif was != now:
            said.append(f"{name} was altered: its SHA-256 was {was.sha256}, is {now.sha256}")
    return said
