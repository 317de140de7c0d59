"""What Kafka Connect's offsets topic says of how far MirrorMaker 2 has come. Pure.

A key is `["<connector>", {"cluster": <alias of the source>, "topic": <name there>, "partition": <number>}]`, a value
`{"offset": <offset of the last source record that was copied>}` (KIP-382, `MirrorUtils`), or none where Connect has
forgotten the partition. With exactly-once support an offset is committed with the records (KIP-618); without it it
follows them, and stays behind when MirrorMaker 2 is killed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from replicator.model.errors import ConfigError
from replicator.model.partition import Partition

CONNECTOR = "MirrorSourceConnector"
"""Its name in MirrorMaker 2's dedicated mode; in a Connect cluster it is what its config says."""


@dataclass(frozen=True, slots=True)
class ConnectOffsets:
    """The offset of the last record that was copied, by source partition, of one connector and source `alias`."""

    alias: str
    last: Mapping[Partition, int]


def read_offsets(
    records: Iterable[tuple[bytes | None, bytes | None]], topic: str, connector: str, alias: str | None
) -> ConnectOffsets:
    """Read a whole offsets topic, named `topic` in what is said. The newest record of each key counts.

    Args:
        connector: whose offsets.
        alias: of the source cluster; None: the only one that there is.

    Raises ConfigError where there are no offsets of this connector and source, or more than one source.
    """
    newest: dict[tuple[str, str, Partition], int | None] = {}
    others: set[str] = set()
    for key, value in records:
        name, cluster, at = _key(key)
        if at is None:
            others.add(name or "something else than offsets")
            continue
        others.add(name)
        newest[name, cluster, at] = _offset(value)
    mine = {(cluster, at): offset for (name, cluster, at), offset in newest.items() if name == connector}
    if not mine:
        had = f"; it has those of {_listed(others)}" if others else ""
        raise ConfigError(f"{topic} has no offsets of connector {connector}{had}")
    clusters = {cluster for cluster, _ in mine}
    if alias is None and len(clusters) > 1:
        raise ConfigError(f"{topic} has offsets of several sources: say which (--alias): {_listed(clusters)}")
    chosen = alias if alias is not None else next(iter(clusters))
    if chosen not in clusters:
        raise ConfigError(f"{topic} has no offsets of source {chosen}; it has those of {_listed(clusters)}")
    return ConnectOffsets(
        chosen,
        {at: offset for (cluster, at), offset in mine.items() if cluster == chosen and offset is not None},
    )


def _key(key: bytes | None) -> tuple[str, str, Partition | None]:
    """Return connector, source and partition; without a partition where the key isn't one of MirrorMaker 2's."""
    name = ""
    try:
        name, where = json.loads(key or b"")
        name = str(name)
        cluster, topic, number = where["cluster"], where["topic"], where["partition"]
    except (ValueError, TypeError, KeyError):
        return name, "", None
    known = isinstance(cluster, str) and isinstance(topic, str) and type(number) is int and number >= 0
    return name, str(cluster), Partition(topic, number) if known else None


def _offset(value: bytes | None) -> int | None:
    if value is None:
        return None
    try:
        body: Any = json.loads(value)
        offset = body["offset"]
    except (ValueError, TypeError, KeyError):
        return None
    return offset if type(offset) is int and offset >= 0 else None


def _listed(words: Collection[str]) -> str:
    return ", ".join(sorted(words))


def is_own_topic(name: str) -> bool:
    """Tell whether a topic is MirrorMaker 2's own: heartbeats, checkpoints, offset syncs, and Connect's."""
    return (
        name == "heartbeats"
        or name.endswith((".heartbeats", ".checkpoints.internal"))
        or (name.startswith("mm2-") and name.endswith(".internal"))
    )
