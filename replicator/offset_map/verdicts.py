"""What a comparison by the map says of records. Values; made by `compare`, read by `repair_rule`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class ComparedRecord(NamedTuple):
    """A committed record of one side.

    `digest` covers key, value, headers and timestamp and is the same on both sides; empty, it equals none. `key` stands
    for the key (None: null). `tombstone`: the value is null. `timestamp_ms` is for reports.
    """

    offset: int
    digest: bytes
    key: bytes | None = None
    tombstone: bool = False
    timestamp_ms: int = 0


Rows = Callable[[], Iterable[ComparedRecord]]
"""Reads a side's committed records, ascending by offset; called once, or twice where something differs."""


class LastOfKey(NamedTuple):
    """The last record of a key that the target has, and the first source offset at which its equal stands, if any."""

    offset: int
    digest: bytes
    source: int | None = None

    def equals(self, digest: bytes) -> bool:
        """Return whether it has that digest; an empty one, of a record that can't be compared, equals none."""
        return bool(digest) and self.digest == digest


class MapVerdict(StrEnum):
    """What became of a record of the source, or where one of the target comes from."""

    SAME = "same"
    """It stands where the map says."""
    DISPLACED = "displaced"
    """A copy stands where the map doesn't say."""
    ALTERED = "altered"
    """Another record stands in its place."""
    SOURCE_CHANGED = "source_changed"
    """Another record stands in its place, which is what was copied: it was another one on the source, too."""
    EXPIRED = "expired"
    """Its place lies below the target's log start."""
    COMPACTED = "compacted"
    """Log compaction took it on the target, as it may."""
    SIGNED_GAP = "signed_gap"
    SET_ASIDE = "set_aside"
    DROPPED = "dropped"
    MISSING = "missing"
    EXTRA = "extra"
    """A record of the target that no record of the source stands for."""
    DOUBLED = "doubled"
    """As `extra`, and it equals a record of the source."""
    SOURCE_GONE = "source_gone"
    """A record of the target whose source record is there no longer."""


class MapFinding(NamedTuple):
    """One record that isn't `same`.

    Attributes:
        source, target: offsets; None on a side that has no such record. With `missing` and the like, `target` is
            the place.
        why: of `source_gone`: retention, compaction, truncation, unknown.
        by_content: the map says nothing of the record: its chain is broken there.
        by_digest: the copies that were written with it are all unchanged, by the digest in the map.
    """

    verdict: MapVerdict
    source: int | None
    target: int | None
    why: str = ""
    by_content: bool = False
    by_digest: bool = False


@dataclass(slots=True)
class MapComparison:
    """What was found of one partition.

    Attributes:
        same_by_content: how many of the same ones the map says nothing of.
        behind: of the same ones, those that stand behind a copy of a higher source offset: source and target offset.
        records: the source's records of the findings that have no copy, by source offset.
        left: the target's records of the findings without a source record, by target offset.
        last_of_key: of their keys, the last source offset below the bound.
        last_on_target: in a compacted topic, of their keys the last record of the target.
        not_compared: how many records of the target with their digests stand where nothing is compared.
        doubts: what makes the map doubtful, by name, with how many records show it.
        target_compacted: whether the target's topic is compacted.
    """

    counts: Counter[MapVerdict] = field(default_factory=Counter)
    same_by_content: int = 0
    behind: list[tuple[int, int]] = field(default_factory=list)
    findings: list[MapFinding] = field(default_factory=list)
    records: dict[int, ComparedRecord] = field(default_factory=dict)
    left: dict[int, ComparedRecord] = field(default_factory=dict)
    last_of_key: dict[bytes, int] = field(default_factory=dict)
    last_on_target: dict[bytes, LastOfKey] = field(default_factory=dict)
    not_compared: dict[bytes, int] = field(default_factory=dict)
    doubts: Counter[str] = field(default_factory=Counter)
    target_compacted: bool = False

    def say(self, finding: MapFinding) -> None:
        """Count and keep a finding."""
        self.counts[finding.verdict] += 1
        self.findings.append(finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class SidesEvidence:
    """What else is known of both sides.

    Attributes:
        source_start, target_start: the log starts, read after the rows: what retention took while they were read is
            below them.
        source_compacted, target_compacted: whether the topics are compacted.
        emptied: whether a target offset is empty in the raw log: no record, no marker, no aborted record stands there
            (`wire.holes`).
        digest_fits: whether the copies of the section that claims a target offset still give its digest.
    """

    source_start: int = 0
    target_start: int = 0
    source_compacted: bool = False
    target_compacted: bool = False
    emptied: Callable[[int], bool] = lambda offset: False
    digest_fits: Callable[[int], bool] = lambda offset: False
