"""`reconcile --local` over logs and maps of which everything is known: no verdict is wrong, and none says more than it
can."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.processes import wait_until
from integration_tests.proof.local_oracle import wrongs
from integration_tests.proof.mapped_lane import DAMAGE, MAP_ERRORS
from integration_tests.proof.mapped_logs import MappedFlow
from integration_tests.spark.seeded_logs import CLEANABLE, read_offsets, set_compacted
from replicator.model.partition import Partition
from replicator.proof import snapshot, verdicts
from replicator.proof.local import LocalResult, reconcile_local
from replicator.proof.verify import VerifyScope, verify
from tests.budget import budget

AT_ONCE = 12
ROUNDS = budget(1, 20)
CASES: dict[str, Sequence[str]] = {
    "clean": (),
    "damage": DAMAGE,
    "repaired": (*DAMAGE, "repaired"),
    "lost blocks": (*DAMAGE, "lost_block", "unreadable"),
    **{f"map {error}": (*DAMAGE, error) for error in MAP_ERRORS if error not in ("lost_block", "unreadable")},
    "all": (*DAMAGE, *MAP_ERRORS, "repaired"),
}


class Silent:
    """Progress that nobody looks at."""

    def step(self, text: str, offsets: int = 0) -> None: ...

    def passed(self, offsets: int) -> None: ...


def compared(flow: MappedFlow) -> LocalResult:
    return reconcile_local(flow.flow, taken_of(flow), Silent())


def taken_of(flow: MappedFlow) -> snapshot.Snapshot:
    return snapshot.take(flow.flow, (), snapshot.Window(), connect_timeout_ms=20_000, time_ms_max=None)


def assert_right(flow: MappedFlow) -> LocalResult:
    result = compared(flow)
    assert not result.outcome.not_compared
    wrong = []
    for outcome in result.outcome.partitions:
        number = outcome.source.partition
        truth = flow.truths[number]
        found = wrongs(truth, outcome, result.records[outcome.source])
        wrong += [f"seed {flow.seeds[number]} ({truth.acts}): {text}" for text in found]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:20])
    return result


@pytest.mark.tier("full")
@pytest.mark.parametrize("part", range(ROUNDS))
@pytest.mark.parametrize("case", CASES)
def test_no_verdict_is_wrong(
    case: str, part: int, source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    seeds = range(part * AT_ONCE, (part + 1) * AT_ONCE)
    flow = MappedFlow(source, target, tmp_path, unique("local"), seeds, CASES[case])
    result = assert_right(flow)
    if case == "clean":
        assert result.outcome.verdict == "agrees" or any(truth.foreign for truth in flow.truths)
    for number, truth in enumerate(flow.truths):  # then retention on one side or on both
        draw = random.Random(flow.seeds[number])
        ends = [draw.choice((0, draw.randrange(max(1, end)))) for end in (truth.position, truth.next_target)]
        flow.cut(number, source=ends[0], target=ends[1])
    assert_right(flow)


@pytest.mark.tier("full")
def test_what_a_cleaner_took_is_compacted_and_what_it_may_not_take_is_missing(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    acts = ("keyed", "skipped")
    flow = MappedFlow(source, target, tmp_path, unique("local"), range(4), acts, configs=CLEANABLE)
    expected = cleaned(flow)
    result = compared(flow)
    for outcome in result.outcome.partitions:
        truth, kept = flow.truths[outcome.source.partition], expected[outcome.source.partition]
        said = {one.source: one.verdict for one in result.records[outcome.source] if one.source is not None}
        compacted = {at for at, place in truth.places.items() if place not in kept}
        assert said == dict.fromkeys(compacted, verdicts.COMPACTED) | dict.fromkeys(truth.skipped, verdicts.MISSING)
        assert outcome.same == len(kept)
    found = verify(flow.flow, taken_of(flow), VerifyScope(), Silent())
    for one in found.partitions:  # the map doesn't say keys
        truth = flow.truths[one.source.partition]
        assert one.emptied == len(truth.places) - len(expected[one.source.partition])
        assert one.empty_offsets == 0


def cleaned(flow: MappedFlow) -> list[set[int]]:
    """Have the target cleaned; return which offsets are left, by partition."""
    late_ms = int(time.time() * 1000) + 600_000
    late = clients.put(clients.producer(flow.target), flow.copy, b"late", key=b"late", timestamp=late_ms)  # a segment
    assert late
    for number in range(1, len(flow.truths)):
        clients.put(clients.producer(flow.target), flow.copy, b"late", key=b"late", timestamp=late_ms, partition=number)
    expected = []
    for truth in flow.truths:
        last = {content.key: at for at, content in truth.target.items()}
        expected.append({at for at, content in truth.target.items() if last[content.key] == at})
    set_compacted(flow.target, flow.copy)

    def left() -> list[set[int]]:
        found = read_offsets(flow.target, {Partition(flow.copy, number): 0 for number in range(len(flow.truths))})
        return [found[Partition(flow.copy, number)] & truth.target.keys() for number, truth in enumerate(flow.truths)]

    wait_until(lambda: left() == expected, "the cleaner is through", lambda: str(left()))
    return expected
