"""The reconciliation's files: report.html for people, report.json for machines, findings.parquet with every finding.

All or nothing: everything is written into a directory beside the wanted one, which gets its name at the end.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.model.errors import ConfigError, Unreachable
from replicator.spark import directories
from replicator.spark.cause import FAILURES, root
from replicator.spark.directories import LocalDirectory, check_unused
from replicator.spark.reconcile import arrow, verdicts
from replicator.spark.reconcile.opened_chunks import FOUND_TYPES
from replicator.spark.reconcile.outcome import BUCKETS, DIFFERS, Outcome, PartitionOutcome, key_text

ROWS_AT_ONCE = 10_000
FILES = ("findings.parquet", "report.html", "report.json")
MEANINGS = {
    verdicts.MISSING: "on the source, not on the target",
    verdicts.EXTRA: "on the target, not on the source",
    verdicts.DOUBLED: "once more on the target than on the source",
    verdicts.ALTERED: "on both sides, with different fields",
    verdicts.REORDERED: "on both sides, in another order",
    verdicts.UNPROVEN: "on one side only; nothing that the clusters still have tells whether it is lost",
    DIFFERS: "in a chunk that differs (the quick pass does not say which record)",
    verdicts.EXPIRED: "copied, then removed from the target by retention; no difference",
    verdicts.NEVER_MINE: "copied, then removed from the source by retention; no difference",
    verdicts.COMPACTED: "removed from the target by compaction; no difference",
    verdicts.COMPACTED_SOURCE: "removed from the source by compaction; no difference",
}
"""Verdict → what it says, in the order in which reports show them."""


@contextmanager
def complete(directory: Path) -> Iterator[Path]:
    """A directory to write into, which becomes `directory` when the block ends well, and vanishes when it doesn't."""
    check_unused(directory)
    target = directory.absolute()
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
    except OSError as error:
        raise ConfigError(f"cannot write beside {directory}: {error.strerror}") from error
    try:
        yield part
        part.chmod(0o755)
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def write(outcome: Outcome, findings: DataFrame, out: str) -> None:
    """Writes all files of the report into a new directory, given as a user names it (see `directories`).

    Raises ConfigError when it exists, Unreachable when it can't be written.
    """
    to = directories.directory(out, findings.sparkSession)
    if isinstance(to, LocalDirectory):
        with complete(to.path) as part:
            _write(outcome, findings, part)
        return
    assert to is not None, "there is a session"
    to.begin()
    with tempfile.TemporaryDirectory(prefix="eos-report-") as name:
        _write(outcome, findings, Path(name))
        try:
            for file in FILES:  # the one that machines look for is the last
                to.put(Path(name) / file)
        except FAILURES as error:
            raise Unreachable(f"{out} cannot be written: {root(error)}") from error


def _write(outcome: Outcome, findings: DataFrame, directory: Path) -> None:
    found, page, machine = (directory / name for name in FILES)
    write_findings(findings, found)
    page.write_text(html(outcome), encoding="utf-8")
    machine.write_text(json.dumps(outcome.as_json(), indent=2) + "\n", encoding="utf-8")


def write_findings(findings: DataFrame, path: Path) -> None:
    """Writes one Parquet file on the driver, a few thousand rows at a time: executors need not share a disk with it."""
    rows = findings.orderBy("topic", "partition", F.coalesce("source_rank", "target_rank")).toLocalIterator()
    with parquet.ParquetWriter(path, FOUND_TYPES) as file:
        for some in iter(lambda: list(itertools.islice(rows, ROWS_AT_ONCE)), []):
            file.write_table(arrow.table(some, FOUND_TYPES))


def html(outcome: Outcome) -> str:
    """The self-contained page: no scripts, nothing loaded from elsewhere."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": _number, "time": _time, "key": _key}
    page = (resources.files("replicator.spark") / "report.html.j2").read_text(encoding="utf-8")
    totals = outcome.totals()
    return environment.from_string(page).render(
        outcome=outcome,
        totals=totals,
        compared=sum(partition.source_records for partition in outcome.partitions),
        meanings={name: text for name, text in MEANINGS.items() if totals.get(name)},
        unproven=totals.get(verdicts.UNPROVEN, 0),
        differences=sum(partition.differences for partition in outcome.partitions),
        shown=[(n, partition) for n, partition in enumerate(outcome.partitions) if _worth_a_look(partition)],
        strips={partition.source: strip(partition) for partition in outcome.partitions},
        buckets=BUCKETS,
    )


def _worth_a_look(partition: PartitionOutcome) -> bool:
    return not partition.agrees or bool(partition.removed)


def strip(partition: PartitionOutcome) -> list[tuple[int, str, str]]:
    """Marks of a partition's chart: (bucket, its gravest verdict, words for all of them)."""
    marks: list[tuple[int, str, str]] = []
    for bucket in range(BUCKETS):
        here = [(name, partition.places[name][bucket]) for name in MEANINGS if name in partition.places]
        found = [(name, records) for name, records in here if records]
        if found:
            words = ", ".join(f"{_number(records)} {name}" for name, records in found)
            marks.append((bucket, found[0][0], f"{bucket * 100 // BUCKETS} % of the partition: {words}"))
    return marks


def _number(value: int | None) -> str:
    return "\u2013" if value is None else f"{value:,}".replace(",", "\u202f")


def _time(milliseconds: int | None) -> str:
    if milliseconds is None or not 0 <= milliseconds < 253_402_300_800_000:
        return "\u2013" if milliseconds is None else str(milliseconds)
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def _key(key: bytes | None) -> str:
    return "null" if key is None else key_text(key) or ""
