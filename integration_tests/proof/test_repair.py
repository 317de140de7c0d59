"""`reconcile --local --repair` over logs and maps of which everything is known: it copies what was lost once, and
nothing else."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import ASKED_S_MAX
from integration_tests.harness.processes import wait_until
from integration_tests.proof.mapped_lane import DAMAGE, MAP_ERRORS
from integration_tests.proof.mapped_logs import MappedFlow
from integration_tests.proof.test_local import compared
from integration_tests.proof.truth import Truth, multiset
from integration_tests.spark.planted import EPOCH_MS, Content
from integration_tests.spark.seeded_logs import CLEANABLE, read_contents, read_offsets, set_compacted
from replicator import failpoints
from replicator.model import names
from replicator.model.partition import Partition
from replicator.proof import verdicts
from replicator.state.generation import Generation, Phase
from tests.budget import budget

AT_ONCE = 8
ROUNDS = budget(1, 20)
RECORDS_MAX = 5_000
CASES: dict[str, Sequence[str]] = {
    "damage": DAMAGE,
    "repaired": (*DAMAGE, "repaired"),
    "lost blocks": (*DAMAGE, "lost_block", "unreadable"),
    "map errors": (*DAMAGE, *MAP_ERRORS),
}
STEPS = ("fenced", "claimed", "before_send", "before_flush", "before_offsets", "before_end_txn", "after_end_txn")
"""Of `failpoints`, those that a repair of few records reaches."""
GENERATION = 1_000
"""Above those of the lanes that have written the map."""


def damaged(flow: MappedFlow) -> MappedFlow:
    """Positions cover all that stands on the target, and the flow's generation is above those of its map."""
    put = clients.producer(flow.target)
    for number, phase in ((1, Phase.CLOSED), (GENERATION, Phase.OPEN)):
        opened = Generation(number, phase, 1, partitions={flow.topic: len(flow.seeds)})
        clients.put(put, names.control_topic(flow.flow.name), opened.encode(), key=opened.key)
    return covered(flow)


def covered(flow: MappedFlow) -> MappedFlow:
    for number, truth in enumerate(flow.truths):
        truth.next_target = clients.stable_end(flow.target, flow.copy, number)
    flow.commit()
    return flow


