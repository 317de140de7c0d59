"""What every record of the flow's own topics has around its content: version, kind, must_understand.

Read by `generation` and `claims`. A record of an unknown kind or of a newer version is ignored, unless whoever wrote it
says that it must be understood: then nothing may be written under what is known (`newer_format`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FORMAT_VERSION = 1


class NotOurs(ValueError):
    """The record was not written by this program."""


class NewerFormat(ValueError):
    """The record must be understood, and this version of the program doesn't."""


def wrap(kind: str, content: Mapping[str, Any], *, must_understand: bool = True) -> bytes:
    """A record's value. `must_understand`: a version that doesn't know its kind must write nothing."""
    body = {"v": FORMAT_VERSION, "kind": kind, "must_understand": must_understand, **content}
    return json.dumps(body, separators=(",", ":")).encode()


def unwrap(key: bytes, value: bytes, kinds: frozenset[str]) -> dict[str, Any] | None:
    """The content of a record of one of `kinds`, envelope included; None for one that is to be ignored.

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
    if version <= FORMAT_VERSION and kind in kinds:
        return body
    if must:
        raise NewerFormat(f"record {key!r} of kind {kind!r} and format version {version}")
    return None
