"""`reconcile --local` over logs and maps of which everything is known: no verdict is wrong, and none says more than it
can."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle
from integration_tests.proof.local_oracle import wrongs
from integration_tests.proof.mapped_lane import DAMAGE, MAP_ERRORS
from integration_tests.proof.mapped_logs import MappedFlow
from replicator.proof import snapshot
from replicator.proof.local import LocalResult, reconcile_local
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
    taken = snapshot.take(flow.flow, (), snapshot.Window(), connect_timeout_ms=20_000, time_ms_max=None)
    return reconcile_local(flow.flow, taken, Silent())


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
