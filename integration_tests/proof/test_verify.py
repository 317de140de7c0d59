"""`verify` over targets and maps of which everything is known: it says what the map and the target's log show, and
nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle
from integration_tests.proof.mapped_lane import DAMAGE, MAP_ERRORS
from integration_tests.proof.mapped_logs import MappedFlow
from integration_tests.proof.test_local import AT_ONCE, ROUNDS, Silent
from integration_tests.proof.truth import Truth
from replicator.proof import snapshot
from replicator.proof.verified import Verified, VerifiedPartition
from replicator.proof.verify import VerifyScope, verify

CASES: dict[str, Sequence[str]] = {
    "clean": (),
    "unseen": ("skipped", "altered"),
    "damage": DAMAGE,
    "repaired": (*DAMAGE, "repaired"),
    "lost blocks": (*DAMAGE, "lost_block"),
    "map errors": (*DAMAGE, *MAP_ERRORS),
}
SEEN = ("shifted", "left_out", "aborted_data")
"""Errors of the map that the target's log contradicts; others void claims, or leave a gap."""


def verified(flow: MappedFlow, scope: VerifyScope = VerifyScope()) -> Verified:  # noqa: B008
    taken = snapshot.take(flow.flow, (), snapshot.Window(), connect_timeout_ms=20_000, time_ms_max=None)
    return verify(flow.flow, taken, scope, Silent())


def wrongs(truth: Truth, found: VerifiedPartition) -> Iterator[str]:
    if truth.unmapped or truth.wrong:
        if found.verdict == "stands":
            yield f"stands, with {truth.wrong or 'blocks that are lost'}"
        if truth.wrong in SEEN and not truth.target_start and found.verdict != "differs":
            yield f"{found.verdict}, with {truth.wrong}"
        more = found.empty_offsets > len(truth.lost_places) or found.foreign_records > len(truth.foreign)
        if not truth.wrong and more:
            yield f"{found.empty_offsets} empty, {found.foreign_records} foreign, where the map has lost blocks"
        return
    empty = {place for place in truth.lost_places if place >= truth.target_start}
    foreign = {place for place in truth.foreign if place >= truth.target_start}
    if (found.empty_offsets, found.foreign_records) != (len(empty), len(foreign)):
        yield f"{found.empty_offsets} empty, {found.foreign_records} foreign, of {len(empty)} and {len(foreign)}"
    copies = len(truth.there) - len(foreign)
    if found.standing != copies:
        yield f"{found.standing} standing, of {copies}"
    if found.contradictions or found.gaps or found.uncovered:
        yield f"said {found.said()}"


def assert_right(flow: MappedFlow) -> Verified:
    found = verified(flow)
    assert not found.not_compared
    wrong = []
    for one in found.partitions:
        number = one.source.partition
        said = wrongs(flow.truths[number], one)
        wrong += [f"seed {flow.seeds[number]} ({flow.truths[number].acts}): {text}" for text in said]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:20])
    return found


@pytest.mark.tier("full")
@pytest.mark.parametrize("part", range(ROUNDS))
@pytest.mark.parametrize("case", CASES)
def test_nothing_wrong_is_said_of_the_target(
    case: str, part: int, source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    seeds = range(part * AT_ONCE, (part + 1) * AT_ONCE)
    flow = MappedFlow(source, target, tmp_path, unique("verify"), seeds, CASES[case])
    found = assert_right(flow)
    if case in ("clean", "unseen"):
        assert found.verdict == "stands"
        sampled = verified(flow, VerifyScope(sample=0.3, seed=1))
        assert sampled.verdict == "stands"
        assert 0 < sampled.standing < found.standing
        assert verified(flow, VerifyScope(since_ms=1 << 60)).verdict == "unproven"  # nothing was looked at
    for number, truth in enumerate(flow.truths):
        cut = random.Random(flow.seeds[number]).randrange(max(1, truth.next_target))
        flow.cut(number, target=cut)
    assert_right(flow)
