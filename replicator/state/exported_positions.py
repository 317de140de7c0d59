"""Positions as `position export` writes them and as `position set` takes them. Pure.

Called by `inspect.positions` and by the command. The format is described in docs/reference/formats.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replicator.model.errors import ConfigError
from replicator.model.partition import Partition

FORMAT, FORMAT_VERSION = "eos-replicate/positions", 1
_KEYS = {"topic": str, "source_topic_id": str, "target_topic_id": str, "partition": int, "offset": int}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPosition:
    """The source offset at which the copy of `source` is to go on. The topics' ids are those that somebody has looked
    at, where they are known; empty: whatever is there."""

    source: Partition
    offset: int
    source_topic_id: str = ""
    target_topic_id: str = ""


def imported(document: object, flow: str, where: str) -> Sequence[WantedPosition]:
    """Read the positions of an exported document. `where`: its name, for errors. Raises ConfigError."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"{where} holds no exported positions (format {FORMAT})")
    if document.get("version") != FORMAT_VERSION:
        raise ConfigError(f"{where} has version {document.get('version')!r}, this program knows {FORMAT_VERSION}")
    if document.get("flow") != flow:
        raise ConfigError(f"{where} holds positions of flow {document.get('flow')!r}, not of {flow}")
    rows = document.get("positions")
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{where}: positions has none")
    return [_imported(row, f"{where}: positions[{number}]") for number, row in enumerate(rows)]


def _imported(row: object, where: str) -> WantedPosition:
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is no object")
    for key, kind in _KEYS.items():
        value = row.get(key)
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise ConfigError(f"{where}.{key} is {value!r}")
    return WantedPosition(
        source=Partition(row["topic"], row["partition"]),
        offset=row["offset"],
        source_topic_id=row["source_topic_id"],
        target_topic_id=row["target_topic_id"],
    )