def command(flow: MappedFlow, *options: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", "reconcile", "-c", str(flow.file.path), "--local", "--json", *options]


def asked(flow: MappedFlow, *options: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(command(flow, *options), capture_output=True, text=True, timeout=ASKED_S_MAX)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def end_of(flow: MappedFlow, number: int) -> int:
    client = clients.consumer(flow.target, isolation_level="read_uncommitted")
    end = client.get_watermark_offsets(TopicPartition(flow.copy, number), timeout=clients.TIMEOUT_S)[1]
    client.close()
    return int(end)


def rows(report: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {row["source"]["partition"]: row for row in report["repair"]["partitions"]}


def read(flow: MappedFlow) -> list[list[Content]]:
    found = read_contents(
        flow.target, {Partition(flow.copy, n): truth.target_start for n, truth in enumerate(flow.truths)}
    )
    return [found[Partition(flow.copy, number)] for number in range(len(flow.truths))]


def harm(truth: Truth, now: Sequence[Content], row: dict[str, Any] | None, copied_before: int = 0) -> Iterator[str]:
    """Everything that repairs must not have done, and what they must have. `row`: of the last one; `copied_before`: by
    what those before it say."""
    here, there = multiset(truth.here), multiset(truth.there)
    before = [content for _, content in sorted(truth.there.items())]
    if list(now[: len(before)]) != before:
        yield "what stood there has changed"
    added = Counter(now[len(before) :])
    if more := added - (here - there):
        yield f"doubled: {more}"
    copied = copied_before + (row["copied"] or 0 if row else 0)
    if added.total() != copied:
        yield f"{added.total()} copied, {copied} said to be"
    if row and row["incident"]:
        yield row["incident"]
    if truth.unmapped or truth.wrong or truth.target_start:
        return
    stays = Counter(truth.source[at] for at in truth.altered if at >= truth.source_start)
    if left := here - there - added - stays:
        yield f"still missing: {left}"


def assert_repaired(flow: MappedFlow) -> None:
    """Repair, and judge by the multisets of both sides; a second repair copies nothing.

    Where the map was falsified, a record that stands at another one's place may be taken for that one, altered, until
    the map goes on behind it: then the second repair copies it, and the third one nothing.
    """
    first, _ = repaired(flow, Counter())
    second, missing = repaired(flow, first)
    falsified = {number for number, truth in enumerate(flow.truths) if truth.wrong}
    again = {number for number, copied in second.items() if copied != first[number]}
    assert again <= falsified, f"copied again to {again}"
    if again:
        third, missing = repaired(flow, second)
        assert third == second
    assert not missing


def repaired(flow: MappedFlow, before: Counter[int]) -> tuple[Counter[int], int]:
    """Repair; return how many records were copied to each partition, with those of `before`, and how many are called
    missing."""
    code, report = asked(flow, "--repair", "apply")
    assert code in (0, 1, 4), report
    found, after = rows(report), read(flow)
    copied = before + Counter({number: row["copied"] or 0 for number, row in found.items()})
    wrong = [
        f"seed {flow.seeds[number]} ({truth.acts}): {text}"
        for number, truth in enumerate(flow.truths)
        for text in harm(truth, after[number], found.get(number), before[number])
    ]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:20])
    return copied, report["totals"].get(verdicts.MISSING, 0)


@pytest.mark.tier("full")
@pytest.mark.parametrize("part", range(ROUNDS))
@pytest.mark.parametrize("case", CASES)
def test_what_was_lost_is_copied_and_nothing_is_doubled(
    case: str, part: int, source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    seeds = range(part * AT_ONCE, (part + 1) * AT_ONCE)
    flow = damaged(MappedFlow(source, target, tmp_path, unique("repair"), seeds, CASES[case]))
    draw = random.Random(part)
    for number, truth in enumerate(flow.truths):
        if draw.random() < 0.5:
            ends = [draw.choice((0, draw.randrange(max(1, end)))) for end in (truth.position, truth.next_target)]
            flow.cut(number, source=ends[0], target=ends[1])
    assert_repaired(flow)


@pytest.mark.tier("full")
@pytest.mark.parametrize("seed", range(budget(2, 20)))
def test_partitions_of_all_sizes_are_made_whole(
    seed: int, source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    transactions = round((RECORDS_MAX / 13.5) ** random.Random(seed).random())
    name = unique("sizes")
    assert_repaired(damaged(MappedFlow(source, target, tmp_path, name, [seed], DAMAGE, transactions=transactions)))


@pytest.mark.tier("default", kafka="full")
def test_a_plan_changes_nothing_and_apply_does_what_it_says(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    flow = damaged(MappedFlow(source, target, tmp_path, unique("plan"), [7, 8], ("skipped", "lost")))
    lost = [len(truth.skipped | truth.lost) for truth in flow.truths]
    assert sum(lost) > 0
    before = read(flow)
    code, plan = asked(flow, "--repair", "plan")
    assert (code, plan["repair"]["applied"], read(flow) == before) == (1, False, True)
    planned = {number: row["to_copy"] for number, row in rows(plan).items()}
    assert planned == {number: records for number, records in enumerate(lost) if records}
    code, done = asked(flow, "--repair", "apply")
    assert (code, done["repair"]["applied"]) == (1, True)
    assert {number: row["copied"] for number, row in rows(done).items()} == planned
    assert "none of them is missing any more" in done["headline"]
    for number, contents in enumerate(read(flow)):
        assert Counter(contents) == multiset(flow.truths[number].source)


@pytest.mark.tier("full")
def test_killed_at_each_step_and_begun_again_it_copies_each_record_once(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    flow = damaged(MappedFlow(source, target, tmp_path, unique("killed"), range(3), DAMAGE))
    killed = list[str]()
    for step in STEPS:
        environment = {**os.environ, failpoints.VARIABLE: f"{step}@1=kill"}
        done = subprocess.run(
            command(flow, "--repair", "apply"), env=environment, capture_output=True, timeout=ASKED_S_MAX
        )
        assert done.returncode in (-signal.SIGKILL, 1), (step, done.returncode, done.stderr)
        killed += [step] if done.returncode == -signal.SIGKILL else []
    assert killed == list(STEPS)
    _, report = asked(flow, "--repair", "apply")
    assert not report["totals"].get(verdicts.MISSING) or rows(report)
    for number, contents in enumerate(read(flow)):
        truth = flow.truths[number]
        added = Counter(contents) - multiset(truth.there)
        stays = Counter(truth.source[at] for at in truth.altered)
        lost = multiset(truth.here) - multiset(truth.there)
        assert not added - lost, "doubled"
        assert not lost - added - stays, "still missing"


@contextmanager
def asleep(flow: MappedFlow, step: str) -> Iterator[subprocess.Popen[str]]:
    """A repair that has stopped itself at this step."""
    environment = {**os.environ, failpoints.VARIABLE: f"{step}=stop"}
    with subprocess.Popen(
        command(flow, "--repair", "apply"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_sigint,
    ) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it sleeps", stat.read_text)
        yield process


def _hear_sigint() -> None:
    """As in a terminal: what a shell runs in the background ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.tier("full")
def test_interrupted_it_ends_its_transaction_and_the_next_one_goes_on(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    flow = damaged(MappedFlow(source, target, tmp_path, unique("interrupted"), [7, 8, 9], ("skipped", "lost")))
    flow.file.write(commit={"records_max": 1})
    with asleep(flow, "before_end_txn@1") as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        said, errors = process.communicate(timeout=ASKED_S_MAX)
    assert process.returncode == 130, errors
    copied = sum(row["copied"] or 0 for row in rows(json.loads(said)).values())
    lost = sum(len(truth.skipped | truth.lost) for truth in flow.truths)
    assert 1 <= copied < lost
    _, report = asked(flow, "--repair", "apply")
    assert sum(row["copied"] or 0 for row in rows(report).values()) == lost - copied
    for number, contents in enumerate(read(flow)):
        assert Counter(contents) == multiset(flow.truths[number].source)


@pytest.mark.tier("full")
def test_a_zombie_copies_nothing_more(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    flow = damaged(MappedFlow(source, target, tmp_path, unique("zombie"), [7, 8, 9], ("skipped", "lost")))
    flow.file.write(limits={"transaction_timeout_ms": 1_500})
    with asleep(flow, "before_end_txn@1") as zombie:

        def stable() -> bool:
            return all(
                clients.stable_end(flow.target, flow.copy, number) == end_of(flow, number) for number in range(3)
            )

        wait_until(stable, "its transaction was aborted", lambda: "")
        asked(flow, "--repair", "apply")
        after = read(flow)
        zombie.send_signal(signal.SIGCONT)
        _, said = zombie.communicate(timeout=ASKED_S_MAX)
    assert zombie.returncode == 5, (zombie.returncode, said)
    assert read(flow) == after
    for number, contents in enumerate(after):
        assert Counter(contents) == multiset(flow.truths[number].source)


@pytest.mark.tier("full")
def test_a_compacted_target_keeps_what_its_keys_have_last(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Of each key only the source's last record is copied, tombstones too, and not where somebody else's stands."""
    keep = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(10**12)}  # this test writes what a cleaner leaves
    acts = ("keyed", "skipped", "lost")
    flow = damaged(MappedFlow(source, target, tmp_path, unique("keys"), range(6), acts, configs=keep))
    others = [random.Random(seed).choice((None, b"0", b"3")) for seed in flow.seeds]
    for number, key in enumerate(others):
        if key is not None:
            clients.put(
                clients.producer(flow.target), flow.copy, b"others", key=key, timestamp=EPOCH_MS, partition=number
            )
    covered(flow)
    before = read(flow)
    asked(flow, "--repair", "apply")
    for number, contents in enumerate(read(flow)):
        truth = flow.truths[number]
        last = {content.key: at for at, content in sorted(truth.here.items())}
        gone = truth.skipped | truth.lost
        expected = {truth.source[at] for key, at in last.items() if at in gone and key != others[number]}
        assert contents[: len(before[number])] == before[number]
        assert set(contents[len(before[number]) :]) == expected
        assert len(contents) == len(before[number]) + len(expected)
    _, report = asked(flow, "--repair", "apply")
    assert not any(row["copied"] for row in rows(report).values())
    assert any(row["superseded"] for row in rows(report).values())


@pytest.mark.tier("full")
def test_what_can_not_be_told_is_refused_by_name(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    flow = damaged(MappedFlow(source, target, tmp_path, unique("open"), [7, 8, 9], ("skipped", "lost")))
    flow.file.write(limits={"request_timeout_ms": 1_000})
    before = read(flow)
    writer = clients.transactional(flow.target, f"{flow.topic}-open")
    writer.begin_transaction()
    clients.put(writer, flow.blocks_topic, b"hidden", partition=3)
    done = subprocess.run(command(flow, "--repair", "apply"), capture_output=True, text=True, timeout=ASKED_S_MAX)
    writer.abort_transaction()
    assert (done.returncode, "map_transaction_open" in done.stderr) == (4, True), done.stderr
    assert read(flow) == before
    assert compared(flow).outcome.differs
    flow.file.write(limits={"request_timeout_ms": 10_000})
    assert_repaired(flow)


@pytest.mark.tier("long", kafka="long")
def test_what_the_source_loses_between_comparison_and_repair_is_not_said_to_stand_on_the_target(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    acts = ("keyed", "skipped")
    flow = damaged(MappedFlow(source, target, tmp_path, unique("gone"), range(6), acts, source_configs=CLEANABLE))
    gone: dict[Partition, set[int]] = {}
    for number, truth in enumerate(flow.truths):
        last = {content.key: offset for offset, content in sorted(truth.source.items())}
        gone[Partition(flow.topic, number)] = {one for one in truth.skipped if last[truth.source[one].key] != one}
    assert sum(map(len, gone.values())) > 1

    def left() -> dict[Partition, set[int]]:
        there = read_offsets(flow.source, dict.fromkeys(gone, 0))
        return {at: offsets & there[at] for at, offsets in gone.items() if offsets & there[at]}

    with asleep(flow, "fenced@1") as process:
        late_ms = int(time.time() * 1000) + 600_000
        for at in gone:  # a segment of its own, so that those before are cleaned
            put = clients.producer(flow.source)
            clients.put(put, flow.topic, b"late", key=b"late", timestamp=late_ms, partition=at.partition)
        set_compacted(flow.source, flow.topic)
        wait_until(lambda: not left(), "the cleaner is through", lambda: str(left()))
        process.send_signal(signal.SIGCONT)
        said, errors = process.communicate(timeout=ASKED_S_MAX)
    assert process.returncode in (0, 1), errors
    for number, row in rows(json.loads(said)).items():
        lost, missing = len(gone[Partition(flow.topic, number)]), len(flow.truths[number].skipped)
        assert (row["missing"], row["copied"], row["standing"]) == (missing, missing - lost, 0)
        assert row["refused"] == (f"{lost} not copied: the source doesn't have it any more" if lost else None)
