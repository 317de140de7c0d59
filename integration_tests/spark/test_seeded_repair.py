"""Whatever was done to a copy: the command's verdicts are right, as far as content can tell, and its repair copies what
was lost, and nothing else.

Logs of all shapes are drawn by seed (`seeded_histories`) and written to real brokers: a partition of one flow for each
seed. `reconcile --repair apply` compares and repairs all of them in one go; then each seed is judged by the multisets
of records on both sides.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from integration_tests.harness.broker import BrokerHandle
from integration_tests.spark.conftest import Command
from integration_tests.spark.planted import Content
from integration_tests.spark.seeded_harm import contents, harm
from integration_tests.spark.seeded_histories import drawn
from integration_tests.spark.seeded_logs import Logs, SeededFlow
from replicator.model.partition import Partition
from replicator.proof.by_content import alignment, cutting
from replicator.spark.reconcile import explain
from tests.budget import budget
from tests.replicator.spark.reconcile.histories import wrongly_counted

AT_ONCE = 50
SEEDS = {"embedded": budget(24, 1_000), "kafka": budget(24, 100)}
SMALL_CHUNKS = 8
TOLD_MAX = 5
"""Wrong records of one seed: there may be thousands."""
pytestmark = [pytest.mark.timeout(budget(600, 7_200))]


@pytest.mark.parametrize("first", range(0, max(SEEDS.values()), AT_ONCE))
def test_no_verdict_is_wrong_and_no_repair_does_harm(
    first: int,
    command: Command,
    source: BrokerHandle,
    target: BrokerHandle,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All seeds are compared with chunks as large as they always are, and with chunks so small that logs have many:
    what moves then moves between ranges that are opened. Findings are kept on the driver, or in Spark's tasks."""
    seeds = range(first, min(first + AT_ONCE, SEEDS[source.kind]))
    if not seeds:
        pytest.skip("on real Kafka fewer seeds are tried")
    now_ms = int(time.time() * 1000)
    flow = SeededFlow(source, target, tmp_path, unique("seeded"), [drawn(seed, now_ms) for seed in seeds])
    draw = random.Random(first)
    means, on_driver = [SMALL_CHUNKS, cutting.MEAN_MIN], [0, explain.ON_DRIVER_MAX]
    draw.shuffle(means)
    draw.shuffle(on_driver)
    wrong = list[str]()
    for mean, kept, repair in zip(means, on_driver, (False, True), strict=True):
        monkeypatch.setattr(alignment, "MEAN_MIN", mean)
        monkeypatch.setattr(explain, "ON_DRIVER_MAX", kept)
        out = tmp_path / f"chunks-of-{mean}"
        code, said = command(flow, *(("--repair", "apply") if repair else ()), "--out", str(out))
        assert code in (0, 1, 4), said
        report = json.loads((out / "report.json").read_text())
        found, named = _by_source(report["partitions"]), _named(out)
        assert len(found) == len(seeds), said
        repaired = _by_source(report["repair"]["partitions"]) if repair else {}
        after = flow.read_target() if repair else {}
        for logs in flow.logs:
            texts = _wrong_verdicts(logs, found[logs.at], named[logs.at])
            if repair:
                texts = chain(texts, _harmed(logs, found[logs.at], repaired.get(logs.at), after[logs.at]))
            wrong += [f"seed {logs.seeded.seed}, chunks of {mean}: {text}" for text in islice(texts, TOLD_MAX)]
    assert not wrong, f"{len(wrong)} wrong in {len(seeds)} seeds, first those of {first}\n" + "\n".join(wrong)


def _by_source(rows: Sequence[Mapping[str, Any]]) -> dict[Partition, Mapping[str, Any]]:
    return {Partition(**row["source"]): row for row in rows}


def _named(out: Path) -> Mapping[Partition, Sequence[Mapping[str, Any]]]:
    """The findings by source partition."""
    found: dict[Partition, list[Mapping[str, Any]]] = defaultdict(list)
    for row in parquet.read_table(out / "findings.parquet").to_pylist():
        found[Partition(row["topic"], row["partition"])].append(row)
    return found


def _wrong_verdicts(logs: Logs, row: Mapping[str, Any], named: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which verdicts on one seed are wrong. What stands on the other side, however far away, is neither missing nor
    doubled, also where retention has cut a log.

    Args:
        row: what the report says of the partition.
        named: its findings.
    """
    verdicts: Mapping[str, int] = row["verdicts"]
    truth, before = Counter(contents(logs.source)), Counter(contents(logs.target))
    if not _cut(logs):
        for names, (expected, found) in wrongly_counted(verdicts, truth, before).items():
            yield f"{names}: {found}, expected {expected}; {dict(verdicts)}, {row['notes']}"
    for verdict, log, offset, more in (
        ("missing", logs.source, "source_offset", truth - before),
        ("doubled", logs.target, "target_offset", before - truth),
    ):
        content = {placed.offset: placed.entry.content for placed in log.written}
        said = Counter(content[one[offset]] for one in named if one["verdict"] == verdict)
        for wrong, count in (said - more).items():
            yield f"{wrong}: {count} too many {verdict}; {truth[wrong]} on the source, {before[wrong]} on the target"


def _cut(logs: Logs) -> bool:
    return bool(logs.seeded.source_cut or logs.seeded.target_cut)


def _harmed(
    logs: Logs, row: Mapping[str, Any], repaired: Mapping[str, Any] | None, read: Sequence[Content]
) -> Iterator[str]:
    """What is wrong with the repair of one seed.

    Args:
        row: what the report says of the partition.
        repaired: what it says of its repair; None: there was nothing to repair.
        read: the target's records after it.
    """
    before, after, missing = Counter(contents(logs.target)), Counter(read), row["verdicts"].get("missing", 0)
    copied = 0
    if repaired is not None and not repaired["refused"]:
        copied = repaired["copied"] or 0
        if repaired["incident"] is not None or copied + (repaired["standing"] or 0) != missing:
            yield f"{missing} missing, repaired: { {**repaired, 'spans': ()} }"
        if not _cut(logs) and copied != missing:
            yield f"{copied} of {missing} were copied"
    yield from harm(logs, read)
    if (after - before).total() != copied:
        yield f"{(after - before).total()} records came to the target, where {copied} are said to be copied"
