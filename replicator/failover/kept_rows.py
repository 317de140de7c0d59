"""The rows of a verdict as records of the topic `__eos.<flow>.cutovers`, and back. Pure.

A generation's verdict is divided into chunks, each a record; a later verdict of the same generation takes their place.
All of them are written in one transaction with the note in the control topic, whose digest is theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from replicator.coupling.source_transactions import HalfCopied
from replicator.failover.verdict import (
    NEVER_SEEN,
    FailedGroup,
    FailedPartition,
    FailoverVerdict,
    TransactionsSeen,
    transaction_of_json,
)
from replicator.model.errors import ConfigError, VerdictUnreadable
from replicator.state.envelope import NewerFormat, NotOurs, unwrap, wrap
from replicator.state.failover_note import FailoverNote

CUTOVER_ROWS = "cutover_rows"
_KINDS = frozenset({CUTOVER_ROWS})
KINDS = ("partitions", "groups", "transactions", "transactions_seen")
"""Of rows; the last two are missing where an older version has written them."""
CHUNK_BYTES_MAX = 900_000
"""Also where the topic takes more: readers fetch about 1 MB at once by default."""
AROUND_BYTES = 1_024
"""For what stands around the rows: key, envelope, and the batch's own fields."""


def chunk_key(generation: int, chunk: int) -> bytes:
    """Return a chunk's key in the compacted topic."""
    return f"cutover/{generation}/{chunk}".encode()


def chunks(verdict: FailoverVerdict, generation: int, record_bytes_max: int) -> list[tuple[bytes, bytes]]:
    """Divide a verdict's rows into records of at most so many bytes.

    Raises ConfigError where a single row is larger.
    """
    room = min(record_bytes_max, CHUNK_BYTES_MAX) - AROUND_BYTES
    divided: list[dict[str, list[Any]]] = [{kind: [] for kind in KINDS}]
    used = 0
    for kind, rows in verdict.rows().items():
        for row in rows:
            size = len(json.dumps(row, separators=(",", ":"))) + 1
            if size > room:
                raise ConfigError(
                    f"the flow's topic of cutovers takes records of {record_bytes_max} bytes at most, and a row of the "
                    f"verdict has {size}: set its max.message.bytes to {size + AROUND_BYTES} or more"
                )
            if used + size > room:
                divided.append({kind: [] for kind in KINDS})
                used = 0
            divided[-1][kind].append(row)
            used += size
    around = {"generation": generation, "of": len(divided), "sha256": verdict.digest}
    return [
        (
            chunk_key(generation, number),
            wrap(CUTOVER_ROWS, {**around, "chunk": number, **each}, must_understand=False),
        )
        for number, each in enumerate(divided)
    ]


def read_back(flow: str, note: FailoverNote, records: Iterable[tuple[bytes | None, bytes | None]]) -> FailoverVerdict:
    """Make the verdict of a note and of the topic's records, the oldest first.

    Raises VerdictUnreadable where a chunk is missing, or isn't the note's.
    """
    newest = {key: value for key, value in records if key is not None}
    partitions: list[FailedPartition] = []
    groups: list[FailedGroup] = []
    transactions: list[HalfCopied] = []
    seen = NEVER_SEEN
    for number in range(note.chunks):
        value = newest.get(chunk_key(note.generation, number))
        if value is None:
            raise VerdictUnreadable(f"part {number + 1} of {note.chunks} of the verdict's rows is gone")
        try:
            body = _body(value)
            partitions += [FailedPartition.of_json(row) for row in body["partitions"]]
            groups += [FailedGroup.of_json(row) for row in body["groups"]]
            transactions += [transaction_of_json(row) for row in body.get("transactions", ())]
            for row in body.get("transactions_seen", ()):
                seen = TransactionsSeen.of_json(row)
        except (NotOurs, NewerFormat, KeyError, TypeError, ValueError) as error:
            raise VerdictUnreadable(f"part {number + 1} of {note.chunks} of the verdict's rows: {error!r}") from error
    found = replace(_verdict(flow, note, partitions, groups), transactions=tuple(transactions), transactions_seen=seen)
    if found.digest != note.digest:
        raise VerdictUnreadable(f"the rows have the SHA-256 {found.digest}, the summary says {note.digest}")
    return found


def topics_of_rows(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[int, set[str]]:
    """Return the source topics of all rows that are kept, by the generation of their verdict. What can't be read is
    left out: nothing says what it should be."""
    found: dict[int, set[str]] = {}
    for value in {key: value for key, value in records if key is not None}.values():
        with suppress(NotOurs, NewerFormat, KeyError, TypeError, ValueError):
            body = _body(value or b"")
            topics = {FailedPartition.of_json(row).source.topic for row in body["partitions"]}
            found.setdefault(int(body["generation"]), set()).update(topics)
    return dict(sorted(found.items()))


def _body(value: bytes) -> Mapping[str, Any]:
    body = unwrap(b"cutover", value, _KINDS)
    if body is None:
        raise NotOurs("another kind of record, or a newer version's")
    return body


def _verdict(
    flow: str, note: FailoverNote, partitions: Sequence[FailedPartition], groups: Sequence[FailedGroup]
) -> FailoverVerdict:
    return FailoverVerdict(
        flow=flow,
        source=note.source,
        target=note.target,
        generation=note.generation,
        by=note.by,
        at_ms=note.at_ms,
        ends_seen_ms=note.ends_seen_ms,
        partitions=partitions,
        groups=groups,
        topics=note.topics,
    )
