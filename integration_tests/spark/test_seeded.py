"""Logs of all shapes, drawn by seed, written to real brokers, damaged, cut and compacted: no verdict is wrong, by an
oracle that knows what was done to each record (`seeded_oracle`), and a repair makes nothing worse (`seeded_harm`)."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from cli.commands.reconcile_repair import Repairing
from cli.stopping import Stopping
from integration_tests.harness.broker import BrokerHandle
from integration_tests.spark import seeded_oracle
from integration_tests.spark.planted import Content
from integration_tests.spark.reconciling import PATIENCE_MS
from integration_tests.spark.seeded import drawn
from integration_tests.spark.seeded_harm import harm
from integration_tests.spark.seeded_logs import Logs, SeededFlow
from integration_tests.spark.seeded_oracle import Allowed, Expected, Of, unlike
from replicator import config
from replicator.model.partition import Partition
from replicator.proof import snapshot, verdicts
from replicator.proof.by_content import alignment
from replicator.proof.outcome import Outcome, PartitionOutcome
from replicator.proof.snapshot import Window
from replicator.spark.reconcile import reconcile
from tests.budget import budget

AT_ONCE = 100
SEEDS = {"embedded": budget(24, 1_000), "kafka": budget(24, 100)}
TOLD_MAX = 5
"""Differences of one seed: there may be one for each record."""
SMALL_CHUNKS, SMALL_PREFIXES = 32, 40
pytestmark = pytest.mark.timeout(budget(600, 7_200))


@pytest.mark.parametrize("first", range(0, max(SEEDS.values()), AT_ONCE))
def test_no_verdict_is_wrong(
    first: int,
    spark: SparkSession,
    source: BrokerHandle,
    target: BrokerHandle,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the time with small chunks, so that logs have many, and with retained prefixes that are left out
    unread."""
    seeds = range(first, min(first + AT_ONCE, SEEDS[source.kind]))
    if not seeds:
        pytest.skip("on real Kafka fewer seeds are tried")
    now_ms = int(time.time() * 1000)
    flow = SeededFlow(source, target, tmp_path, unique("seeded"), [drawn(seed, now_ms) for seed in seeds])
    if first // AT_ONCE % 2 == 0:
        monkeypatch.setattr(alignment, "MEAN_MIN", SMALL_CHUNKS)
        monkeypatch.setattr(reconcile, "PREFIX_RECORDS", SMALL_PREFIXES)
    repairing = Repairing(config.load(flow.file.path), flow.flow, "apply", take_over=False)
    repairing.begin()
    taken = snapshot.take(flow.flow, (), Window(), connect_timeout_ms=PATIENCE_MS)
    found = reconcile.reconcile(spark, flow.flow, taken, "full", lambda *_: None)
    outcome = found.outcome
    repairing.find(found)
    wrong = differences(flow, outcome, found.findings.collect())
    found.findings.unpersist()
    with Stopping() as stopping:
        repairing.finish(outcome, taken, stopping, lambda _: None)
    after = flow.read_target()
    for logs in flow.logs:
        said = islice(harm(logs, after[logs.at]), TOLD_MAX)
        wrong += [f"seed {logs.seeded.seed} {logs.seeded.shape.name} after its repair: {text}" for text in said]
    assert not wrong, f"{len(wrong)} of {len(seeds)}\n" + "\n".join(wrong)


def differences(flow: SeededFlow, outcome: Outcome, rows: list[Row]) -> list[str]:
    """Where the outcome is not what the oracle says, seed by seed."""
    by_partition: dict[Partition, list[Row]] = defaultdict(list)
    for row in rows:
        by_partition[Partition(row["topic"], row["partition"])].append(row)
    compared = {found.source: found for found in outcome.partitions}
    waiting = {item.source for item in outcome.waiting}
    stopped = {Partition(str(item.topic), int(str(item.partition))): item.name for item in outcome.not_compared}
    wrong = []
    for logs in flow.logs:
        if logs.seeded.has_position:
            said = list(islice(_differences(logs, compared[logs.at], by_partition[logs.at]), TOLD_MAX))
        elif logs.target.written:
            said = [] if stopped.get(logs.at) == "target_not_empty" else ["it has no position, and was compared"]
        else:
            said = [] if logs.at in waiting else ["it has no position, and does not wait"]
        wrong += [f"seed {logs.seeded.seed} {logs.seeded.shape.name}: {text}" for text in said]
    return wrong


def _differences(logs: Logs, outcome: PartitionOutcome, rows: list[Row]) -> Iterator[str]:
    expected = seeded_oracle.expected(logs)
    records = outcome.source_records, outcome.target_records
    if records != (expected.source_records, expected.target_records):
        yield f"{records} records, {(expected.source_records, expected.target_records)} expected"
    contents = [{item.offset: item.entry.content for item in log.written} for log in (logs.source, logs.target)]
    behind = _behind(contents, expected, rows)
    expected.settle_moves({of.content for of, names in behind.items() if names[verdicts.REORDERED]})
    for of in {*behind, *expected.behind}:
        if unlike(behind.get(of, Counter()), expected.behind.get(of, [])):
            yield f"{of}: {dict(behind.get(of, {}))}, expected {_text(expected.behind.get(of, []))}"
    prefix = Counter({name: count for name, count in outcome.verdicts.items() if name != verdicts.SAME})
    for found in behind.values():
        prefix.subtract(found)
    if unlike(+prefix, expected.prefix):
        yield f"prefix: {dict(+prefix)}, expected {_text(expected.prefix)}"
    for row in rows:
        if row["verdict"] == verdicts.ALTERED:
            content = contents[0][row["source_offset"]]
            if row["fields"] != expected.fields.get(content):
                yield f"{content}: {row['fields']} altered, expected {expected.fields.get(content)}"


def _behind(
    contents: Sequence[Mapping[int, Content]], expected: Expected, rows: list[Row]
) -> Mapping[Of, Counter[str]]:
    """The findings behind the first record that both sides have."""
    found: dict[Of, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["verdict"] != verdicts.REORDERED and expected.in_prefix(row["source_offset"], row["target_offset"]):
            continue
        on_source = row["source_offset"] is not None
        content = contents[0][row["source_offset"]] if on_source else contents[1][row["target_offset"]]
        found[Of(on_source, content)][row["verdict"]] += 1
    return found


def _text(allowed: list[Allowed]) -> str:
    return ", ".join(f"{count} of {'|'.join(sorted(names))}" for names, count in Counter(allowed).items()) or "nothing"
