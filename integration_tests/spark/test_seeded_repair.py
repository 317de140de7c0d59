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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.broker import BrokerHandle
from integration_tests.spark.conftest import Command
from integration_tests.spark.planted import Content
from integration_tests.spark.seeded_harm import contents, harm
from integration_tests.spark.seeded_histories import drawn
from integration_tests.spark.seeded_logs import Logs, SeededFlow
from replicator.model.partition import Partition
from replicator.spark.reconcile import alignment, cutting, explain
from tests.budget import budget
from tests.replicator.spark.reconcile.histories import wrongly_counted

AT_ONCE = 50
SEEDS = {"embedded": budget(24, 1_000), "kafka": budget(24, 100)}
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
    """Chunks are as large as they always are, or so small that logs have many; findings are kept on the driver, or in
    Spark's tasks."""
    seeds = range(first, min(first + AT_ONCE, SEEDS[source.kind]))
    if not seeds:
        pytest.skip("on real Kafka fewer seeds are tried")
    now_ms = int(time.time() * 1000)
    flow = SeededFlow(source, target, tmp_path, unique("seeded"), [drawn(seed, now_ms) for seed in seeds])
    draw = random.Random(first)
    monkeypatch.setattr(alignment, "MEAN_MIN", draw.choice((32, cutting.MEAN_MIN)))
    monkeypatch.setattr(explain, "ON_DRIVER_MAX", draw.choice((0, explain.ON_DRIVER_MAX)))
    out = tmp_path / "out"
    code, said = command(flow, "--repair", "apply", "--out", str(out))
    assert code in (0, 1), said
    report, after = json.loads((out / "report.json").read_text()), flow.read_target()
    found, repaired = _by_source(report["partitions"]), _by_source(report["repair"]["partitions"])
    assert len(found) == len(seeds), said
    wrong = [
        f"seed {logs.seeded.seed}: {text}"
        for logs in flow.logs
        for text in islice(_wrong(logs, found[logs.at], repaired.get(logs.at), after[logs.at]), TOLD_MAX)
    ]
    assert not wrong, f"{len(wrong)} of {len(seeds)} seeds, first those of {first}\n" + "\n".join(wrong)


def _by_source(rows: Sequence[Mapping[str, Any]]) -> dict[Partition, Mapping[str, Any]]:
    return {Partition(**row["source"]): row for row in rows}


def _wrong(
    logs: Logs, row: Mapping[str, Any], repaired: Mapping[str, Any] | None, read: Sequence[Content]
) -> Iterator[str]:
    """What is wrong with one seed.

    Args:
        row: what the report says of the partition.
        repaired: what it says of its repair; None: there was nothing to repair.
        read: the target's records after it.
    """
    verdicts: Mapping[str, int] = row["verdicts"]
    truth, before, after = Counter(contents(logs.source)), Counter(contents(logs.target)), Counter(read)
    lost, missing = (truth - before).total(), verdicts.get("missing", 0)
    cut = bool(logs.seeded.source_cut or logs.seeded.target_cut)
    if not cut:
        for names, (expected, found) in wrongly_counted(verdicts, truth, before).items():
            yield f"{names}: {found}, expected {expected}; {dict(verdicts)}, {row['notes']}"
    elif missing > lost:
        yield f"{missing} missing, but {lost} of the source's are not on the target; {dict(verdicts)}"
    copied = 0
    if repaired is not None and not repaired["refused"]:
        copied = repaired["copied"] or 0
        if repaired["incident"] is not None or copied + (repaired["standing"] or 0) != missing:
            yield f"{missing} missing, repaired: { {**repaired, 'spans': ()} }"
        if not cut and copied != missing:
            yield f"{copied} of {missing} were copied"
    yield from harm(logs, read)
    if (after - before).total() != copied:
        yield f"{(after - before).total()} records came to the target, where {copied} are said to be copied"
