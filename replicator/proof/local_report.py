"""The files of `reconcile --local`: report.html for people, report.json for machines, findings.jsonl with all findings.

All or nothing, as `spark.reconcile.report` does it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from replicator.proof import page
from replicator.proof.local import LocalResult
from replicator.proof.outcome import Outcome, key_text
from replicator.proof.outcome_json import as_json
from replicator.proof.report_directory import complete
from replicator.proof.signing import Seal, unsealed


def write(result: LocalResult, outcome: Outcome, directory: Path, seal: Seal = unsealed) -> None:
    """Write all files into a new directory. `outcome`: as it is shown. Raises ConfigError when it exists."""
    with complete(directory) as part:
        with (part / "findings.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines(result))
        (part / "report.html").write_text(page.html(outcome), encoding="utf-8")
        (part / "report.json").write_text(json.dumps(as_json(outcome), indent=2) + "\n", encoding="utf-8")
        seal(part)


def lines(result: LocalResult) -> Iterator[str]:
    """Yield each record that isn't the same on both sides as JSON."""
    for at, records in sorted(result.records.items()):
        for one in records:
            found = {
                "topic": at.topic,
                "partition": at.partition,
                "verdict": one.verdict,
                "source_offset": one.source,
                "target_offset": one.target,
                "fields": one.fields.split(",") if one.fields else [],
                "reason": one.reason,
                "timestamp_ms": one.timestamp_ms,
                "key": key_text(one.key),
            }
            yield json.dumps(found)
