"""What every record of the flow's own topics has around its content: version, kind, must_understand.

Read by `generation` and `claims`. A record of an unknown kind or of a newer version is ignored, unless whoever wrote it
says that it must be understood: then nothing may be written under what is known (`newer_format`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FORMAT_VERSION = 1
"""Of records whose kind says no other."""


class NotOurs(ValueError):
    """The record was not written by this program."""


class NewerFormat(ValueError):
    """The record must be understood, and this version of the program doesn't."""


def wrap(
    kind: str, content: Mapping[str, Any], *, must_understand: bool = True, version: int = FORMAT_VERSION
) -> bytes:
    """Make a record's value. `must_understand`: a program that doesn't know its kind or `version` must write
    nothing.
    """
    body = {"v": version, "kind": kind, "must_understand": must_understand, **content}
    return json.dumps(body, separators=(",", ":")).encode()


def unwrap(key: bytes, value: bytes, kinds: frozenset[str], version_max: int = FORMAT_VERSION) -> dict[str, Any] | None:
    """Return the content of a record of one of `kinds`, envelope included; None for one that is to be ignored.

    `version_max`: the newest version of these kinds that is known.

    Raises NotOurs, NewerFormat.
    """
    try:
        body = json.loads(value)
    except ValueError as error:
        raise NotOurs(f"record {key!r} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise NotOurs(f"record {key!r} is not a JSON object")
    version, kind, must = body.get("v"), body.get("kind"), body.get("must_understand")
    if type(version) is not int or not isinstance(kind, str) or not isinstance(must, bool):
        raise NotOurs(f"record {key!r} has no version, kind and must_understand")
    if version <= version_max and kind in kinds:
        return body
    if must:
        raise NewerFormat(f"record {key!r} of kind {kind!r} and format version {version}")
    return None
