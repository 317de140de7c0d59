"""The reconciliation's files: report.html for people, report.json for machines, findings.parquet with every finding.

All or nothing: everything is written into a directory beside the wanted one, which gets its name at the end.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.model.errors import Unreachable
from replicator.proof import page
from replicator.proof.by_content.record_verdicts import FINDING
from replicator.proof.outcome import Outcome
from replicator.proof.outcome_json import as_json
from replicator.proof.report_directory import complete
from replicator.proof.signing import Seal, unsealed
from replicator.spark import directories
from replicator.spark.cause import FAILURES, root
from replicator.spark.directories import HadoopDirectory, LocalDirectory
from replicator.spark.reconcile import arrow
from replicator.spark.reconcile.opened_chunks import FOUND_TYPES

ROWS_AT_ONCE = 10_000
FILES = ("findings.parquet", "report.html", "report.json")


def write(outcome: Outcome, findings: DataFrame, out: str, seal: Seal = unsealed) -> None:
    """Write all files of the report into a new directory, given as a user names it (see `directories`).

    Raises ConfigError when it exists, Unreachable when it can't be written.
    """
    to = directories.directory(out, findings.sparkSession)
    if isinstance(to, LocalDirectory):
        with complete(to.path) as part:
            _write(outcome, findings, part)
            seal(part)
        return
    assert isinstance(to, HadoopDirectory), "there is a session"
    to.begin()
    with tempfile.TemporaryDirectory(prefix="eos-report-") as name:
        _write(outcome, findings, Path(name))
        seal(Path(name))
        sealed = sorted(path.name for path in Path(name).iterdir() if path.name not in FILES)
        try:
            for file in (*sealed, *FILES):  # the one that machines look for is the last
                to.put(Path(name) / file)
        except FAILURES as error:
            raise Unreachable(f"{out} cannot be written: {root(error)}") from error


def _write(outcome: Outcome, findings: DataFrame, directory: Path) -> None:
    found, people, machine = (directory / name for name in FILES)
    write_findings(findings, found)
    people.write_text(page.html(outcome), encoding="utf-8")
    machine.write_text(json.dumps(as_json(outcome), indent=2) + "\n", encoding="utf-8")


def write_findings(findings: DataFrame, path: Path) -> None:
    """Write one Parquet file on the driver, a few thousand rows at a time: executors need not share a disk with it."""
    told = FOUND_TYPES.empty_table().select([name for name in FOUND_TYPES.names if name in findings.columns]).schema
    rows = findings.orderBy(
        "topic",
        "partition",
        F.coalesce(FINDING.source_rank, FINDING.target_rank, FINDING.source_offset, FINDING.target_offset),
    ).select(told.names)
    found = rows.toLocalIterator()
    with parquet.ParquetWriter(path, told) as file:
        for some in iter(lambda: list(itertools.islice(found, ROWS_AT_ONCE)), []):
            file.write_table(arrow.table(some, told))
